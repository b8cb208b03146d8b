"""Sessions for the clocks: the graph's edges, each put on a pair of NICs and given a rate that both ends can pay."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.plan import domains, rings
from sdfstream.plan.config import PlanConfig
from sdfstream.plan.hashing import UInt64s, mixed, of_names, of_pair
from sdfstream.plan.inventory import Columns
from sdfstream.records.units import Bools, Float64s, Int64s

_GROUP, _NIC, _PORT = range(11, 14)
NONE: Final[Int64s] = np.empty(0, np.int64)


class ClockSessions(NamedTuple):
    """Sessions by NIC number; (sessions,) each."""

    src: Int64s
    dst: Int64s
    path: Int64s
    rate_hz: Float64s
    degree: Int64s
    """(clocks,) peers of each clock."""
    islands: int
    joints: int


def sessions(c: Columns, budget_pps: Float64s, config: PlanConfig, epoch: int) -> ClockSessions:
    """The clocks' sessions at `epoch`; `budget_pps` is by host number."""
    if not c.clocks:
        return ClockSessions(NONE, NONE, NONE, np.empty(0), NONE, 0, 0)
    table = _Table.of(c)
    division = domains.split(table.many > 0)
    ids = of_names(c.clocks)
    found = [_joined(domain, ids, table, config, epoch) for domain in division.all]
    a, b, group = (np.concatenate(columns) for columns in zip(*found, strict=True))
    a, b, group = _once(a, b, group, len(c.clocks))
    apart = ~table.same_host(a, b)
    a, b, group = a[apart], b[apart], group[apart]  # a host ties its own clocks together without the network
    pair = of_pair(ids[a], ids[b])
    src, dst = table.pick(a, group, pair), table.pick(b, group, pair)
    path = ports(c, src, mixed(pair, config.seed, _PORT))
    near, far = c.host[src], c.host[dst]
    rate = affordable(near, far, budget_pps, config.clock_rate_hz)
    degree = np.bincount(np.concatenate([a, b]), minlength=len(c.clocks))
    return ClockSessions(src, dst, path, rate, degree, division.islands, division.joints)


def ports(c: Columns, src: Int64s, chance: UInt64s) -> Int64s:
    """A source port out of each sending NIC's range, by chance."""
    first, many = port_ranges(c)
    return first[src] + (chance % many[src].astype(np.uint64)).astype(np.int64)


def port_ranges(c: Columns) -> tuple[Int64s, Int64s]:
    """(n,) first source port of each NIC, and how many it has."""
    first = np.array([nic.first_port for nic in c.nics], dtype=np.int64)
    return first, np.array([nic.ports for nic in c.nics], dtype=np.int64)


def affordable(near: Int64s, far: Int64s, budget_pps: Float64s, wanted_hz: float) -> Float64s:
    """(sessions,) rates that fit the budgets of both ends: `wanted_hz`, or that halved as often as it takes.

    A session costs its rate at both ends: one probes, the other answers. Rates come from a short ladder, so that a
    host more or less changes few of them.
    """
    many = np.bincount(near, minlength=len(budget_pps)) + np.bincount(far, minlength=len(budget_pps))
    share = budget_pps / np.maximum(many, 1)
    room = np.minimum(share[near], share[far])
    halvings = np.ceil(np.log2(np.maximum(wanted_hz / np.maximum(room, 1e-9), 1.0)) - 1e-9)
    result: Float64s = wanted_hz / 2.0**halvings
    return result


def _joined(
    domain: domains.Domain, ids: UInt64s, table: _Table, config: PlanConfig, epoch: int
) -> tuple[Int64s, Int64s, Int64s]:
    """Edges of one domain and the group that carries each: of those that both ends are in, one by chance."""
    # two domains that share clocks must not draw the same rings
    whole = len(domain.groups) > 1
    seed = config.seed if whole else int(mixed(config.seed, table.group_ids[domain.groups[0]])[0] >> np.uint64(1))
    edges = rings.graph(ids[domain.clocks], config.degree, seed, epoch, config.redraw_share)
    a, b = domain.clocks[edges.a], domain.clocks[edges.b]
    chance = mixed(of_pair(ids[a], ids[b])[:, None], table.group_ids[domain.groups][None, :], _GROUP)
    can = (table.many[a][:, domain.groups] > 0) & (table.many[b][:, domain.groups] > 0)
    chance = np.where(can, chance, np.iinfo(np.uint64).max)
    return a, b, domain.groups[np.argmin(chance, axis=1)] if len(a) else NONE


def _once(a: Int64s, b: Int64s, group: Int64s, n: int) -> tuple[Int64s, Int64s, Int64s]:
    """Two domains may share two clocks; one session between them is enough."""
    _, first = np.unique(np.minimum(a, b) * n + np.maximum(a, b), return_index=True)
    first.sort()
    return a[first], b[first], group[first]


class _Table(NamedTuple):
    """NICs by clock and group."""

    many: Int64s
    """(clocks, groups)."""
    first: Int64s
    order: Int64s
    """NIC numbers sorted by clock and group; those of one cell begin at `first`."""
    group_ids: UInt64s
    host: Int64s
    """(clocks,) where each clock is."""

    @classmethod
    def of(cls, c: Columns) -> _Table:
        cell = c.clock * len(c.groups) + c.group
        count = np.bincount(cell, minlength=len(c.clocks) * len(c.groups))
        first = np.cumsum(count) - count
        shape = (len(c.clocks), len(c.groups))
        order = np.argsort(cell, kind="stable")
        host = np.zeros(len(c.clocks), dtype=np.int64)
        host[c.clock] = c.host
        return cls(count.reshape(shape), first.reshape(shape), order, of_names(c.groups), host)

    def same_host(self, a: Int64s, b: Int64s) -> Bools:
        """Whether both clocks are on one host."""
        result: Bools = self.host[a] == self.host[b]
        return result

    def pick(self, clock: Int64s, group: Int64s, chance: UInt64s) -> Int64s:
        """A NIC of each clock in each group; one of several by chance."""
        many = self.many[clock, group]
        return self.order[self.first[clock, group] + (mixed(chance, _NIC) % many.astype(np.uint64)).astype(np.int64)]
