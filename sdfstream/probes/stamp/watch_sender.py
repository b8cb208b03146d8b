"""A Session-Sender whose watch sessions and planned sessions come and go while the others go on.

The configured paths come first and never change. Behind them lie the sessions that come and go, each at a *place*
(`slots`); every array of the sender grows with them, and nothing is ever moved, so what is under way is not touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sdfstream.probes.config import SessionConfig
from sdfstream.probes.stamp import paths
from sdfstream.probes.stamp.sender import NEVER, SessionSender
from sdfstream.records.units import ABSENT_NS, Bools, Int64s


class WatchingSender(SessionSender):
    """A `SessionSender` with `watch`; sockets of sessions to come are given at construction, like the mesh's."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._watched: list[SessionConfig] = []
        self._in_step: Bools = np.zeros(len(self.paths), dtype=np.bool_)
        """Which paths leave together."""

    def watch(
        self,
        begin: Mapping[int, SessionConfig],
        end: Sequence[int],
        now_ns: int,
        *,
        liveness_ms: int,
        in_step: bool = True,
    ) -> None:
        """Begin and end sessions, each at its place (0, 1, …; a new one at the end).

        Paths of other sessions, under way or not, are not touched and keep their numbers. A place may be given to
        another session of as many ports and the same rate, `liveness_ms` and `in_step`, once what was under way on it
        is done. Sessions that go `in_step` all have one rate.
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
        self._make_room(now_ns, liveness_ms, in_step)
        for place in moved:
            self._exchanges.free(self._at(place))
        for place in sorted(begin):
            self._begin(self._at(place), begin[place].src not in self._away, now_ns)

    def _pause_ns(self, path: Int64s, interval: Int64s) -> Int64s:
        """As for any path, but all watch sessions in step (planned ones keep phases of their own).

        Their packets then leave, are answered and are read in one go: a third of the passes that phases of their own
        would take, and passes are what fast probing costs.
        """
        pause = super()._pause_ns(path, interval)
        watched = np.flatnonzero(self._in_step[path])
        if len(watched):
            pause[watched] = pause[watched[0]]
        return pause

    def _at(self, place: int) -> Int64s:
        """Paths of the session at `place`."""
        result: Int64s = np.flatnonzero(self.paths.session == len(self._mesh.sessions) + place)
        return result

    def _make_room(self, now_ns: int, liveness_ms: int, in_step: bool) -> None:
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
        self._in_step = grown(self._in_step, in_step)
        self.life.add(self._names(np.arange(have, want)), interval, now_ns, liveness_ms=liveness_ms)

    def _begin(self, path: Int64s, usable: bool, now_ns: int) -> None:
        self._ended[path] = False
        self._usable[path] = usable
        self.heard_at_ns[path] = ABSENT_NS
        self.ttl_fwd[path] = 0
        interval_ns = int(self.paths.interval_ns[path].max(initial=1))
        if self._in_step[path].any():
            step = int(self._next_due[self._in_step].min(initial=NEVER))
            self._next_due[path] = step if step < NEVER else now_ns + int(interval_ns * self._rng.random())
        else:
            self._next_due[path] = now_ns + (interval_ns * self._rng.random(len(path))).astype(np.int64)
        self.life.begin(path, self._names(path), usable, now_ns)
