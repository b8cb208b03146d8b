"""The plan itself: inventory, settings and epoch in; sessions out. The same input gives the same plan.

Clocks come first: their graph always stands, at a lower rate where a host's budget asks for it. Coverage gets what is
left of each host's budget. A session costs its rate at both ends, since one probes and the other answers, so nobody
sends more than its budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sdfstream.plan import clocks, coverage
from sdfstream.plan.config import PlanConfig
from sdfstream.plan.inventory import Columns, Inventory, columns
from sdfstream.plan.twins import Twins, twins
from sdfstream.records.units import Float64s, Int64s

PURPOSES: Final = ("clock", "coverage")
CLOCK: Final = 0
COVERAGE: Final = 1
UDP: Final = 0
ROCEV2: Final = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """Sessions by NIC number of `columns`, (sessions,) each, sorted by sending NIC, clocks' first."""

    epoch: int
    columns: Columns
    src: Int64s
    dst: Int64s
    path: Int64s
    dscp: Int64s
    rate_hz: Float64s
    purpose: Int64s
    """Place in `PURPOSES`."""
    transport: Int64s
    """Place in `records.mesh.TRANSPORTS`."""
    budget_pps: Float64s
    """(hosts,)."""
    load_pps: Float64s
    """(hosts,) packets that a host sends, probes and answers."""
    clock_rate_hz: Float64s
    """(hosts,) lowest rate of its clock sessions; 0: it has none."""
    unpaid: Int64s
    """(hosts,) sessions for coverage left out for want of budget."""
    figures: Mapping[str, Any]
    """What the plan reaches as a whole."""


def draw(inventory: Inventory, config: PlanConfig, epoch: int) -> Plan:
    """Who probes whom at `epoch`.

    Examples
    --------
    >>> from sdfstream.plan.inventory import Nic
    >>> nics = tuple(Nic(f"h{i}/r0", f"h{i}", f"h{i}", f"10.0.0.{i}") for i in range(3))
    >>> plan = draw(Inventory(nics), PlanConfig(), 0)
    >>> int((plan.purpose == CLOCK).sum()), bool((plan.load_pps <= plan.budget_pps).all())
    (3, True)
    """
    c = columns(inventory, cross_rail=config.cross_rail)
    budget = np.array([inventory.budget(host) for host in c.hosts], dtype=np.float64)
    clock = clocks.sessions(c, budget, config, epoch)
    clock_load = _load(c, clock.src, clock.dst, clock.rate_hz)
    room = np.floor((budget - clock_load) / config.cover_rate_hz + 1e-9).astype(np.int64)
    room = np.maximum(room, 0)
    found = [coverage.sessions(c, inventory, clock, room, config, epoch, dscp) for dscp in config.cover_dscps]
    src, dst, path, dscp, rate, purpose = _joined(clock, found, config)
    more = twins(c, src, dst, path, dscp, budget - _load(c, src, dst, rate), config)
    by = np.repeat([UDP, ROCEV2], [len(src), len(more.src)])
    rate, purpose = (
        np.concatenate([column, np.full(len(more.src), value)])
        for column, value in ((rate, config.cover_rate_hz), (purpose, COVERAGE))
    )
    columns_ = ((src, more.src), (dst, more.dst), (path, more.path), (dscp, more.dscp))
    src, dst, path, dscp = (np.concatenate(both) for both in columns_)
    order = np.lexsort((path, dst, src, dscp, by, purpose))
    src, dst, path, dscp, rate, purpose, by = (x[order] for x in (src, dst, path, dscp, rate, purpose, by))
    slowest = _slowest(c, clock)
    return Plan(
        epoch=epoch,
        columns=c,
        src=src,
        dst=dst,
        path=path,
        dscp=dscp,
        rate_hz=rate,
        purpose=purpose,
        transport=by,
        budget_pps=budget,
        load_pps=_load(c, src, dst, rate),
        clock_rate_hz=np.where(np.isfinite(slowest), slowest, 0.0),
        unpaid=np.sum([one.unpaid for one in found], axis=0) if found else np.zeros(len(c.hosts), np.int64),
        figures={**_figures(c, clock, found, slowest, config), **_of_twins(more, config)},
    )


def _joined(clock: clocks.ClockSessions, found: list[coverage.Coverage], config: PlanConfig) -> tuple[Any, ...]:
    """Sessions for clocks and then those for coverage: NICs, path, DSCP, rate and purpose, (sessions,) each."""
    batches: list[tuple[Any, ...]] = [
        (clock.src, clock.dst, clock.path, config.clock_dscp, clock.rate_hz, CLOCK),
        *(
            (one.src, one.dst, one.path, dscp, config.cover_rate_hz, COVERAGE)
            for one, dscp in zip(found, config.cover_dscps, strict=True)
        ),
    ]
    return tuple(np.concatenate([np.broadcast_to(batch[i], len(batch[0])) for batch in batches]) for i in range(6))


def _slowest(c: Columns, clock: clocks.ClockSessions) -> Float64s:
    """(hosts,) lowest rate of each host's clock sessions; inf: it has none."""
    slowest = np.full(len(c.hosts), np.inf)
    for ends in (clock.src, clock.dst):
        np.minimum.at(slowest, c.host[ends], clock.rate_hz)
    return slowest


def _of_twins(more: Twins, config: PlanConfig) -> dict[str, int]:
    """Figures of RoCEv2 sessions; none where none are wanted."""
    if "rocev2" not in config.transports:
        return {}
    return {"rocev2_sessions": len(more.src), "rocev2_unpaid": more.unpaid}


def _load(c: Columns, src: Int64s, dst: Int64s, rate: Float64s) -> Float64s:
    """(hosts,) packets per second that each host sends: its probes, and its answers to others'."""
    n = len(c.hosts)
    found: Float64s = np.zeros(n)
    for ends in (src, dst):
        found += np.bincount(c.host[ends], rate, n)
    return found


def _figures(
    c: Columns, clock: clocks.ClockSessions, found: list[coverage.Coverage], slowest: Float64s, config: PlanConfig
) -> dict[str, Any]:
    wanted = min(config.degree, max(len(c.clocks) - 1, 0))
    return {
        "hosts": len(c.hosts),
        "nics": len(c.nics),
        "clocks": len(c.clocks),
        "groups": len(c.groups),
        "leaves": len(c.leaves),
        "degree_min": int(clock.degree.min(initial=len(c.clocks))) if len(clock.degree) else 0,
        "degree_max": int(clock.degree.max(initial=0)),
        "clock_sessions": len(clock.src),
        "coverage_sessions": sum(len(one.src) for one in found),
        "clocks_below_degree": int((clock.degree < wanted).sum()),
        "hosts_slowed": int((slowest < config.clock_rate_hz).sum()),
        "islands": clock.islands,
        "joints": clock.joints,
        "ways_known": sum(one.routes for one in found),
        "ways_crossed": sum(one.crossed for one in found),
        "pairs": sum(one.pairs for one in found),
        "pairs_known": sum(one.pairs_known for one in found),
        "pairs_waiting": sum(one.pairs_waiting for one in found),
        "sessions_unpaid": int(sum(int(one.unpaid.sum()) for one in found)),
        "nics_unused": sum(one.nics_unused for one in found),
    }
