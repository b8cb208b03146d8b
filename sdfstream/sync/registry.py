"""Who probes whom: names to small integers, so that everything after is arithmetic on arrays.

Numbers are given in the order in which names first appear in accepted rows, so that the state does not depend on how
the stream was cut into batches.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_SPARE_BITS: Final = 2
"""Four to eight places in the table for each key."""


class Pair(NamedTuple):
    """Everything that names a session except its class and its path selector."""

    src: str
    dst: str
    transport: str
    clock_src: str
    clock_dst: str


class Directory:
    """int64 keys to consecutive slots 0, 1, 2, …: a hash table says which slot it must be if it is any.

    Of keys that fall on one place of the table the newest is found there, the others by binary search.
    """

    def __init__(self) -> None:
        self.load(np.empty(0, dtype=np.int64))

    def slots(self, keys: Int64s) -> tuple[Int64s, Int64s]:
        """Slot of each key, adding unknown keys in order of first appearance; and the positions in `keys` of those."""
        if not self.keys.size:
            return self._add(keys, np.arange(keys.size))
        slot = self._guess[self._place(keys)].astype(np.int64)
        miss = np.flatnonzero(self.keys[slot] != keys)
        if not miss.size:
            return slot, miss
        at = np.minimum(np.searchsorted(self._sorted, keys[miss]), self.keys.size - 1)
        slot[miss] = self._slot[at]
        unknown = miss[self._sorted[at] != keys[miss]]
        return self._add(keys, unknown) if unknown.size else (slot, unknown)

    def _add(self, keys: Int64s, unknown: Int64s) -> tuple[Int64s, Int64s]:
        _, first = np.unique(keys[unknown], return_index=True)
        fresh = unknown[np.sort(first)]
        self.load(np.concatenate([self.keys, keys[fresh]]))
        return self._slot[np.searchsorted(self._sorted, keys)], fresh

    def _place(self, keys: Int64s) -> npt.NDArray[np.uint64]:
        result: npt.NDArray[np.uint64] = (keys.view(np.uint64) * _MIX) >> self._shift
        return result

    def load(self, keys: Int64s) -> None:
        """Take up saved `keys`, slot by slot."""
        self.keys: Int64s = keys
        """Key of each slot."""
        self._slot: Int64s = np.argsort(keys, kind="stable")
        self._sorted: Int64s = keys[self._slot]
        bits = keys.size.bit_length() + _SPARE_BITS
        self._shift = np.uint64(64 - bits)
        self._guess = np.zeros(1 << bits, dtype=np.int32)
        self._guess[self._place(keys)] = np.arange(keys.size)


class Registry:
    """Clocks, pairs, sessions (pair, class, path selector) and paths (a session without its clocks)."""

    def __init__(self) -> None:
        self.clocks: list[str] = []
        self.pairs: list[Pair] = []
        self._clock: dict[str, int] = {}
        self._pair: dict[Pair, int] = {}
        self._route: dict[tuple[str, str, str], int] = {}
        self.pair_clock_src: Int64s = np.empty(0, dtype=np.int64)
        self.pair_clock_dst: Int64s = np.empty(0, dtype=np.int64)
        self.pair_route: Int64s = np.empty(0, dtype=np.int64)
        self.routes: list[tuple[str, str, str]] = []
        self._rank: Int64s = np.empty(0, dtype=np.int64)
        self.sessions = Directory()
        self.paths = Directory()

    def numbers(self, names: list[tuple[str, ...]]) -> list[int]:
        """Number of each pair named in full, as `pair` gives them."""
        # a plain tuple finds the pair that equals it: no named ones are made for those known
        known = [self._pair.get(n) for n in names]  # type: ignore[call-overload]
        return [self.pair(Pair(*n)) if k is None else k for k, n in zip(known, names, strict=True)]

    def pair(self, pair: Pair) -> int:
        """Number of a pair, given on first sight together with numbers for its clocks and its route."""
        number = self._pair.get(pair)
        if number is None:
            number = self._add_pair(pair)
        return number

    def _add_pair(self, pair: Pair) -> int:
        number = len(self.pairs)
        self._pair[pair] = number
        self.pairs.append(pair)
        self.pair_clock_src = np.append(self.pair_clock_src, self.clock(pair.clock_src))
        self.pair_clock_dst = np.append(self.pair_clock_dst, self.clock(pair.clock_dst))
        route = (pair.src, pair.dst, pair.transport)
        if route not in self._route:
            self._route[route] = len(self.routes)
            self.routes.append(route)
        self.pair_route = np.append(self.pair_route, self._route[route])
        return number

    def clock(self, name: str) -> int:
        """Number of a clock, given on first sight."""
        if name not in self._clock:
            self._clock[name] = len(self.clocks)
            self.clocks.append(name)
        return self._clock[name]

    def rank(self) -> Int64s:
        """Place of each clock's name in the sorted names."""
        if self._rank.size != len(self.clocks):
            self._rank = np.argsort(np.argsort(np.array(self.clocks)))
        return self._rank

    def forget(self, sessions: npt.NDArray[np.bool_], clocks: npt.NDArray[np.bool_]) -> tuple[Int64s, Int64s]:
        """Keep only the sessions and clocks whose mask is True; all others' numbers close up.

        A kept session's clocks must be kept. Returns the old numbers of the kept pairs and of the kept paths.
        """
        kept_keys = self.sessions.keys[sessions]
        old_pairs = np.unique(kept_keys >> 40)
        routes_of_paths = self.pair_route[kept_keys >> 40]
        path_keys = (routes_of_paths << 40) | (kept_keys & ((1 << 40) - 1))
        old_paths = np.flatnonzero(np.isin(self.paths.keys, path_keys))
        kept_paths = self.paths.keys[old_paths]
        old_routes = self.routes
        names = [name for name, keep in zip(self.clocks, clocks, strict=True) if keep]
        pairs = [self.pairs[i] for i in old_pairs.tolist()]
        saved = self.__dict__
        fresh = Registry()
        for name in names:
            fresh.clock(name)
        for pair in pairs:
            fresh.pair(pair)
        new_pair = np.searchsorted(old_pairs, kept_keys >> 40)
        fresh.sessions.load((new_pair << 40) | (kept_keys & ((1 << 40) - 1)))
        new_route = np.array([fresh._route[old_routes[r]] for r in (kept_paths >> 40).tolist()], dtype=np.int64)
        fresh.paths.load((new_route << 40) | (kept_paths & ((1 << 40) - 1)))
        saved.update(fresh.__dict__)
        return old_pairs, old_paths

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "clocks": self.clocks,
            "pairs": [list(p) for p in self.pairs],
            "sessions": self.sessions.keys,
            "paths": self.paths.keys,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self.__dict__.update(Registry().__dict__)
        for name in state["clocks"]:
            self.clock(name)
        for pair in state["pairs"]:
            self.pair(Pair(*pair))
        self.sessions.load(state["sessions"])
        self.paths.load(state["paths"])
