"""Path tracing on the wire: TTL-limited packets from the probes' own sockets, routers' answers from the error queue."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable, Mapping
from typing import Any, Final

from sdfstream.probes.net_io import SocketTable
from sdfstream.probes.paths import Paths
from sdfstream.probes.sockets_io import report_icmp
from sdfstream.probes.trace import Key, Trace, Tracer
from sdfstream.records.fabric import PathId
from sdfstream.records.message import Output
from sdfstream.records.topics import TOPOLOGY
from sdfstream.records.units import NS_PER_S, Int64s, UInt8s

PATH_TYPE: Final = "sdf.state.topology.path.v1"
_LEAST_PAYLOAD: Final = 44
"""The base packet of STAMP: what a reflector would expect, should a packet get that far after all."""
_TOKEN_BYTES: Final = 4

MakeEvent = Callable[[str, str, str, Mapping[str, Any]], Output]
"""Topic, type, key, data to an event of this host."""


class PathTracing:
    """Traces the paths of one host.

    Parameters
    ----------
    paths : Paths
    table : SocketTable
        The senders' sockets.
    interval_s, rate_hz : float
        Between two traces of a path; packets per second over all paths.
    event : callable
        Makes the event of a trace.
    clock : callable
        The host's clock, ns since the Unix epoch.
    """

    def __init__(
        self,
        paths: Paths,
        table: SocketTable,
        *,
        interval_s: float,
        rate_hz: float,
        event: MakeEvent,
        clock: Callable[[], int],
    ) -> None:
        self._table = table
        self._event = event
        self._clock = clock
        self._interval_s, self._rate_hz = interval_s, rate_hz
        self._listening: set[int] = set()
        self.adopt(paths)

    def adopt(self, paths: Paths) -> None:
        """Trace these paths from now on."""
        self._paths = paths
        keys: list[Key] = [
            (slot, paths.address[p].tobytes(), int(paths.port[p])) for p, slot in enumerate(paths.socket.tolist())
        ]
        self._keys = keys
        self._tracer = Tracer(keys, int(self._interval_s * NS_PER_S), self._rate_hz)

    def step(self, heard_at_ns: Int64s, ttl_fwd: UInt8s, now_ns: int) -> list[Output]:
        """Take answers, send what is due; returns the events of finished traces.

        Parameters
        ----------
        heard_at_ns : (p,) int64
            When each path was last answered, steady clock.
        ttl_fwd : (p,) uint8
            With which TTL its probes arrive; 0: not told.
        """
        tracer = self._tracer
        tracer.heard(heard_at_ns, ttl_fwd, now_ns)
        for error in self._table.take_icmp():
            if error.is_time_exceeded:
                token = int.from_bytes(error.quote[:_TOKEN_BYTES], "big") if len(error.quote) >= _TOKEN_BYTES else None
                tracer.exceeded((error.slot, error.destination, error.port), token, error.offender)
        outputs = [self._output(trace) for trace in tracer.finished(now_ns)]
        asks = tracer.due(now_ns)
        self._listen(tracer.slots())
        for ask in asks:
            self._send(ask.path, ask.ttl, ask.token)
        return outputs

    def _send(self, path: int, ttl: int, token: int) -> None:
        slot, address, port = self._keys[path]
        payload = token.to_bytes(_TOKEN_BYTES, "big").ljust(max(int(self._paths.length[path]), _LEAST_PAYLOAD), b"\0")
        self._table.send_limited(slot, address, port, payload, int(self._paths.tos[path]), ttl)

    def _listen(self, slots: set[int]) -> None:
        """Ask for ICMP errors on just the sockets with a trace under way."""
        for slot in slots ^ self._listening:
            opened = self._table.sockets[slot]
            if opened is not None:
                with contextlib.suppress(OSError):
                    report_icmp(opened, slot in slots)
        self._listening = {s for s in slots if self._table.sockets[s] is not None}

    def _output(self, trace: Trace) -> Output:
        session = self._paths.sessions[int(self._paths.session[trace.path])]
        port = int(self._paths.source_port[trace.path])
        name = PathId(session.src, session.dst, "udp", port, session.dscp, "fwd")
        data = {
            **name._asdict(),
            "hops": [None if hop is None else readable(hop) for hop in trace.hops],
            "complete": trace.complete,
            "traced_at_ns": self._clock(),
        }
        return self._event(TOPOLOGY.name, PATH_TYPE, str(name), data)


def readable(address: bytes) -> str:
    r"""16 octets as a person writes them.

    >>> readable(bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1]))
    '10.0.0.1'
    """
    parsed = ipaddress.IPv6Address(address)
    return str(parsed.ipv4_mapped or parsed)
