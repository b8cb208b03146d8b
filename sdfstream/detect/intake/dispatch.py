"""Which engines take each message: one method per topic, and nothing is evaluated here.

============================  =======================================================================================
topic                         taken by
============================  =======================================================================================
``sdf.raw.probe.v1``          sessions, marks, liveness, loss runs; bus time, presence and producers of the sending host
``sdf.raw.liveness.v1``       liveness; bus time, presence and producers of the agent's host; degraded agents
``sdf.raw.port.v1``           presence (port states), flaps, ports, hops; of a switch: its ports, pauses of NICs
``sdf.derived.owd.v1``        delays
``sdf.state.clock.v1``        clocks, clock steps
``sdf.derived.qp.v1``         in-band, hops
``sdf.state.topology.v1``     cabling (declared, or a traced path), flows, miscabled, producers
``sdf.state.job.v1``          jobs
``sdf.control.override.v1``   learned causes (labels that operators ask for)
``sdf.control.outcome.v1``    learned causes (labels that the controller accepted)
============================  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sdfstream.detect.cabling import FWD, REV
from sdfstream.detect.engines import Engines
from sdfstream.detect.intake.delay_rows import DelayIntake
from sdfstream.detect.intake.probe_rows import ProbeIntake
from sdfstream.detect.intake.window_rows import WindowIntake
from sdfstream.detect.sessions import session_key
from sdfstream.errors import FormatError
from sdfstream.records import columns
from sdfstream.records.bustime import as_of_ns
from sdfstream.records.fabric import FLOW_TYPE, SILENT_TYPE, Topology, flow_from, host_of
from sdfstream.records.mesh import HOST_TYPE, host_here
from sdfstream.records.message import Event, Message
from sdfstream.records.producer import PRODUCER_TYPE, refused_producer
from sdfstream.records.switches import is_switch
from sdfstream.records.topics import CLOCK, JOB, LIVENESS, OUTCOME, OVERRIDE, OWD, PORT, PROBE, QP_WINDOW, TOPOLOGY


class Dispatch:
    """Messages into `Engines`."""

    reads: tuple[str, ...] = (
        PROBE.name,
        LIVENESS.name,
        PORT.name,
        OWD.name,
        CLOCK.name,
        TOPOLOGY.name,
        JOB.name,
        QP_WINDOW.name,
        OVERRIDE.name,
        OUTCOME.name,
    )

    def __init__(self, engines: Engines) -> None:
        self._counters, self._admit = engines.counters, engines.admit
        self._sessions, self._presence, self._bustime = engines.sessions, engines.presence, engines.bustime
        self._liveness, self._runs, self._marks = engines.liveness, engines.runs, engines.marks
        self._flaps, self._ports, self._recent = engines.flaps, engines.ports, engines.recent
        self._pauses, self._rates = engines.pauses, engines.rates
        self._switch_carriers, self._switch_errors = engines.switch_carriers, engines.switch_errors
        self._completeness, self._hops = engines.completeness, engines.hops
        self._degraded = engines.degraded
        self._cabling, self._flows, self._miscabled = engines.cabling, engines.flows, engines.miscabled
        self._producers = engines.producers
        self._clocks, self._clock_steps = engines.clocks, engines.clock_steps
        self._runs_of: dict[str, Callable[[Sequence[Message]], None]] = {
            PROBE.name: ProbeIntake(engines, lambda message: self._take_sign_of_life(message, message.key)).take,
            OWD.name: DelayIntake(
                engines, lambda message, newest_ns: self._as_of_ns("delays of", message, newest_ns)
            ).take,
            QP_WINDOW.name: WindowIntake(
                engines, lambda message, newest_ns: self._as_of_ns("queue pairs of", message, newest_ns)
            ).take,
        }
        self._batches: dict[str, Callable[[Message, pa.RecordBatch], None]] = {
            PORT.name: self._take_ports,
            CLOCK.name: self._take_clocks,
        }
        self._events: dict[str, Callable[[Message, Event], None]] = {
            LIVENESS.name: self._take_liveness,
            TOPOLOGY.name: self._take_topology,
            JOB.name: lambda message, event: engines.jobs.take(event.data, message.bus_at_ns),
            OVERRIDE.name: lambda _, event: engines.learned.take_override(event),
            OUTCOME.name: lambda _, event: engines.learned.take(event),
        }

    def takes_together(self, messages: Sequence[Message]) -> bool:
        """Whether messages of one topic that entered the bus within one slice are for `take_together`."""
        return messages[0].topic in self._runs_of and not any(isinstance(m.body, Event) for m in messages)

    def take_together(self, messages: Sequence[Message]) -> None:
        """Take messages for which `takes_together` says so; one that cannot be read is counted."""
        self._counters.add("received", messages[0].topic, len(messages))
        self._runs_of[messages[0].topic](messages)

    def take(self, message: Message) -> bool:
        """Take one message; True: it is news of silence, which is to be evaluated before the next boundary.

        Raises
        ------
        FormatError
            The message cannot be read.
        """
        self._counters.add("received", message.topic)
        topic, body = message.topic, message.body
        if isinstance(body, Event):
            if topic in self._events:
                self._events[topic](message, body)
            return topic == LIVENESS.name and not body.data.get("complete")
        if topic in self._runs_of:
            self._runs_of[topic]([message])
        elif topic in self._batches:
            self._batches[topic](message, body)
        else:
            raise FormatError("form", f"{topic} carries no batches")
        return False

    # -- record batches -----------------------------------------------------------------------------------------

    def _take_ports(self, message: Message, batch: pa.RecordBatch) -> None:
        at_ns = message.bus_at_ns
        if is_switch(message.boot_id):
            read_ns = self._made_ns("switch ports of", message, batch)
            self._switch_carriers.take(batch, read_ns)
            self._switch_errors.take(batch, at_ns)
            self._pauses.take_far(batch, read_ns, self._cabling.topology)
            return
        self._take_sign_of_life(message, message.key)
        read_ns = self._made_ns("ports of", message, batch)
        self._presence.take_ports(batch, read_ns)
        for nic in self._flaps.take_ports(batch, read_ns):
            self._recent.note(nic, read_ns, reported=True)
        self._ports.take(batch, at_ns)
        self._pauses.take(batch, read_ns)
        self._rates.take(batch, read_ns)
        self._hops.take_ports(batch)

    def _take_clocks(self, message: Message, batch: pa.RecordBatch) -> None:
        self._clocks.take(batch, message.bus_at_ns)
        self._clock_steps.take(batch, message.bus_at_ns)

    def _made_ns(self, of: str, message: Message, batch: pa.RecordBatch) -> int:
        """The instant of which a message's newest row speaks, bus time, where the message is late; else its own."""
        readings_ns = columns.values(batch, "at_ns")
        return self._as_of_ns(of, message, int(readings_ns.max()) if readings_ns.size else None)

    def _as_of_ns(self, of: str, message: Message, reading_ns: int | None) -> int:
        """`_made_ns` by the newest reading itself; None: the message has none."""
        at_ns = message.bus_at_ns
        if reading_ns is None:
            return at_ns
        clock = f"{of} {message.key}"
        self._bustime.note(clock, reading_ns, at_ns)
        return as_of_ns(self._bustime.of_one(clock, reading_ns, at_ns), at_ns)

    def _take_sign_of_life(self, message: Message, host: str) -> None:
        if self._presence.take_message(host, message.bus_at_ns, message.boot_id):
            for engine in (self._liveness, self._flaps, self._ports, self._pauses, self._rates):
                engine.restarted(host)

    # -- events -------------------------------------------------------------------------------------------------

    def _take_liveness(self, message: Message, event: Event) -> None:
        at_ns = message.bus_at_ns
        host = str(event.data.get("host") or message.key)
        self._take_sign_of_life(message, host)
        seen_at, said_ns = event.data.get("seen_at_ns"), at_ns
        if isinstance(seen_at, int):
            self._producers.take(host, message.boot_id, seen_at, at_ns)
            self._bustime.note(host, seen_at, at_ns)
            said_ns = self._bustime.of_one(host, seen_at, at_ns)
        self._presence.take_report(host, said_ns, at_ns, liveness=True)
        self._presence.take_limit(host, event.data.get("limit_ns"))
        self._presence.take_stopping(host, event.data.get("stopping"))
        self._liveness.take_statement(event.data, said_ns, at_ns)
        self._degraded.take(host, event.data, as_of_ns(said_ns, at_ns))
        self._admit()

    def _take_topology(self, message: Message, event: Event) -> None:
        data, at_ns = event.data, message.bus_at_ns
        if event.type == HOST_TYPE:
            self._producers.take_host(host_here(data), at_ns)
            return
        if event.type == PRODUCER_TYPE:
            self._producers.take_refused(refused_producer(data), at_ns)
            return
        if "links" in data:
            self._take_declared(data)
            return
        try:
            hops = [None if h is None else str(h) for h in data["hops"]]
            if event.type == FLOW_TYPE:
                flow = flow_from(dict(data))
                traced_ns = self._traced_ns(data, flow.src, at_ns)
                self._flows.take(flow, hops, traced_ns)
                self._miscabled.take(flow.src, flow.dst, hops, traced_ns)
                return
            key = session_key(data)
            direction = {"fwd": FWD, "rev": REV}[data.get("dir", "fwd")]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FormatError("topology-path", str(error)) from error
        slot = int(self._sessions.of_names([key], at_ns)[0])
        self._admit()
        sender, receiver = key[:2] if direction == FWD else (key[1], key[0])
        traced_ns = self._traced_ns(data, sender, at_ns)
        self._miscabled.take(sender, receiver, hops, traced_ns)
        if event.type == SILENT_TYPE:
            if slot >= 0 and direction == FWD:
                self._cabling.trace_silent(slot, hops, traced_ns)
            return
        if slot >= 0 and self._cabling.trace(slot, direction, hops, traced_ns):
            self._runs.wipe(np.array([slot]))  # what was lost so far was lost on the former route

    def _traced_ns(self, data: Mapping[str, Any], by: str, at_ns: int) -> int:
        """When a NIC's host made a trace, bus time."""
        traced = data.get("traced_at_ns")
        if not isinstance(traced, int) or not 0 <= traced < 1 << 62:
            return at_ns
        return self._bustime.of_one(host_of(by), traced, at_ns)

    def _take_declared(self, data: Mapping[str, Any]) -> None:
        topology = Topology(data).refuse("nics", "links", absent=False)
        self._cabling.declare(topology)
        self._miscabled.declare(topology)
        for nic in topology.nics:
            self._sessions.nic(nic)
