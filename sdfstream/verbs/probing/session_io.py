"""The two loops of STAMP over queue pairs: a Session-Sender that probes one NIC, a Session-Reflector that answers.

One pass: what completed goes to the engine (true sending times, answers), then rows and liveness are taken, then what
is due is sent; then the loop sleeps until the next deadline or completion. A port that goes down pauses its paths,
whose state is unknown meanwhile, and a device that is gone ends the session in words.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.errors import UnavailableError
from sdfstream.probes.config import HostConfig, NicConfig, SessionConfig
from sdfstream.probes.stamp.known_senders import KnownSender, ReflectorLimits
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.probes.stamp.sender import SessionSender
from sdfstream.records.fabric import host_of
from sdfstream.verbs.probing import device_events
from sdfstream.verbs.probing.datagrams_io import (
    REFLECTOR_PORT,
    ReflectorDatagrams,
    SenderDatagrams,
    address_of,
    tx_stamps,
)
from sdfstream.verbs.probing.device_events import PortChange
from sdfstream.verbs.probing.meeting_io import End, Meetings
from sdfstream.verbs.probing.ud_endpoint_io import UdEndpoint

MOST_BYTES: Final = 1024
"""Of a message; a path MTU of RoCEv2 is never less."""
_REST_S: Final = 0.02
_FLUSH_NS: Final = 50_000_000
_NO_COUNT: Final = 1 << 62
_MOST_SENDERS: Final = 4_096
"""Known at a time; the one that met us first goes."""

OnChange = Callable[[PortChange], None]


def session(own: End, far: End, ports: tuple[int, ...], rate_hz: float, dscp: int, size_bytes: int) -> SessionConfig:
    """The session of these two ends over these source ports."""
    return SessionConfig(
        src=own.nic,
        dst=far.nic,
        dst_address=address_of(far.address.gid),
        dst_port=REFLECTOR_PORT,
        source_ports=ports,
        dscp=dscp,
        size_bytes=size_bytes,
        rate_hz=rate_hz,
        transport="rocev2",
    )


class Sender:
    """Probes one NIC until the loop is left.

    Parameters
    ----------
    endpoint : UdEndpoint
    config : SessionConfig
        See `session`.
    far : End
    rng : numpy Generator
    on_change : callable
        Takes changes of the device's port, at once.
    """

    def __init__(
        self, endpoint: UdEndpoint, config: SessionConfig, far: End, rng: np.random.Generator, on_change: OnChange
    ) -> None:
        sockets = {(config.src, port): number for number, port in enumerate(config.source_ports)}
        now_ns = time.monotonic_ns()
        self.engine = SessionSender(_host(endpoint, config), sockets, rng, now_ns)
        self._endpoint = endpoint
        self._datagrams = SenderDatagrams(endpoint, config.source_ports, lambda _: far.address, self.engine.counters)
        self._events = DeviceEvents(endpoint, on_change)
        self._nic = config.src

    def run(self, seconds: float, count: int = 0, linger_s: float = 5.0) -> Iterator[pa.RecordBatch]:
        """Probe for so long, or `count` times on each path; yields rows, once a flush.

        Then it waits until each probe has its row, answered or given up, for `linger_s` at most.

        Raises
        ------
        UnavailableError
            The device is gone.
        """
        now_ns = time.monotonic_ns()
        ends_ns, flush_ns = now_ns + int(seconds * 1e9), now_ns + _FLUSH_NS
        most = count * self.engine.configured_paths or _NO_COUNT
        written = 0
        while now_ns < ends_ns or (written < self._sent() and now_ns < ends_ns + int(linger_s * 1e9)):
            self._take(now_ns)
            if now_ns >= flush_ns:
                flush_ns = now_ns + _FLUSH_NS
                if (rows := self.engine.rows(now_ns)) is not None:
                    written += rows.num_rows
                    yield rows
            due_ns = self.engine.next_due_ns() if now_ns < ends_ns else flush_ns
            if now_ns < ends_ns and due_ns <= now_ns:
                self._send(now_ns)
                ends_ns = now_ns if self.engine.counters.get("sent") >= most else ends_ns
                due_ns = self.engine.next_due_ns()
            self._endpoint.wait(max(0.0, min(due_ns, flush_ns) - time.monotonic_ns()) / 1e9)
            now_ns = time.monotonic_ns()

    def _sent(self) -> int:
        """Probes that will have a row."""
        counters = self.engine.counters
        return counters.get("sent") - counters.get("unsent") - counters.get("shed", "ring")

    def _take(self, now_ns: int) -> None:
        for usable in self._events.take():
            self.engine.nic_usable(self._nic, usable, now_ns)
        messages = self._endpoint.take()
        system_ns = time.time_ns()
        self.engine.take_tx_stamps(tx_stamps(messages))
        if messages.failed:
            self.engine.unsent(np.array(messages.failed, dtype=np.int64))
        if messages.received:
            self.engine.take_answers(self._datagrams.take(messages, system_ns), now_ns)

    def _send(self, now_ns: int) -> None:
        due = self.engine.due(now_ns, time.time_ns())
        if unsent := self._datagrams.send(due):
            self.engine.unsent(np.array(unsent, dtype=np.int64))

    def liveness(self) -> list[dict[str, Any]]:
        """Changes of paths' states since the last call."""
        return self.engine.liveness(time.monotonic_ns(), time.time_ns())


class Reflector:
    """Answers the probes of those that meet it.

    Parameters
    ----------
    endpoint : UdEndpoint
    nic : str
        NIC id of this end.
    meetings : Meetings
    on_change : callable
        Takes changes of the device's port, at once.
    """

    def __init__(self, endpoint: UdEndpoint, nic: str, meetings: Meetings, on_change: OnChange) -> None:
        host = _host(endpoint, SessionConfig(src=nic, dst=nic, dst_address="::"))
        limits = ReflectorLimits(port=REFLECTOR_PORT)
        self.engine = SessionReflector(host, {0: nic}, {}, limits=limits, transport="rocev2")
        self._endpoint, self._nic, self._meetings = endpoint, nic, meetings
        self._datagrams = ReflectorDatagrams(endpoint, self.engine.counters)
        self._events = DeviceEvents(endpoint, on_change)
        self._senders: OrderedDict[str, KnownSender] = OrderedDict()

    def turn(self) -> list[End]:
        """One pass: answer what came, then sleep a moment; the senders that are new. UnavailableError: device gone."""
        now_ns = time.monotonic_ns()
        fresh = self._meetings.arrived()
        for end in fresh:
            self._know(end)
        for usable in self._events.take():
            self.engine.nic_usable(self._nic, usable, now_ns)
        messages = self._endpoint.take()
        self.engine.take_tx_stamps(tx_stamps(messages))
        if messages.received:
            answers = self.engine.answer(self._datagrams.take(messages, time.time_ns()), now_ns)
            self.engine.seal(answers, time.time_ns())
            self._datagrams.send(answers)
        self._endpoint.wait(_REST_S)
        return fresh

    def _know(self, end: End) -> None:
        address = address_of(end.address.gid)
        self._senders[address] = KnownSender(end.nic)
        self._senders.move_to_end(address)
        self._datagrams.know(address, end.address.qkey)
        if len(self._senders) > _MOST_SENDERS:
            self._datagrams.forget(self._senders.popitem(last=False)[0])
        self.engine.know("meetings", self._senders)


class DeviceEvents:
    """Turns a device's events into what the engines want to know: whether the port can be used.

    `take` raises UnavailableError when the device is gone.
    """

    def __init__(self, endpoint: UdEndpoint, on_change: OnChange) -> None:
        self._endpoint, self._on_change = endpoint, on_change
        self._ports = endpoint.ports()

    def take(self) -> Iterator[bool]:
        """Whether the port is usable, after each change."""
        while kind := self._endpoint.event():
            if not device_events.is_about_ports(kind):
                continue
            now = self._endpoint.ports()
            for change in device_events.changes(self._endpoint.device, kind, self._ports, now):
                self._on_change(change)
                yield change.usable
            if not now or kind == "DEVICE_FATAL":
                raise UnavailableError(f"RDMA device {self._endpoint.device} is gone ({kind})")
            self._ports = now


def _host(endpoint: UdEndpoint, config: SessionConfig) -> HostConfig:
    address = address_of(endpoint.address.gid)
    nic = NicConfig(nic=config.src, device=endpoint.device, address=address)
    sessions = () if config.src == config.dst else (config,)
    return HostConfig(host=host_of(config.src), nics=(nic,), sessions=sessions, read_ports=False)
