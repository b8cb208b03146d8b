"""A scenario along time: conditions, queues, exchanges, agents; what it yields is what would be on the bus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from sdfstream.records.message import Event, Message
from sdfstream.records.topics import TOPOLOGY
from sdfstream.records.units import NS_PER_MS, NS_PER_S, Float64s
from sdfstream.twin import faults
from sdfstream.twin.agents import Agents, Outbox
from sdfstream.twin.clock_model import START_NS
from sdfstream.twin.clocks import Clocks
from sdfstream.twin.conditions import Conditions, calm
from sdfstream.twin.fabric import TwinFabric
from sdfstream.twin.jobs import TwinJobs
from sdfstream.twin.load import FluidFlows
from sdfstream.twin.probing import ProbeMesh, Prober
from sdfstream.twin.queues import CELL_NS, Cell, Queues
from sdfstream.twin.reported_flows import ReportedFlows
from sdfstream.twin.traces import AgentTraces

if TYPE_CHECKING:
    from sdfstream.twin.scenario import TwinScenario

_TRACE_NS: Final = 60 * NS_PER_S
LINKS_NS: Final = 100 * NS_PER_MS


class LinkTruth(NamedTuple):
    """What was true of every link direction; arrays are (links,)."""

    at_ns: int
    """Begin, true time since the start."""
    queue_bytes: Float64s
    """Standing queue."""
    random_bytes: Float64s
    """Mean of the random queue that packets meet besides."""
    busy: Float64s
    """Share of the speed in use."""


class Twin:
    """A scenario with a seed; the same two give the same messages, byte for byte.

    `messages` yields everything that enters the bus, in order, once; what was true stands in `faults`, `clocks` and
    `links` then.
    """

    def __init__(self, scenario: TwinScenario, seed: int, file: str = "scenario") -> None:
        self.scenario, self.seed = scenario, seed
        self.start_ns, self.seconds = START_NS, scenario.seconds
        draws = [np.random.Generator(np.random.PCG64([seed, n])) for n in range(8)]
        planned = TwinFabric(scenario.fabric, seed)
        self.fabric = TwinFabric(scenario.fabric, seed, faults.swapped(scenario.faults, planned, draws[7], file))
        self.sessions = ProbeMesh(self.fabric, scenario.probes, draws[0])
        self.faults = faults.draw(scenario.faults, self.fabric, self.sessions.crossed(), draws[1], file)
        self.clocks = Clocks(self.fabric.hosts, scenario.clocks, scenario.seconds, self.faults, draws[2])
        self.load = FluidFlows(scenario, self.fabric, draws[3])
        for fault in self.faults:
            if fault.spec.kind in ("incast", "bursts"):
                self.load.add_incast(self.fabric.nics.index(fault.target), fault.spec.senders)
        self.queues = Queues(self.fabric)
        self.block_ns = scenario.probes.flush_ms * NS_PER_MS
        phase_ns = draws[4].integers(0, self.block_ns, len(self.fabric.hosts))
        self.outbox = Outbox(self.start_ns, draws[5])
        self.prober = Prober(self.sessions, phase_ns, draws[4])
        self.agents = Agents(self.sessions, self.clocks, phase_ns, self.outbox)
        self.traces = AgentTraces(self.agents, np.random.Generator(np.random.PCG64([seed, 8])))
        self.jobs = TwinJobs(self.load, self.agents, draws[6])
        self.reported = ReportedFlows(self.load, self.agents) if scenario.known.flows else None
        self.links: list[LinkTruth] = []
        """What was true of every link direction, means of `LINKS_NS`."""
        self._sums: tuple[Float64s, Float64s, Float64s, int] | None = None
        self._cells: list[tuple[Cell, Float64s]] = []
        self._first_cell = 0
        self._flow_routes = self.fabric.routes(self.load.src, self.load.dst, self.load.hashes)
        self._routing: tuple[Any, Any] = (frozenset(), ((), ()))
        self._routes_id = 0
        self._retrace: list[tuple[int, list[int]]] = []
        self._retrace_flows: list[tuple[int, list[int]]] = []

    def messages(self) -> Iterator[Message]:
        """Everything that enters the bus, in order."""
        if self.scenario.known.topology:
            event = Event("sdf.state.topology.declared.v1", "twin", "declared", self.start_ns, self.fabric.declared())
            self.outbox.put(0, TOPOLOGY, "twin", event)
        if self.scenario.known.traces:
            self._retrace.append((NS_PER_S, list(range(len(self.sessions)))))
            self._retrace_flows.append((NS_PER_S, list(range(self.load.src.size))))
        end_ns = round(self.seconds * 1e9)
        for begin_ns in range(0, end_ns, self.block_ns):
            self._block(begin_ns, begin_ns + self.block_ns)
            yield from self.outbox.until(min(begin_ns + self.block_ns, end_ns))

    # -- one block --------------------------------------------------------------------------------------------------

    def _block(self, begin_ns: int, until_ns: int) -> None:
        self._advance(begin_ns, until_ns + self.block_ns)
        cells = [c for c, _ in self._cells]
        now = self._cells[(until_ns - 1) // CELL_NS - self._first_cell][0].now
        silent = now.down | now.mute
        late_s = np.where(now.busy, self.agents.outbox.rng.uniform(0, 0.3, now.busy.size), now.late_s)
        made = self.prober.block(begin_ns, until_ns, cells, self._first_cell, now.busy, now.down)
        self.agents.live(made, begin_ns, until_ns, now.down, silent, late_s)
        self.agents.publish(made, until_ns, silent, late_s)
        if self.scenario.known.counters:
            self.agents.read_ports(begin_ns, until_ns, now.ports, silent, late_s)
        if self.load.jobs:
            self.jobs.publish(begin_ns, until_ns, silent)
        if self.reported is not None:
            mine = range(begin_ns // CELL_NS, until_ns // CELL_NS)
            self.reported.publish([self._cells[n - self._first_cell][0].got for n in mine], until_ns, silent)
        elif self.load.jobs:
            for number in range(begin_ns // CELL_NS, until_ns // CELL_NS, 2):
                cell, asked = self._cells[number - self._first_cell]
                self.jobs.chunks(cell, asked, self._flow_routes, number * CELL_NS, silent)
        self._traces(until_ns, now)

    def _traces(self, until_ns: int, now: Conditions) -> None:
        if not self.scenario.known.traces:
            return
        self.traces.take_silent()
        self.traces.trace_silent(until_ns, now)
        if self.fabric.spec.hash == "spray" and until_ns > NS_PER_S:
            self._retrace.append((until_ns, self._due(until_ns)))
        elif until_ns % _TRACE_NS == 0:
            self._retrace.append((until_ns, list(range(len(self.sessions)))))
        while self._retrace and self._retrace[0][0] <= until_ns:
            at_ns, numbers = self._retrace.pop(0)
            self.traces.trace(numbers, max(at_ns, until_ns), now)
        while self.reported is not None and self._retrace_flows and self._retrace_flows[0][0] <= until_ns:
            at_ns, numbers = self._retrace_flows.pop(0)
            self.reported.trace(self._flow_routes, numbers, max(at_ns, until_ns), now.down | now.mute)

    def _due(self, until_ns: int) -> list[int]:
        """Sessions that are traced in this block, once a minute each: a trace shows one of its ways at one time."""
        first, last = (at_ns * len(self.sessions) // _TRACE_NS for at_ns in (until_ns - self.block_ns, until_ns))
        return [turn % len(self.sessions) for turn in range(first, last)]

    def _advance(self, begin_ns: int, until_ns: int) -> None:
        """Cells up to `until_ns`; those before `begin_ns` are forgotten."""
        gone = begin_ns // CELL_NS - self._first_cell
        self._cells, self._first_cell = self._cells[gone:], self._first_cell + gone
        while (self._first_cell + len(self._cells)) * CELL_NS < until_ns:
            number = self._first_cell + len(self._cells)
            now = self._conditions(number * CELL_NS / 1e9)
            self._reroute(number * CELL_NS, now)
            asked = self.load.asked(number * CELL_NS / 1e9, now)
            cell = self.queues.step(self._flow_routes, asked, now, self._routes_id)
            self.agents.count(cell, CELL_NS / 1e9)
            self._cells.append((cell, asked))
            self._remember(number, cell)

    def _conditions(self, at_s: float) -> Conditions:
        now = calm(self.fabric)
        for fault in self.faults:
            fault.act(at_s, now, self.fabric)
        return now

    def _reroute(self, at_ns: int, now: Conditions) -> None:
        """Switches choose anew when a direction is taken away or given back, or one hashes otherwise."""
        hashing = tuple(sorted(now.salts.items())), tuple(sorted(now.polarised.items()))
        wanted = (frozenset(now.away), hashing)
        if wanted == self._routing:
            return
        self._routing = wanted
        self.fabric.salts, self.fabric.polarised = dict(now.salts), dict(now.polarised)
        moved = self.sessions.reroute(at_ns, sorted(now.away))
        before, away = self._flow_routes, sorted(now.away)
        self._flow_routes = self.fabric.routes(self.load.src, self.load.dst, self.load.hashes, away)
        self._routes_id += 1
        if self.scenario.known.traces:
            shifted = np.flatnonzero((before != self._flow_routes).any(axis=1)).tolist()
            self._retrace_flows.append((at_ns + round(self.scenario.known.retrace_s * 1e9), shifted))
            self._retrace.append((at_ns + round(self.scenario.known.retrace_s * 1e9), moved.tolist()))
            self._retrace.sort(key=lambda x: x[0])

    def _remember(self, number: int, cell: Cell) -> None:
        queue, random, busy, n = self._sums or (*np.zeros((3, cell.busy.size)), 0)
        queue, random, busy, n = queue + cell.queue_bytes, random + cell.random_bytes, busy + cell.busy, n + 1
        self._sums = (queue, random, busy, n)
        if n == LINKS_NS // CELL_NS:
            means = ((column / n)[:-1] for column in (queue, random, busy))
            self.links.append(LinkTruth((number + 1) * CELL_NS - LINKS_NS, *means))
            self._sums = None
