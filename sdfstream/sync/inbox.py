"""Beliefs on their way in: a tick's rows may come in several messages, and again."""

from __future__ import annotations

from typing import Any

import numpy as np

from sdfstream.sync.belief import COLUMNS, Beliefs, Told
from sdfstream.sync.wire import BeliefRows


class Inbox:
    """Messages of beliefs until a tick's are complete."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[BeliefRows]] = {}
        self._newest = -1
        self._names: list[str] = []

    def put(self, rows: BeliefRows) -> None:
        """Take a message; one of a tick that is past is dropped."""
        if rows.tick_at_ns > self._newest:
            self._waiting.setdefault(rows.tick_at_ns, []).append(rows)

    def newest(self) -> tuple[Told, float] | None:
        """The newest complete beliefs since the last call, and the usual disagreement; None: there are none."""
        for tick in sorted(self._waiting, reverse=True):
            parts = self._waiting[tick]
            first: dict[str, int] = {}
            for k, name in enumerate(name for rows in parts for name in rows.names):
                first.setdefault(name, k)
            if len(first) == parts[0].clocks:
                self._newest = tick
                self._waiting = {t: rows for t, rows in self._waiting.items() if t > tick}
                return self._told(parts, first), parts[0].usual
        return None

    def _told(self, parts: list[BeliefRows], first: dict[str, int]) -> Told:
        """One table of all parts; a row that came twice counts once (`first`: place of each name's first)."""
        head = parts[0].beliefs
        b = Beliefs()
        b.origin_ns, b.at, b.lag_ns, b.place = head.origin_ns, head.at, head.lag_ns, head.place
        b.table.grow(len(first))
        pick = np.fromiter(first.values(), np.int64, len(first))
        for name in COLUMNS:
            b.table[name] = np.concatenate([rows.beliefs.table[name] for rows in parts])[pick]
        # the same list as long as the names are the same, so that they are looked up once
        names = list(first)
        self._names = self._names if names == self._names else names
        return Told(self._names, b)

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "newest": self._newest,
            "waiting": [
                [r.tick_at_ns, r.clocks, r.usual, r.names, r.beliefs.state()]
                for rows in self._waiting.values()
                for r in rows
            ],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self._newest, self._waiting = int(state["newest"]), {}
        for tick, clocks, usual, names, saved in state["waiting"]:
            b = Beliefs()
            b.load(saved)
            self._waiting.setdefault(int(tick), []).append(BeliefRows(int(tick), clocks, usual, list(names), b))
