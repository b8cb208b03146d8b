"""A Session-Sender whose watch sessions come and go while the others go on.

The paths of the mesh come first and never change. Behind them lie the watch sessions, each at a *place* (`watches`);
every array of the sender grows with them, and nothing is ever moved, so what is under way is not touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sdfstream.probes import paths
from sdfstream.probes.config import SessionConfig
from sdfstream.probes.sender import NEVER, SessionSender
from sdfstream.records.units import ABSENT_NS, Int64s


class WatchingSender(SessionSender):
    """A `SessionSender` with `watch`; sockets of watch sessions are given at construction, like the mesh's."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._watched: list[SessionConfig] = []

    def watch(self, begin: Mapping[int, SessionConfig], end: Sequence[int], now_ns: int, *, liveness_ms: int) -> None:
        """Begin and end watch sessions, each at its place (0, 1, …; a new one at the end).

        All have equally many ports and one rate. Paths of other sessions, under way or not, are not touched and keep
        their numbers. A place may be given to another session once what was under way on it is done.
        """
        for place in end:
            path = self._at(place)
            self._ended[path] = True
            self._next_due[path] = NEVER
            self.life.end(path, now_ns)
        if not begin:
            return
        fresh = sorted(place for place in begin if place >= len(self._watched))
        again = sorted(place for place in begin if place < len(self._watched))
        moved = [place for place in again if begin[place] != self._watched[place]]
        for place in again:
            self._watched[place] = begin[place]
        self._watched += [begin[place] for place in fresh]
        more = paths.build(self._watched, self._sockets, self._mode, first=len(self._mesh.sessions), by_socket=False)
        self.paths = paths.joined(self._mesh, more)
        self._measure()
        self._rows.adopt(self.paths)
        self._make_room(now_ns, liveness_ms)
        for place in moved:
            self._exchanges.free(self._at(place))
        for place in sorted(begin):
            self._begin(self._at(place), begin[place].src not in self._away, now_ns)

    def _pause_ns(self, path: Int64s, interval: Int64s) -> Int64s:
        """As for any path, but all watch sessions in step.

        Their packets then leave, are answered and are read in one go: a third of the passes that phases of their own
        would take, and passes are what fast probing costs.
        """
        pause = super()._pause_ns(path, interval)
        watched = np.flatnonzero(path >= self.mesh_paths)
        if len(watched):
            pause[watched] = pause[watched[0]]
        return pause

    def _at(self, place: int) -> Int64s:
        """Paths of the watch session at `place`."""
        result: Int64s = np.flatnonzero(self.paths.session == len(self._mesh.sessions) + place)
        return result

    def _make_room(self, now_ns: int, liveness_ms: int) -> None:
        have, want = len(self._next_seq), len(self.paths)
        if have == want:
            return
        interval = self.paths.interval_ns[have:]

        def grown(array: Any, value: int) -> Any:
            return np.concatenate([array, np.full(want - have, value, dtype=array.dtype)])

        self._exchanges.grow(interval)
        self._next_seq = grown(self._next_seq, 0)
        self.heard_at_ns = grown(self.heard_at_ns, ABSENT_NS)
        self.ttl_fwd = grown(self.ttl_fwd, 0)
        self._next_due = grown(self._next_due, NEVER)
        self._usable = grown(self._usable, True)
        self._ended = grown(self._ended, True)
        self.life.add(self._names(np.arange(have, want)), interval, now_ns, liveness_ms=liveness_ms)

    def _begin(self, path: Int64s, usable: bool, now_ns: int) -> None:
        self._ended[path] = False
        self._usable[path] = usable
        self.heard_at_ns[path] = ABSENT_NS
        self.ttl_fwd[path] = 0
        interval_ns = int(self.paths.interval_ns[path].max(initial=1))
        under_way = self._next_due[self.mesh_paths :]
        step = int(under_way.min(initial=NEVER))
        self._next_due[path] = step if step < NEVER else now_ns + int(interval_ns * self._rng.random())
        self.life.begin(path, self._names(path), usable, now_ns)
