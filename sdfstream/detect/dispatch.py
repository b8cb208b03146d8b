"""What each message tells the detectors' engines. Nothing is judged here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.detect.bustime import Ints
from sdfstream.detect.cabling import FWD, REV
from sdfstream.detect.engines import Engines
from sdfstream.detect.intake import conform
from sdfstream.errors import FormatError
from sdfstream.records import columns
from sdfstream.records.fabric import host_of
from sdfstream.records.flow import FLOW_TYPE, flow_from
from sdfstream.records.hostclock import paths_only
from sdfstream.records.mesh import HOST_TYPE
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import CLOCK, JOB, LIVENESS, OWD, PORT, PROBE, QP_WINDOW, TOPICS, TOPOLOGY
from sdfstream.records.topology import Topology
from sdfstream.records.units import ABSENT_NS


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
    )

    def __init__(self, engines: Engines) -> None:
        self._on = engines

    def take(self, message: Message) -> bool:
        """Take one message; True: it is news of silence, which should be judged before the next boundary.

        Raises
        ------
        FormatError
            It cannot be read.
        """
        self._on.counters.add("received", message.topic)
        body, at_ns = message.body, message.bus_at_ns
        if isinstance(body, Event):
            return self._take_event(message, body, at_ns)
        schema = TOPICS[message.topic].columns if message.topic in self.reads else None
        if schema is None:
            raise FormatError("form", f"{message.topic} carries no batches")
        self._take_bulk(message, conform(body, schema, self._on.counters), at_ns)
        return False

    def _take_bulk(self, message: Message, batch: pa.RecordBatch, at_ns: int) -> None:
        if message.topic == PROBE.name:
            self._take_sign_of_life(message, message.key)
            self._take_probes(paths_only(batch), at_ns)
        elif message.topic == PORT.name:
            self._take_sign_of_life(message, message.key)
            self._on.presence.take_ports(batch, at_ns)
            for nic in self._on.flaps.take_ports(batch, at_ns):
                self._on.recent.note(nic, at_ns)
            self._on.ports.take(batch, at_ns)
        elif message.topic == OWD.name:
            self._on.delays.take(batch, at_ns)
        elif message.topic == CLOCK.name:
            self._on.clocks.take(batch, at_ns)
        elif message.topic == QP_WINDOW.name:
            self._on.inband.take(batch, at_ns)

    def _take_probes(self, batch: pa.RecordBatch, at_ns: int) -> None:
        slots = self._on.sessions.of_batch(batch, "dscp_sent", at_ns)
        self._on.sessions.note_planes(batch, slots)
        self._on.admit()
        seq = columns.values(batch, "seq").astype(np.int64)
        t1_ns = columns.values(batch, "t1_ns")
        answered = columns.instants(batch, "t4_ns") != ABSENT_NS
        known = slots >= 0
        self._on.counters.add("refused", "probe-row", int((~known).sum()))
        self._on.marks.take_rows(batch, slots, at_ns)
        slots, seq, answered = slots[known], seq[known], answered[known]
        seen_ns = self._seen(batch, at_ns)[known]
        self._on.liveness.take_rows(slots, seq, t1_ns[known], answered, seen_ns, at_ns)
        self._on.runs.take_rows(slots, seq, answered, at_ns)

    def _seen(self, batch: pa.RecordBatch, at_ns: int) -> Ints:
        """When each exchange ended, bus time: its answer, or for want of one the probe's sending."""
        t4_ns = columns.instants(batch, "t4_ns")
        ended_ns = np.where(t4_ns == ABSENT_NS, columns.values(batch, "t1_ns"), t4_ns)
        src, nics = columns.coded(batch, "src")
        clock, clocks = columns.coded(batch, "clock_src")
        seen_ns = np.full(batch.num_rows, at_ns, np.int64)
        for number, mine in _by_code(clock):
            name, nic = clocks[number].as_py(), nics[int(src[mine][0])].as_py()
            if name is None or nic is None:
                continue
            self._on.bustime.note(name, int(ended_ns[mine].max()), at_ns)
            seen_ns[mine] = self._on.bustime.of(name, ended_ns[mine], at_ns)
            self._on.presence.take_report(host_of(nic), int(seen_ns[mine].max()), at_ns)
        return seen_ns

    def _said(self, host: str, seen_at: object, at_ns: int) -> int:
        """When an agent said something that its own clock dates `seen_at`, bus time."""
        if not isinstance(seen_at, int):
            return at_ns
        self._on.bustime.note(host, seen_at, at_ns)
        said_ns = int(self._on.bustime.of(host, np.array([seen_at]), at_ns)[0])
        self._on.presence.take_report(host, said_ns, at_ns)
        return said_ns

    def _take_event(self, message: Message, event: Event, at_ns: int) -> bool:
        if message.topic == LIVENESS.name:
            host = str(event.data.get("host") or message.key)
            self._take_sign_of_life(message, host, liveness=True)
            said_ns = self._said(host, event.data.get("seen_at_ns"), at_ns)
            self._on.liveness.take_statement(event.data, said_ns, at_ns)
            self._on.admit()
            return not event.data.get("complete")
        if message.topic == TOPOLOGY.name:
            self._take_topology(event, at_ns)
        elif message.topic == JOB.name:
            self._on.jobs.take(event.data, at_ns)
        return False

    def _take_topology(self, event: Event, at_ns: int) -> None:
        data = event.data
        if event.type == HOST_TYPE:
            return
        if "links" in data:
            self._declare(data)
            return
        try:
            hops = [None if h is None else str(h) for h in data["hops"]]
            if event.type == FLOW_TYPE:
                flow = flow_from(dict(data))
                traced_ns = self._traced_ns(data, flow.src, at_ns)
                self._on.flows.take(flow, hops, traced_ns)
                self._on.miscabled.take(self._on.cabling.topology, flow.src, flow.dst, hops, traced_ns)
                return
            key = (
                str(data["src"]),
                str(data["dst"]),
                str(data["transport"]),
                int(data["path"]),
                int(data["dscp"]),
            )
            direction = {"fwd": FWD, "rev": REV}[data.get("dir", "fwd")]
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError("topology-path", str(error)) from error
        slot = int(self._on.sessions.of_names([key], at_ns)[0])
        self._on.admit()
        sender, receiver = key[:2] if direction == FWD else (key[1], key[0])
        traced_ns = self._traced_ns(data, sender, at_ns)
        self._on.miscabled.take(self._on.cabling.topology, sender, receiver, hops, traced_ns)
        if slot >= 0 and self._on.cabling.trace(slot, direction, hops, traced_ns):
            self._on.runs.wipe(np.array([slot]))  # what was lost so far was lost on the former way

    def _traced_ns(self, data: Mapping[str, Any], by: str, at_ns: int) -> int:
        """When a NIC's host made a trace, bus time."""
        traced = data.get("traced_at_ns")
        if not isinstance(traced, int) or not 0 <= traced < 1 << 62:
            return at_ns
        return int(self._on.bustime.of(host_of(by), np.array([traced]), at_ns)[0])

    def _declare(self, data: Mapping[str, Any]) -> None:
        topology = Topology(data).refuse("nics", "links", absent=False)
        self._on.cabling.declare(topology)
        for nic in topology.nics:
            self._on.sessions.nic(nic)

    def _take_sign_of_life(self, message: Message, host: str, *, liveness: bool = False) -> None:
        if self._on.presence.take_message(host, message.bus_at_ns, message.boot_id, liveness=liveness):
            for engine in (self._on.liveness, self._on.flaps, self._on.ports):
                engine.restarted(host)


def _by_code(codes: npt.NDArray[np.int32]) -> list[tuple[int, Any]]:
    """Each code that is no null, and which rows have it; an agent's rows are mostly of one clock."""
    if codes.size and codes[0] >= 0 and bool((codes == codes[0]).all()):
        return [(int(codes[0]), slice(None))]
    return [(number, codes == number) for number in np.unique(codes[codes >= 0]).tolist()]
