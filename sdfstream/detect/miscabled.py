"""NICs whose cable leads to another leaf than planned, as traces show it.

The second router on a route shows by the address at which the packet came in from which leaf it came; the last router
is the leaf that the receiver is cabled to. (The first router's own address shows nothing: a gateway address may follow
its NIC to the wrong leaf.) `_AGREE` traces in a row that name one other leaf make a detection, as many that name the
planned one end it. Two NICs on each other's leaves are one matter: swapped cables. It is the host's where both are of
one, and else that of the NIC which showed it first, so that what was reported of one stays when the other shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sdfstream.detect.detections import Detection, symptom
from sdfstream.detect.instant import Instant
from sdfstream.records.fabric import Topology, host_of
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import NS_PER_MS, NS_PER_S

_AGREE: Final = 3
_MOST: Final = 65_536


class MiscablingDetector:
    """What the last traces said of the leaf of every NIC."""

    def __init__(self) -> None:
        self.topology = Topology()
        self._seen: dict[str, list[str]] = {}
        """NIC to the leaves of its last traces, oldest first."""
        self._wrong: dict[str, tuple[str, int]] = {}
        """NIC to the leaf it is found on instead, and the bus time of the first trace that said so."""

    def declare(self, topology: Topology) -> None:
        """Take the cabling as planned."""
        self.topology = topology

    def take(self, sender: str, receiver: str, hops: list[str | None], at_ns: int) -> None:
        """Take one trace, bus time `at_ns`; without a declaration nothing is planned and nothing wrong."""
        for nic, leaf in _leaves(self.topology, sender, receiver, hops):
            planned = self.topology.leaf_of.get(nic)
            if planned is None or (nic not in self._seen and len(self._seen) >= _MOST):
                continue
            last = self._seen[nic] = [*self._seen.get(nic, [])[1 - _AGREE :], leaf]
            if len(last) < _AGREE or len(set(last)) > 1:
                continue
            if leaf == planned:
                self._wrong.pop(nic, None)
            elif self._wrong.get(nic, ("", 0))[0] != leaf:
                self._wrong[nic] = (leaf, at_ns)

    def detections(self, now: Instant) -> list[Detection]:
        """NICs, and hosts with swapped cables, that are not cabled as planned."""
        del now  # it is a matter of traces alone
        left = sorted(self._wrong, key=lambda nic: (self._wrong[nic][1], nic))
        detections = []
        while left:
            nic = left.pop(0)
            swapped = [other for other in left if self._swapped(nic, other)]
            other = min(swapped, key=lambda name: host_of(name) != host_of(nic), default=None)
            if other is None:
                detections.append(self._detection(Subject("nic", nic), [nic]))
                continue
            left.remove(other)
            one_host = host_of(nic) == host_of(other)
            subject = Subject("host", host_of(nic)) if one_host else Subject("nic", nic)
            detections.append(self._detection(subject, [nic, other]))
        return detections

    def _swapped(self, nic: str, other: str) -> bool:
        planned = (self.topology.leaf_of.get(nic), self.topology.leaf_of.get(other))
        return planned == (self._wrong[other][0], self._wrong[nic][0])

    def _detection(self, subject: Subject, nics: list[str]) -> Detection:
        since_ns = min(self._wrong[nic][1] for nic in nics)
        found = [f"{nic} on {self._wrong[nic][0]}, planned on {self.topology.leaf_of.get(nic)}" for nic in nics]
        return Detection(
            "miscabled",
            subject,
            since_ns,
            "cabling",
            0.95,
            tuple(Evidence("traces-in-a-row", float(_AGREE), "traces", text, 0.0) for text in found),
            suspects=tuple((nic, 1.0) for nic in nics),
            symptoms=tuple(symptom("miscabled", Subject("nic", nic), since_ns) for nic in nics if nic != subject.id),
            confirm_ns=100 * NS_PER_MS,
            hold_ns=NS_PER_S,
            detail="; ".join(found),
        )

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {"seen": self._seen, "wrong": {nic: list(x) for nic, x in self._wrong.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._seen = {nic: list(leaves) for nic, leaves in state["seen"].items()}
        self._wrong = {nic: (str(leaf), int(at)) for nic, (leaf, at) in state["wrong"].items()}


def _leaves(topology: Topology, sender: str, receiver: str, hops: list[str | None]) -> Iterator[tuple[str, str]]:
    """(NIC, leaf that a trace shows it on) of both ends, where the trace shows it."""
    if len(hops) < 2:
        return  # one router: it is the leaf of both, and its address may not say which
    second, last = topology.arrival(hops[1]), topology.arrival(hops[-1])
    if second is not None and second[0] in topology.leaves:
        yield sender, second[0]
    if last is not None and last[1] in topology.leaves:
        yield receiver, last[1]
