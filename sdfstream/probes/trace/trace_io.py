"""Tracing on the wire: TTL-limited packets out, routers' answers in, an event for each finished trace.

Probe paths are traced from the probes' own sockets (answers from their error queues), which needs no privilege; flows
and answers by raw sockets. All share one rate, but for the few paths that fall silent (`silent`).
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from sdfstream.probes.config import AgentConfig, NicConfig
from sdfstream.probes.net.icmp import IcmpError
from sdfstream.probes.net.socket_io import ProbeSocket, report_icmp
from sdfstream.probes.stamp.liveness import PathName
from sdfstream.probes.stamp.paths import Paths
from sdfstream.probes.trace.answers import AnswerBook
from sdfstream.probes.trace.flows import FlowBook, FlowRequest, Leaves
from sdfstream.probes.trace.packets import PacketTemplate
from sdfstream.probes.trace.paths import PathBook, PathChanges
from sdfstream.probes.trace.raw_io import RawSockets
from sdfstream.probes.trace.routes import ForwardRoutes
from sdfstream.probes.trace.silent import SilentTracer
from sdfstream.probes.trace.tracer import HopProbe, Key, Trace, Tracer
from sdfstream.records.fabric import FLOW_TYPE, PATH_TYPE, SILENT_TYPE, Flow, PathId
from sdfstream.records.message import Output
from sdfstream.records.topics import TOPOLOGY
from sdfstream.records.units import NS_PER_MS, NS_PER_S, Int64s, UInt8s
from sdfstream.stats import Counters

_LEAST_PAYLOAD: Final = 44
"""Length of STAMP's base packet, in case a probe reaches a reflector after all."""
_TOKEN_BYTES: Final = 4
_HURRIED_NS: Final = 20 * NS_PER_MS
_USUAL_NS: Final = 100 * NS_PER_MS
"""Pauses between two steps; each asks for the state of every path. Routing takes as long to settle (`paths`)."""

MakeEvent = Callable[[str, str, str, Mapping[str, Any]], Output]
"""Topic, type, key, data to an event of this host."""


class ProbingSockets(Protocol):
    """The sockets that probe paths are traced from, by slot (`SocketTable`)."""

    @property
    def sockets(self) -> list[ProbeSocket | None]:
        """The open ones."""

    def send_limited(self, slot: int, address: bytes, port: int, payload: bytes, tos: int, ttl: int) -> bool:
        """Send one datagram with its own TTL; False when it is known not to go."""

    def take_icmp(self) -> list[IcmpError]:
        """ICMP errors since the last call."""


class InboundPaths(NamedTuple):
    """The sessions that a host reflects, by number; a session keeps its number."""

    names: Sequence[PathName]
    senders: Sequence[bytes]
    """16-octet addresses."""
    states: UInt8s


class TracedPaths(Protocol):
    """What tracing must know of the probes. Arrays are (paths,), by the numbers of the table of paths."""

    def states(self) -> UInt8s:
        """Unknown, alive or silent (`liveness`); not to be written to."""

    def last_received_ns(self) -> Int64s:
        """Steady clock of the last answer."""

    def ttl_fwd(self) -> UInt8s:
        """TTL with which probes arrive, by the last answer; 0: not reported."""

    def inbound(self) -> InboundPaths:
        """The sessions that this host reflects."""


class Tracing:
    """Traces probe paths, answers to probes, and flows of one host.

    Parameters
    ----------
    config : AgentConfig
    nics : NIC id to NicConfig
    table : ProbingSockets
        The senders' sockets.
    event : callable
        Makes the event of a trace.
    clock : callable
        The host's clock, ns since the Unix epoch.
    counters : Counters
    routes : ForwardRoutes
        Gets what traces of probe paths and flows show.
    """

    def __init__(
        self,
        config: AgentConfig,
        nics: Mapping[str, NicConfig],
        table: ProbingSockets,
        *,
        event: MakeEvent,
        clock: Callable[[], int],
        counters: Counters,
        routes: ForwardRoutes,
    ) -> None:
        self._table = table
        self._routes = routes
        self._event = event
        self._clock = clock
        self._reporting: set[int] = set()
        self._tracer = Tracer(int(config.trace_interval_s * NS_PER_S), config.trace_rate_hz)
        addresses = {name: nic.address for name, nic in nics.items()}
        self._silent = SilentTracer()
        self._path_book = PathBook(self._tracer, self._silent)
        self.raw = RawSockets(nics, counters)
        """By which flows and answers are traced."""
        ready = self.raw.is_open
        self._flow_book = FlowBook(self._tracer, self._path_book, addresses, ready, counters)
        self._answer_book = AnswerBook(self._tracer, self._path_book, addresses, ready, config.reflector_port)
        self._leaves = Leaves()

    def adopt(self, paths: Paths, first: int) -> None:
        """Trace these probe paths from now on; the first `first` of them never change."""
        self._paths = paths
        self._keys: list[Key] = [
            (slot, paths.address[p].tobytes(), int(paths.port[p])) for p, slot in enumerate(paths.socket.tolist())
        ]
        self._path_book.adopt(paths, self._keys, first)

    def trace_flows(self, requests: Sequence[FlowRequest], now_ns: int) -> None:
        """Take the flows to be traced from now on, most wanted first."""
        self._flow_book.take(requests, now_ns)

    def pause_ns(self) -> int:
        """How long the next step may wait."""
        return _HURRIED_NS if self._tracer.hurries or self._silent.busy() else _USUAL_NS

    def step(self, probes: TracedPaths, now_ns: int) -> list[Output]:
        """Take answers, send due probes; the events of finished traces."""
        self._take_quotes()
        finished = self._silent.finished(now_ns) + self._tracer.finished(now_ns)
        outputs = [self._output(trace) for trace in finished]
        changed, moved = self._path_book.step(probes.last_received_ns(), probes.ttl_fwd(), probes.states(), now_ns)
        changes = PathChanges(changed, moved, self.raw.opened())
        self._flow_book.step(changes, self._leaves, now_ns)
        self._answer_book.step(*probes.inbound(), changes, now_ns)
        due = self._silent.due(now_ns) + self._tracer.due(now_ns)
        busy = self._silent.busy() + self._tracer.busy()
        self._report_errors({self._slot(s) for s in busy if isinstance(s, int)})
        for probe in due:
            if isinstance(probe.subject, int):
                self._send(probe.subject, probe.ttl, probe.token)
            else:
                self._send_raw(probe)
        return outputs

    def _take_quotes(self) -> None:
        for error in self._table.take_icmp():
            if error.is_time_exceeded:
                token = int.from_bytes(error.quote[:_TOKEN_BYTES], "big") if len(error.quote) >= _TOKEN_BYTES else None
                key = (error.slot, error.destination, error.port)
                if not self._silent.exceeded(key, token, error.offender):
                    self._tracer.exceeded(key, token, error.offender)
        for quote in self.raw.take():
            self._tracer.exceeded(quote.flow, quote.token, quote.offender, quote.bits)

    def _template(self, subject: object) -> PacketTemplate:
        return self._flow_book.templates[subject] if isinstance(subject, Flow) else self._answer_book.templates[subject]  # type: ignore[index]

    def _slot(self, path: int) -> int:
        return int(self._paths.socket[path])

    def _send(self, path: int, ttl: int, token: int) -> None:
        payload = token.to_bytes(_TOKEN_BYTES, "big").ljust(max(int(self._paths.length[path]), _LEAST_PAYLOAD), b"\0")
        address, port = self._paths.address[path].tobytes(), int(self._paths.port[path])
        self._table.send_limited(self._slot(path), address, port, payload, int(self._paths.tos[path]), ttl)

    def _send_raw(self, probe: HopProbe) -> None:
        template = self._template(probe.subject)
        if self.raw.is_open(template.nic):
            self.raw.send(template.nic, template.five_tuple, template.tos, probe.ttl, probe.token)
        else:
            self._tracer.hold(probe.subject)  # until the NIC is back

    def _report_errors(self, slots: set[int]) -> None:
        """Ask for ICMP errors on just the sockets with a trace in progress."""
        for slot in slots ^ self._reporting:
            opened = self._table.sockets[slot]
            if opened is not None:
                with contextlib.suppress(OSError):
                    report_icmp(opened, slot in slots)
        self._reporting = {s for s in slots if self._table.sockets[s] is not None}

    def _output(self, trace: Trace) -> Output:
        subject, sure = trace.subject, True
        if isinstance(subject, int):
            session = self._paths.sessions[int(self._paths.session[subject])]
            port = int(self._paths.source_port[subject])
            subject = PathId(session.src, session.dst, "udp", port, session.dscp, "fwd")
            self._leaves.note(session.dst, trace.hops)
        elif isinstance(subject, Flow):
            distance = self._path_book.distance((subject.src, subject.dst))
            sure = distance is not None and distance.sure
            self._leaves.note(subject.dst, trace.hops)
        elif isinstance(subject, PathId):
            distance = self._answer_book.distance(subject)
            sure = distance is not None and distance.sure
            self._leaves.note(subject.src, trace.hops)
        else:  # pragma: no cover
            raise TypeError(subject)
        hops = [None if hop is None else readable(hop) for hop in trace.hops]
        if trace.silent and isinstance(subject, PathId):
            data = {**subject._asdict(), "hops": hops, "traced_at_ns": self._clock()}
            return self._event(TOPOLOGY.name, SILENT_TYPE, f"{subject} silent", data)
        complete = trace.complete and sure
        if isinstance(subject, Flow) or subject.dir == "fwd":
            self._routes.note(subject, tuple(hops), complete=complete)
        data = {
            **subject._asdict(),
            "hops": hops,
            "complete": complete,
            "traced_at_ns": self._clock(),
        }
        kind = FLOW_TYPE if isinstance(subject, Flow) else PATH_TYPE
        return self._event(TOPOLOGY.name, kind, str(subject), data)


def readable(address: bytes) -> str:
    r"""16 octets as a person writes them.

    >>> readable(bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1]))
    '10.0.0.1'
    """
    parsed = ipaddress.IPv6Address(address)
    return str(parsed.ipv4_mapped or parsed)
