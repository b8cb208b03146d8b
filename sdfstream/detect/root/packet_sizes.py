"""Large probes that do not pass where small ones do: a port or NIC on the route takes smaller packets than the others.

A NIC left at 1,500 octets among others at 4,200, or a switch port that was replaced, drops without a word whatever is
larger; small packets, and so all else that is measured, are well. Sessions whose packets are as large as the MTU are
silent then. They are put to elements among themselves, and an element is named only where small probes pass it since:
what is dead takes both. So that loss by chance is not taken for it, `_PROBES` in a row must be missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.detections import MAX_SYMPTOMS, MTU_MISMATCH, Detection, symptom
from sdfstream.detect.inferred.hidden import evidence_of
from sdfstream.detect.liveness import Sightings
from sdfstream.detect.localise import Location, locate
from sdfstream.detect.problem import Observations
from sdfstream.detect.sessions import Sessions
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import NS_PER_S

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LARGE: Final = 512
"""Octets of an IP packet; probes have 128, or 160 of RoCEv2, unless they are to be large."""
_PROBES: Final = 8
_IN_A_LIMIT: Final = 3
"""A session is silent after three probes at least."""
_TRIALS: Final = 8.0
_SURELY: Final = 0.9
_MISSED: Final = 1e-3
"""An inferred link is passed by small packets unless it is so unlikely that none of those seen to pass crossed it."""


@dataclass(frozen=True, slots=True)
class TooLarge:
    """An element that large packets do not pass."""

    location: Location
    octets: int
    """The smallest packets that do not pass."""
    small: int
    """Sessions of small packets that pass every direction of it, at least."""
    since_ns: int


def large_silent(sessions: Sessions, seen: Sightings, bad: Bools) -> Bools:
    """(sessions,) silent sessions of large packets between NICs that small ones reach each other by.

    Not those that fell silent together with sessions of small packets: that is one fault, and both are evidence of it.

    Parameters
    ----------
    bad : (sessions,) bool
        Silent sessions that are to be explained.
    """
    mine = bad & _are_large(sessions)
    if not mine.any():
        return mine
    pair = sessions.table["src"] << 24 | sessions.table["dst"]
    result: Bools = mine & np.isin(pair, pair[_passing(sessions, seen, mine)])
    small_ns = np.sort(seen.since_ns[bad & ~mine])
    first = np.searchsorted(small_ns, seen.since_ns - seen.limit_ns)
    result &= first == np.searchsorted(small_ns, seen.since_ns + seen.limit_ns, side="right")
    return result


def too_large(cabling: Cabling, sessions: Sessions, seen: Sightings, held: Bools, now_ns: int) -> list[TooLarge]:
    """Elements that explain the silence of the large sessions `held`, and that small packets pass."""
    sick = held & ((now_ns - seen.since_ns) * _IN_A_LIMIT >= _PROBES * seen.limit_ns)
    if not sick.any():
        return []
    passing = _passing(sessions, seen, sick)
    large = np.flatnonzero(_are_large(sessions) & ~seen.silent & (seen.good_round_ns >= _onset_ns(seen, sick)))
    slots, small = np.flatnonzero(sick), np.flatnonzero(passing)
    observed = [
        Observations.of(slots, "both", _TRIALS, _TRIALS, seen.since_ns[slots]),
        Observations.of(large, "both", 0.0, _TRIALS, seen.good_round_ns[large]),
    ]
    found = []
    for location in locate(cabling, Observations.join(observed), noise=1e-3, least_share=0.99, kind="silence"):
        if location.subject.type not in ("nic", "link", "switch"):
            continue
        if location.beside:
            pass_each = _leaving(sessions, location, np.concatenate([slots, large]), small)
        else:
            pass_each = min((_crossing(cabling, small, direction) for direction in location.directions), default=0)
        if pass_each:
            octets = int(sessions.table["octets"][location.slots].min())
            found.append(TooLarge(location, octets, pass_each, int(seen.since_ns[location.slots].min())))
    return found


def _are_large(sessions: Sessions) -> Bools:
    result: Bools = sessions.table["octets"] > LARGE
    return result


def _onset_ns(seen: Sightings, sick: Bools) -> int:
    return int((seen.since_ns + seen.slack_ns)[sick].max())


def _passing(sessions: Sessions, seen: Sightings, sick: Bools) -> Bools:
    """Sessions of small packets that were seen to work after all of `sick` had fallen silent."""
    result: Bools = ~_are_large(sessions) & ~seen.silent & (seen.good_round_ns >= _onset_ns(seen, sick))
    return result


def _crossing(cabling: Cabling, slots: Ints, direction: str) -> int:
    """How many of these sessions surely cross a direction, there or back."""
    over = np.isin(cabling.element[slots], cabling.numbers([direction])) & (cabling.weight[slots] > _SURELY)
    return int(over.any(axis=(1, 2)).sum())


def _leaving(sessions: Sessions, location: Location, large: Ints, small: Ints) -> int:
    """How many of the sessions `small` lead to or from the switch of an inferred link; 0, if all may have missed it.

    Which of its links a session crosses is not known. Of `large` ones the share p is silent, so that all of m small
    ones miss the link with the probability (1 − p)^m.
    """
    nics = np.array([sessions.nics.find(name) for name in location.beside])

    def leaves(slots: Ints) -> int:
        ends = (np.isin(sessions.table[end][slots], nics) for end in ("src", "dst"))
        return int(np.not_equal(*ends).sum())

    share = min(location.slots.size / max(1, leaves(large)), 1.0 - 1e-9)
    passing = leaves(small)
    return passing if passing * np.log1p(-share) <= np.log(_MISSED) else 0


def detection(found: TooLarge, sessions: Sessions, now_ns: int, hold_ns: int) -> Detection:
    """What is said of it."""
    location, where = found.location, " ".join(found.location.directions)
    evidence = (
        Evidence("silent-octets", float(found.octets), "octets", where),
        Evidence("silent-paths", float(location.slots.size), "paths", where, 0.0),
        Evidence("small-paths-alive", float(found.small), "paths", where, float(found.small)),
        Evidence("silent-for", round((now_ns - found.since_ns) / NS_PER_S, 1), "s", where, 0.0),
        *evidence_of(location.beside),
    )
    paths = [Subject("path", str(sessions.path_id(slot, "fwd"))) for slot in location.slots.tolist()[:MAX_SYMPTOMS]]
    return Detection(
        MTU_MISMATCH,
        location.subject,
        found.since_ns,
        "mtu",
        location.probability,
        evidence,
        suspects=tuple(location.suspects),
        symptoms=tuple(symptom("path-down", path, found.since_ns) for path in paths),
        confirm_ns=NS_PER_S,  # large probes are rare: the first to fall silent may leave the place or direction open
        hold_ns=hold_ns,
        detail=f"packets of {found.octets} octets do not pass {where}, small ones do",
        directions=tuple(location.directions),
        direction_known=location.direction_known,
    )
