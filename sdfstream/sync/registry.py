"""Sessions, paths and clocks by number, so that everything after is arithmetic on arrays.

Numbers are given in the order in which names first appear in accepted rows, so that the state does not depend on how
the stream was cut into batches. Sessions and clocks are forgotten after long silence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.table import KeyIndex, Table
from sdfstream.records.units import ABSENT_NS, Bools, Int64s
from sdfstream.stats import Counters
from sdfstream.sync.estimates import ClockEstimates
from sdfstream.sync.intake import AcceptedExchanges
from sdfstream.sync.pairs import PairKeys, SessionEnds
from sdfstream.sync.sessions import session_table


class Registry:
    """Clocks, pairs, sessions (pair, class, path selector) and paths (a session without its clocks)."""

    def __init__(self) -> None:
        self.clocks: list[str] = []
        self.pairs: list[SessionEnds] = []
        self._clock: dict[str, int] = {}
        self._pair: dict[SessionEnds, int] = {}
        self._endpoints: dict[tuple[str, str, str], int] = {}
        self.pair_clock_src: Int64s = np.empty(0, dtype=np.int64)
        self.pair_clock_dst: Int64s = np.empty(0, dtype=np.int64)
        self.pair_endpoints: Int64s = np.empty(0, dtype=np.int64)
        self.endpoints: list[tuple[str, str, str]] = []
        self.sessions = KeyIndex()
        self.paths = KeyIndex()

    def pair(self, pair: SessionEnds) -> int:
        """Number of a pair, given on first sight together with numbers for its clocks and its route."""
        number = self._pair.get(pair)
        if number is None:
            number = self._add_pair(pair)
        return number

    def _add_pair(self, pair: SessionEnds) -> int:
        number = len(self.pairs)
        self._pair[pair] = number
        self.pairs.append(pair)
        self.pair_clock_src = np.append(self.pair_clock_src, self.clock(pair.clock_src))
        self.pair_clock_dst = np.append(self.pair_clock_dst, self.clock(pair.clock_dst))
        ends = (pair.src, pair.dst, pair.transport)
        if ends not in self._endpoints:
            self._endpoints[ends] = len(self.endpoints)
            self.endpoints.append(ends)
        self.pair_endpoints = np.append(self.pair_endpoints, self._endpoints[ends])
        return number

    def clock(self, name: str) -> int:
        """Number of a clock, given on first sight."""
        if name not in self._clock:
            self._clock[name] = len(self.clocks)
            self.clocks.append(name)
        return self._clock[name]

    def forget(self, sessions: npt.NDArray[np.bool_], clocks: npt.NDArray[np.bool_]) -> tuple[Int64s, Int64s]:
        """Keep only the sessions and clocks whose mask is True; all others' numbers close up.

        The clocks of a session that stays must stay. Returns the old numbers of the pairs and paths that stay.
        """
        retained_keys = self.sessions.keys[sessions]
        old_pairs = np.unique(retained_keys >> 40)
        endpoints_of_paths = self.pair_endpoints[retained_keys >> 40]
        path_keys = (endpoints_of_paths << 40) | (retained_keys & ((1 << 40) - 1))
        old_paths = np.flatnonzero(np.isin(self.paths.keys, path_keys))
        retained_paths = self.paths.keys[old_paths]
        old_endpoints = self.endpoints
        names = [name for name, keep in zip(self.clocks, clocks, strict=True) if keep]
        pairs = [self.pairs[i] for i in old_pairs.tolist()]
        saved = self.__dict__
        fresh = Registry()
        for name in names:
            fresh.clock(name)
        for pair in pairs:
            fresh.pair(pair)
        new_pair = np.searchsorted(old_pairs, retained_keys >> 40)
        fresh.sessions.fill((new_pair << 40) | (retained_keys & ((1 << 40) - 1)))
        new_endpoints = np.array(
            [fresh._endpoints[old_endpoints[r]] for r in (retained_paths >> 40).tolist()], dtype=np.int64
        )
        fresh.paths.fill((new_endpoints << 40) | (retained_paths & ((1 << 40) - 1)))
        saved.update(fresh.__dict__)
        return old_pairs, old_paths

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "clocks": self.clocks,
            "pairs": list(self.pairs),  # as lists in JSON
            "sessions": self.sessions.keys,
            "paths": self.paths.keys,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self.__dict__.update(Registry().__dict__)
        for name in state["clocks"]:
            self.clock(name)
        for pair in state["pairs"]:
            self.pair(SessionEnds(*pair))
        self.sessions.fill(state["sessions"])
        self.paths.fill(state["paths"])


UInt32s = npt.NDArray[np.uint32]
_SLOTS = 64


class DuplicateFilter:
    """A row is a repeat when the session's previous row of the same seq mod 64 had the same seq and t1.

    So a repeat is recognised while fewer than 64 further probes of its session came in between (4 s at 16/s). The
    mark is 32 bits of a hash: one fresh row in 4·10⁹ is taken for a repeat. 256 bytes per session.
    """

    def __init__(self) -> None:
        self._marks: UInt32s = np.zeros(0, dtype=np.uint32)
        self._owner: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)

    def grow(self, sessions: int) -> None:
        """Room for `sessions` sessions in all."""
        need = sessions * _SLOTS
        if self._marks.size < need:
            size = max(need, 2 * self._marks.size)
            marks = np.zeros(size, dtype=np.uint32)
            marks[: self._marks.size] = self._marks
            self._marks = marks
            self._owner = np.zeros(size, dtype=np.int32)

    def repeats(self, session: Int64s, seq: Int64s, t1_ns: Int64s) -> Bools:
        """Which rows are repeats; remembers all of them. Cutting the rows into calls anywhere changes nothing."""
        slot = session * _SLOTS + (seq & (_SLOTS - 1))
        mixed = (t1_ns.view(np.uint64) + seq.view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mark = (mixed >> np.uint64(32)).astype(np.uint32) | np.uint32(1)
        rows = np.arange(slot.size, dtype=np.int32)
        self._owner[slot] = rows
        result: Bools
        if np.array_equal(self._owner[slot], rows):
            result = self._marks[slot] == mark
            self._marks[slot] = mark
            return result
        order = np.argsort(slot, kind="stable")
        slots, marks = slot[order], mark[order]
        first = np.empty(slots.size, dtype=np.bool_)
        first[0] = True
        np.not_equal(slots[1:], slots[:-1], out=first[1:])
        before = np.empty_like(marks)
        before[1:] = marks[:-1]
        before[first] = self._marks[slots[first]]
        last = np.append(first[1:], True)
        self._marks[slots[last]] = marks[last]
        result = np.empty(slots.size, dtype=np.bool_)
        result[order] = before == marks
        return result

    def keep(self, sessions: Bools) -> None:
        """Forget the sessions whose mask is False; the others close up."""
        retained = self._marks[: sessions.size * _SLOTS].reshape(-1, _SLOTS)[sessions].ravel()
        self._marks = retained.copy()
        self._owner = np.zeros(retained.size, dtype=np.int32)

    def snapshot(self, sessions: int) -> UInt32s:
        """The marks of the first `sessions` sessions."""
        return self._marks[: sessions * _SLOTS]

    def restore(self, marks: UInt32s) -> None:
        """Take up what `snapshot` gave."""
        self._marks = marks.copy()
        self._owner = np.zeros(marks.size, dtype=np.int32)


def path_table() -> Table:
    """One row per path: its floor, ns, a value per direction."""
    return Table(
        {"floor_since_ns": np.int64(-(1 << 62))},
        {"floor_ns": np.full(2, np.inf), "floor_before_ns": np.full(2, np.inf)},
    )


class Roster:
    """The tables whose rows are sessions and paths, and the names behind all numbers.

    Attributes
    ----------
    registry : Registry
    sessions, paths : Table
    hello : dict
        First stamp minus bus time of clocks that have no base yet, ns: the newest wins.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.registry = Registry()
        self.sessions = session_table()
        self.paths = path_table()
        self.new_bases_ns: dict[str, int] = {}
        self._duplicates = DuplicateFilter()
        self._pair_keys = PairKeys()

    def number(self, x: AcceptedExchanges, estimates: ClockEstimates) -> Int64s:
        """Session of each row; new sessions, paths and clocks are entered."""
        registry, table = self.registry, self.sessions
        pair = self._pairs(x)
        rest = (x.dscp << 32) | x.path
        session, fresh = registry.sessions.add_new((pair << 40) | rest)
        if fresh.size:
            start = table.rows
            table.grow(fresh.size)
            pairs = pair[fresh]
            table["pair"][start:] = pairs
            table["clock_src"][start:] = registry.pair_clock_src[pairs]
            table["clock_dst"][start:] = registry.pair_clock_dst[pairs]
            path, new_paths = registry.paths.add_new((registry.pair_endpoints[pairs] << 40) | rest[fresh])
            table["path"][start:] = path
            self.paths.grow(new_paths.size)
            self._duplicates.grow(table.rows)
        table["seen_at_ns"][session] = x.bus_at_ns - estimates.origin_ns
        if len(registry.clocks) > estimates.table.rows or estimates.unbased:
            self._note_bases(x, session, estimates)
        return session

    def _pairs(self, x: AcceptedExchanges) -> Int64s:
        """The registry's number of each row's pair."""
        keys = self._pair_keys
        number, fresh = keys.of(x.ends)
        if fresh.size:
            new = [self.registry.pair(x.ends.row(row)) for row in fresh.tolist()]
            keys.number = np.append(keys.number, np.array(new, dtype=np.int64))
        result: Int64s = keys.number[number]
        return result

    def _note_bases(self, x: AcceptedExchanges, session: Int64s, estimates: ClockEstimates) -> None:
        """Note the newest stamp of every clock that the mesh has not given a base yet."""
        missing = len(self.registry.clocks) - estimates.table.rows
        if missing > 0:
            estimates.table.grow(missing)
        src, dst = self.sessions["clock_src"][session], self.sessions["clock_dst"][session]
        for clock in np.flatnonzero(~estimates.table["based"]).tolist():
            name = self.registry.clocks[clock]
            for end, stamps in ((src, x.t4_ns), (src, x.t1_ns), (dst, x.t2_ns)):
                rows = (end == clock) & (stamps != ABSENT_NS)
                if rows.any():
                    base = int((stamps[rows] - x.bus_at_ns[rows]).max())
                    self.new_bases_ns[name] = max(base, self.new_bases_ns.get(name, base))

    def repeats(self, session: Int64s, x: AcceptedExchanges) -> Bools:
        """Rows that were there before."""
        repeat = self._duplicates.repeats(session, x.seq, x.t1_ns)
        self._counters.add("repeated", n=int(repeat.sum()))
        return repeat

    def silent(self, before: float) -> tuple[Bools, Bools] | None:
        """Masks of the sessions and clocks to keep; None unless some, but not all, have been silent since `before`."""
        keep = self.sessions["seen_at_ns"] >= before
        if keep.all() or not keep.any():
            return None
        clocks = np.zeros(len(self.registry.clocks), dtype=np.bool_)
        for end in ("clock_src", "clock_dst"):
            clocks[self.sessions[end][keep]] = True
        return keep, clocks

    def forget(self, keep: Bools, clocks: Bools) -> Int64s:
        """Drop what the masks do not keep; returns the old numbers of the paths that stay, ascending."""
        table = self.sessions
        self._counters.add("forgotten", "sessions", int((~keep).sum()))
        self._counters.add("forgotten", "clocks", int((~clocks).sum()))
        old_pairs, old_paths = self.registry.forget(keep, clocks)
        self._pair_keys.clear()
        self._duplicates.keep(keep)
        table.keep(keep)
        number = np.cumsum(clocks) - 1
        table["pair"] = np.searchsorted(old_pairs, table["pair"])
        table["path"] = np.searchsorted(old_paths, table["path"])
        for end in ("clock_src", "clock_dst"):
            table[end] = number[table[end]]
        retained = np.zeros(self.paths.rows, dtype=np.bool_)
        retained[old_paths] = True
        self.paths.keep(retained)
        return old_paths

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "registry": self.registry.snapshot(),
            "sessions": self.sessions.snapshot(),
            "paths": self.paths.snapshot(),
            "hello": self.new_bases_ns,
            "seen": self._duplicates.snapshot(self.sessions.rows),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self.registry.restore(state["registry"])
        self._pair_keys.clear()
        self.sessions.restore(state["sessions"])
        self.paths.restore(state["paths"])
        self.new_bases_ns = {name: int(base) for name, base in state["hello"].items()}
        self._duplicates.restore(state["seen"])
