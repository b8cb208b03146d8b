"""Sessions for coverage: every route between two attachments, and every NIC's own link, crossed in both directions.

An exchange crosses one route forward and one in reverse. Where routes are known by traces the fewest sessions that
cross all of them are chosen (`setcover`); where they are not, a block of source ports is tried, whose traces make them
known. NICs that are in no session by then are paired.

What the budgets cannot pay waits: NICs' own links come first, then attachments take turns (a window over all pairs
in an order of their own, moved on by a share of its length with every epoch), and what is left out is counted.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.plan import setcover, traces, units
from sdfstream.plan.clocks import NONE, ClockSessions, port_ranges, ports
from sdfstream.plan.config import PlanConfig
from sdfstream.plan.hashing import mixed, of_names, of_pair
from sdfstream.plan.inventory import Columns, Inventory
from sdfstream.records.units import Bools, Int64s

_ORDER, _TURN, _LINK, _PORT = range(31, 35)
_SLACK: Final = 0.8
"""Share of all rooms that is counted on: chance does not fill every host's to the brim."""
_PASSES: Final = 4
_PAIRED: Final = 8
"""Unused NICs are paired within groups of about so many, so that one more does not change all pairs."""


class Coverage(NamedTuple):
    """Sessions of one class by NIC number, (sessions,) each, and what they reach."""

    src: Int64s
    dst: Int64s
    path: Int64s
    unpaid: Int64s
    """(hosts,) sessions that this host was to send and that an end of it could not pay."""
    routes: int
    """Routes that traces have shown, both directions counted."""
    crossed: int
    """Routes crossed by a session."""
    pairs: int
    """Pairs of attachments."""
    pairs_known: int
    """Pairs of which all routes are known."""
    pairs_waiting: int
    """Pairs left for later epochs, for want of budget."""
    nics_unused: int
    """NICs in no session of this class."""


def sessions(
    c: Columns, inventory: Inventory, clock: ClockSessions, room: Int64s, config: PlanConfig, epoch: int, dscp: int
) -> Coverage:
    """The coverage of class `dscp`; `room` (hosts,) is how many sessions each can pay, and is drawn down.

    Raises nothing: what cannot be covered is counted.
    """
    pairs = units.of(c, inventory, config)
    known_by = traces.of(c, inventory, pairs, dscp)
    known = known_by.known(pairs)
    work = _Work(c, known_by, room)
    if config.clock_dscp == dscp:
        work.count(clock.src, clock.dst, clock.path)
    chosen = _in_turn(pairs, known_by, known, int(room.sum()) // 2, config, epoch)
    if not chosen.all():  # what is left is too little for all routes: every NIC's own link comes before them
        work.link(config.seed)
        chosen = _in_turn(pairs, known_by, known, int(room.sum()) // 2, config, epoch)
    work.fill(units.tries(c, pairs, np.flatnonzero(chosen & ~known), *port_ranges(c), config.seed))
    work.cover(chosen & known)
    work.link(config.seed)
    usable = known_by.unit_of_route >= 0
    src, dst, path = (
        (np.concatenate(column) if column else NONE for column in zip(*work.made, strict=True))
        if work.made
        else (NONE, NONE, NONE)
    )
    return Coverage(
        src, dst, path, work.unpaid,
        routes=int(usable.sum()),
        crossed=int((work.covered[: len(usable)] & usable).sum()),
        pairs=len(pairs.a),
        pairs_known=int(known.sum()),
        pairs_waiting=int((~chosen).sum()),
        nics_unused=int((~work.covered[len(usable) :]).sum()),
    )  # fmt: skip


def _in_turn(
    pairs: units.Units, known_by: traces.Traces, known: Bools, payable: int, config: PlanConfig, epoch: int
) -> Bools:
    """(units,) which pairs have their turn at `epoch`: all, if they can be paid."""
    n = len(pairs.a)
    per_route = np.bincount(known_by.unit_of_route[known_by.unit_of_route >= 0], minlength=n)
    need = np.where(known, np.maximum(per_route, 1), pairs.block)
    limit = int(payable * _SLACK) if need.sum() > payable * _SLACK else int(need.sum())
    if need.sum() <= limit:
        return np.ones(n, dtype=np.bool_)
    order = np.argsort(mixed(pairs.id, config.seed, _TURN), kind="stable")
    usual = max(1, int(n * limit / max(int(need.sum()), 1)))
    step = max(1, int(usual * config.redraw_share))
    order = np.roll(order, -(epoch * step % n))
    chosen = np.zeros(n, dtype=np.bool_)
    chosen[order[np.cumsum(need[order]) <= limit]] = True
    return chosen


class _Work:
    """What is crossed already, what was chosen so far, and what hosts can still pay."""

    def __init__(self, c: Columns, known_by: traces.Traces, room: Int64s) -> None:
        self._c, self._known_by, self._room = c, known_by, room
        self._routes = len(known_by.unit_of_route)
        self.covered: Bools = np.zeros(self._routes + len(c.nics), dtype=np.bool_)
        """Routes, and behind them the NICs' links."""
        self.made: list[tuple[Int64s, Int64s, Int64s]] = []
        self.unpaid: Int64s = np.zeros(len(c.hosts), dtype=np.int64)
        self._taken: Int64s = NONE
        self._ids = of_names([nic.id for nic in c.nics])

    def count(self, src: Int64s, dst: Int64s, path: Int64s) -> None:
        """These sessions are there, whoever asked for them."""
        self._taken = np.append(self._taken, traces.key(src, dst, path))
        self.covered[self._routes + np.concatenate([src, dst])] = True
        trace = self._known_by.find(src, dst, path)
        trace = trace[trace >= 0]
        crossed = np.concatenate([self._known_by.forward[trace], self._known_by.back[trace]])
        self.covered[crossed[crossed >= 0]] = True

    def fill(self, block: units.Block) -> None:
        """Try source ports between attachments whose routes are not known, as far as the hosts can pay."""
        keys = traces.key(block.src, block.dst, block.path)
        _, first = np.unique(keys, return_index=True)
        left = first[~np.isin(keys[first], self._taken)]
        ends = np.stack([self._c.host[block.src], self._c.host[block.dst]], axis=1)
        order = mixed(self._ids[block.src], self._ids[block.dst], block.path, _ORDER)
        for _ in range(_PASSES):
            paid = left[setcover.affordable(ends[left], order[left], self._room)]
            np.subtract.at(self._room, ends[paid].ravel(), 1)
            self._take(block.src[paid], block.dst[paid], block.path[paid])
            left = left[~np.isin(left, paid)]
            left = left[(self._room[ends[left]] > 0).all(axis=1)] if len(paid) else left
            if not len(paid):
                break
        made = np.isin(first, self._done(keys[first], first))
        np.add.at(self.unpaid, self._c.host[block.src[first[~made]]], 1)

    def cover(self, chosen: Bools) -> None:
        """Cross the routes of these pairs with the fewest sessions."""
        known_by = self._known_by
        mine = np.flatnonzero(chosen[known_by.unit]) if len(known_by.unit) else NONE
        mine = mine[~np.isin(traces.key(known_by.src[mine], known_by.dst[mine], known_by.path[mine]), self._taken)]
        src, dst, path = known_by.src[mine], known_by.dst[mine], known_by.path[mine]
        elements = np.stack(
            [known_by.forward[mine], known_by.back[mine], self._routes + src, self._routes + dst], axis=1
        )
        ends = np.stack([self._c.host[src], self._c.host[dst]], axis=1)
        order = mixed(self._ids[src], self._ids[dst], path, _ORDER)
        picked = setcover.cover(elements, self.covered, order, ends, self._room)
        self._take(src[picked], dst[picked], path[picked])

    def link(self, seed: int) -> None:
        """Pair the NICs that are in no session yet, so that every link to a host is crossed."""
        c = self._c
        for group in range(len(c.groups)):
            mine = np.flatnonzero(c.group == group)
            bare = mine[~self.covered[self._routes + mine]]
            if not len(bare) or len(np.unique(c.host[mine])) < 2:
                continue
            src, dst = self._partners(bare, mine)
            path = ports(c, src, mixed(of_pair(self._ids[src], self._ids[dst]), seed, _PORT))
            ends = np.stack([c.host[src], c.host[dst]], axis=1)
            paid = setcover.affordable(ends, mixed(self._ids[src], _ORDER), self._room)
            np.subtract.at(self._room, ends[paid].ravel(), 1)
            self._take(src[paid], dst[paid], path[paid])
            np.add.at(self.unpaid, c.host[np.delete(src, paid)], 1)

    def _partners(self, bare: Int64s, mine: Int64s) -> tuple[Int64s, Int64s]:
        """Pairs of NICs on different hosts in which each of `bare` stands once (a left-over one with any of `mine`)."""
        bits = max(0, int(np.log2(max(len(bare) // _PAIRED, 1))))
        ids = mixed(self._ids[bare], _LINK)
        order = bare[np.argsort(ids, kind="stable")]
        bucket = np.sort(ids) >> np.uint64(64 - bits) if bits else np.zeros(len(bare), np.uint64)
        found: list[tuple[int, int]] = []
        waiting: dict[int, int] = {}
        for nic, room in zip(order.tolist(), bucket.tolist(), strict=True):
            other = waiting.pop(room, -1)
            if other < 0:
                waiting[room] = nic
            elif self._c.host[other] != self._c.host[nic]:
                found.append((other, nic))
            else:
                found.append(self._any(other, mine))
                waiting[room] = nic
        found += [self._any(nic, mine) for nic in waiting.values()]
        ends = np.array(found, dtype=np.int64)
        return ends[:, 0], ends[:, 1]

    def _any(self, nic: int, mine: Int64s) -> tuple[int, int]:
        others = mine[self._c.host[mine] != self._c.host[nic]]
        return nic, int(others[np.argmin(of_pair(self._ids[others], self._ids[nic]))])

    def _take(self, src: Int64s, dst: Int64s, path: Int64s) -> None:
        if len(src):
            self.made.append((src, dst, path))
            self.count(src, dst, path)

    def _done(self, keys: Int64s, which: Int64s) -> Int64s:
        return which[np.isin(keys, self._taken)]
