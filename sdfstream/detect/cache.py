"""What was located lately: while the same paths stay sick, the answer is looked up, not worked out again."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from sdfstream.detect.localise import Location
from sdfstream.detect.problem import Observations
from sdfstream.records.finding import Subject
from sdfstream.records.units import NS_PER_MS, NS_PER_S

_SETTLED_NS = NS_PER_S
"""Only an answer on sick paths that have not changed for this long is kept: before that, health is still coming in."""
_KEEP_NS = 500 * NS_PER_MS
_MOST = 16


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
        return [[key, first, at, [_saved(x) for x in found]] for key, (first, at, found) in self._known.items()]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._known = {key: (first, at, [_revived(x) for x in found]) for key, first, at, found in state}


def _saved(found: Location) -> dict[str, Any]:
    """One answer as plain values; `Location.path_directions` stands under ``ways``, as in every snapshot so far."""
    return {"ways" if name == "path_directions" else name: value for name, value in asdict(found).items()}


def _revived(saved: dict[str, Any]) -> Location:
    subject, suspects = Subject(**saved["subject"]), [(s, p) for s, p in saved["suspects"]]
    slots = np.asarray(saved["slots"], np.int64)
    lists = {"suspects": suspects, "slots": slots, "members": tuple(saved["members"])}
    rest = {"path_directions" if name == "ways" else name: value for name, value in saved.items()}
    return Location(**{**rest, "subject": subject, **lists})
