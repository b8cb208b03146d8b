"""What was found lately: faults whose aftermath is no finding of its own, and locations that need not be worked out
again.

Paths that come back one by one after a fault are its aftermath. While the same paths stay sick, the location of
the fault is taken from a cache.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.liveness import Sightings
from sdfstream.detect.localise import Location
from sdfstream.detect.problem import Observations
from sdfstream.records.finding import Subject
from sdfstream.records.units import NS_PER_MS, NS_PER_S

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

AFTERMATH_NS = 10 * NS_PER_S
_SETTLED_NS = NS_PER_S
"""Only an answer on sick paths that have not changed for this long is stored: before that, rows still come in."""
_KEEP_NS = 500 * NS_PER_MS
_SURELY = 0.9
"""A path crosses an element when it does so with this probability."""
_MOST = 16


class RecentFaults:
    """NICs, links and switches by the bus time at which they were last at fault."""

    def __init__(self, cabling: Cabling) -> None:
        self.cabling = cabling
        self._last: dict[str, int] = {}
        self._reported: dict[str, int] = {}
        """Those of which this was a finding: a lossy link is silent for an instant now and then, and is not down."""

    def note(self, subject: str, now_ns: int, *, reported: bool = False) -> None:
        """Remember that a subject is at fault now; `reported`: as a finding, or by what its own port says."""
        for last in (self._last, self._reported) if reported else (self._last,):
            last[subject] = now_ns
            for old in [s for s, at in last.items() if now_ns - at > AFTERMATH_NS]:
                del last[old]

    def holds(self, subject: str, now_ns: int) -> bool:
        """Whether this subject was at fault a short while ago."""
        return subject in self._last and now_ns - self._last[subject] <= AFTERMATH_NS

    def was_found(self, subject: str, now_ns: int) -> bool:
        """Whether a finding said a short while ago that this subject is at fault."""
        return subject in self._reported and now_ns - self._reported[subject] <= AFTERMATH_NS

    def touched(self, slots: Ints, now_ns: int) -> Bools:
        """Which of these sessions may cross, in either direction, something at fault a short while ago."""
        return self._crossing(self._last, slots, now_ns, 0.0)

    def down(self, slots: Ints, now_ns: int) -> Bools:
        """Which of these sessions surely cross something that was told to be at fault a short while ago."""
        return self._crossing(self._reported, slots, now_ns, _SURELY)

    def _crossing(self, last: dict[str, int], slots: Ints, now_ns: int, least: float) -> Bools:
        fresh = {s for s, at in last.items() if now_ns - at <= AFTERMATH_NS}
        if not fresh or not slots.size:
            return np.zeros(slots.size, np.bool_)
        elements = self.cabling.element[slots].reshape(slots.size, -1)
        numbers = [p for p in np.unique(elements[elements >= 0]).tolist() if self.cabling.subject(p).id in fresh]
        hit: Bools = np.isin(elements, numbers) & (self.cabling.weight[slots].reshape(slots.size, -1) > least)
        result: Bools = np.logical_or.reduce(hit, axis=1)
        return result

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {"last": dict(self._last), "reported": dict(self._reported)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        if "reported" not in state:  # a release before told them all
            state = {"last": state, "reported": state}
        self._last, self._reported = ({str(k): int(v) for k, v in state[name].items()} for name in ("last", "reported"))


def came_back(cabling: Cabling, found: Location, seen: Sightings) -> bool:
    """Whether paths that surely cross what was found work again, so that it is the rest of an outage that has ended.

    Each path shows the end at its own next probe, the slowest seconds later.
    """
    since_ns = int(seen.since_ns[found.slots].min(initial=np.iinfo(np.int64).max))
    again = np.flatnonzero(seen.back_ns > since_ns)
    at_fault = np.isin(cabling.element[again], cabling.numbers(found.directions))
    return bool((at_fault & (cabling.weight[again] > _SURELY)).any())


class LocationCache:
    """Answers by set of sick paths: when the set was first met, when the answer was worked out, the answer."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int, list[Location]]] = {}

    def recall(
        self, seen: Observations, now_ns: int, locate: Callable[[Observations], list[Location]]
    ) -> list[Location]:
        """The answer to `seen`, from `locate` unless it is known and fresh."""
        sick = seen.failed > 0
        key = 0
        for column in (seen.slots[sick], seen.fwd[sick], seen.rev[sick]):
            key = zlib.crc32(column.tobytes(), key)
        first_ns, at_ns, found = self._known.get(key, (now_ns, -1, []))
        if at_ns < 0 or now_ns - first_ns < _SETTLED_NS or now_ns - at_ns >= _KEEP_NS:
            found = locate(seen)
            self._known.pop(key, None)
            self._known[key] = (first_ns, now_ns, found)
            for old in [k for k, v in self._known.items() if now_ns - v[1] > _SETTLED_NS][:_MOST]:
                del self._known[old]
        while len(self._known) > _MOST:
            del self._known[next(iter(self._known))]
        return found

    def snapshot(self) -> list[Any]:
        """The whole state as plain values and arrays."""
        return [[key, first, at, [asdict(x) for x in found]] for key, (first, at, found) in self._known.items()]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._known = {key: (first, at, [revived(x) for x in found]) for key, first, at, found in state}


def revived(saved: dict[str, Any]) -> Location:
    """A location from the plain values that a snapshot holds."""
    subject, suspects = Subject(**saved["subject"]), [(s, p) for s, p in saved["suspects"]]
    slots = np.asarray(saved["slots"], np.int64)
    lists = {"suspects": suspects, "slots": slots, "members": tuple(saved["members"])}
    lists["beside"] = tuple(saved["beside"])
    return Location(**{**saved, "subject": subject, **lists})
