"""Whether what reaches a NIC may have passed a queue on its way there, as far as names of directions tell."""

from __future__ import annotations

from sdfstream.detect.detections import Detection
from sdfstream.detect.inferred.hidden import CORE, MEMBERS


def may_pass(queue: Detection, port: Detection, leaves: frozenset[str]) -> bool:
    """Whether packets that wait at a NIC's `port` may have come through `queue`, which is at a link.

    Not through what leaves the NIC's own leaf for the fabric, nor through what enters another of the `leaves`. Of
    switches that no map names only a queue right before the port's is known to lead there.
    """
    nic = port.subject.id
    if port.subject.type != "nic" or queue.subject.type != "link" or not _received(port):
        return False
    below = next((e.where.split() for e in queue.evidence if e.what == MEMBERS), None)
    if below is not None:
        return all((name.partition("->")[0] == CORE) == (nic in below) for name in queue.directions)
    mine = {name.partition("->")[0] for name in port.directions}
    return all(_leads(name, mine, leaves) for name in queue.directions)


def _received(port: Detection) -> bool:
    return all(name.endswith((f"->{port.subject.id}", f"{port.subject.id} rx")) for name in port.directions)


def _leads(direction: str, to: set[str], leaves: frozenset[str]) -> bool:
    start, _, end = direction.partition("->")
    return end in to or (start not in to and end not in leaves and to <= leaves)
