"""A transport that does not pass while UDP does: silence that no cable explains, since the same cables carry UDP.

RoCEv2 needs more than an address and a cable: a GID of version 2 at the index that is used, queue pairs, a class that
no switch drops, no filter on port 4791. Where one of these is wrong at a NIC, all of its RoCEv2 sessions are silent,
and the UDP sessions of the very same pairs of NICs live. A dead link between switches takes some source ports of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sdfstream.detect.detections import MAX_SYMPTOMS, TRANSPORT_SILENT, Detection, symptom
from sdfstream.detect.liveness import Sightings
from sdfstream.detect.sessions import Sessions
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import NS_PER_S

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_LEAST: Final = 2
"""Silent sessions of a NIC: a single one may have met a dead path that UDP's source ports miss."""
_CONFIRM_NS: Final = 2 * NS_PER_S


@dataclass(frozen=True, slots=True)
class SilentTransport:
    """One NIC that a transport does not reach, or leave."""

    nic: str
    other: str
    """A NIC that would explain as much; empty: none."""
    transport: str
    slots: Ints
    """The silent sessions."""
    udp: int
    """UDP sessions of the same pairs that live."""
    since_ns: int


def silent_transports(sessions: Sessions, seen: Sightings, bad: Bools) -> list[SilentTransport]:
    """NICs at which all sessions of a transport are silent though UDP between the same NICs lives.

    Parameters
    ----------
    sessions : Sessions
    seen : Sightings
        Of all sessions, (sessions,).
    bad : (sessions,) bool
        Silent ones that are to be explained.
    """
    table, udp = sessions.table, sessions.transports.find("udp")
    src, dst, transport = table["src"], table["dst"], table["transport"]
    if not (bad & (transport != udp)).any():
        return []
    pair = src << 24 | dst
    alive = ~seen.silent & (seen.good_round_ns >= int(seen.since_ns[bad].max()))
    by_udp = transport == udp
    living = np.setdiff1d(pair[by_udp & alive], pair[by_udp & seen.silent])
    candidate = bad & ~by_udp & np.isin(pair, living)
    found: list[SilentTransport] = []
    for number in np.unique(transport[candidate]).tolist():
        mine = transport == number
        works = np.unique(np.concatenate([src[mine & alive], dst[mine & alive]]))
        left = candidate & mine & ~(np.isin(src, works) & np.isin(dst, works))
        found += _cover(sessions, seen, left, works, by_udp & alive, str(sessions.transports.list[number]))
    return found


def _cover(
    sessions: Sessions, seen: Sightings, left: Bools, works: Ints, living: Bools, transport: str
) -> list[SilentTransport]:
    """The fewest NICs that explain what is silent, found greedily; one with a session that works explains nothing."""
    src, dst = sessions.table["src"], sessions.table["dst"]
    pair = src << 24 | dst
    found = []
    count = len(sessions.nics)
    while left.any():
        hits = np.bincount(src[left], minlength=count) + np.bincount(dst[left], minlength=count)
        hits[works] = 0
        best = int(hits.argmax())
        if hits[best] < _LEAST:
            break
        slots = np.flatnonzero(left & ((src == best) | (dst == best)))
        equal = np.flatnonzero(hits == hits[best])
        same = [int(n) for n in equal if n != best and ((src[slots] == n) | (dst[slots] == n)).all()]
        found.append(
            SilentTransport(
                str(sessions.nics.list[best]),
                str(sessions.nics.list[same[0]]) if same else "",
                transport,
                slots,
                int((living & np.isin(pair, pair[slots])).sum()),
                int(seen.since_ns[slots].min()),
            )
        )
        left = left & ~((src == best) | (dst == best))
    return found


def detection(found: SilentTransport, sessions: Sessions, now_ns: int, hold_ns: int) -> Detection:
    """What is told of it."""
    where = f"{found.nic} {found.transport}"
    evidence = (
        Evidence("silent-paths", float(found.slots.size), "paths", where, 0.0),
        Evidence("udp-paths-alive", float(found.udp), "paths", f"{found.nic} udp", float(found.udp)),
        Evidence("silent-for", round((now_ns - found.since_ns) / NS_PER_S, 1), "s", where, 0.0),
    )
    confidence = 0.5 if found.other else 0.9
    suspects = ((found.nic, confidence), *(((found.other, confidence),) if found.other else ()))
    paths = [Subject("path", str(sessions.path_id(slot, "fwd"))) for slot in found.slots.tolist()[:MAX_SYMPTOMS]]
    detail = f"no {found.transport} probe passes {found.nic}, {found.udp} UDP paths between the same NICs live"
    return Detection(
        TRANSPORT_SILENT, Subject("nic", found.nic), found.since_ns, "transport-mismatch", confidence, evidence,
        suspects=suspects, symptoms=tuple(symptom("path-down", path, found.since_ns) for path in paths),
        confirm_ns=_CONFIRM_NS, hold_ns=hold_ns, detail=detail,
    )  # fmt: skip
