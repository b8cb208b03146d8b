"""``sdfstream rdma reflect`` and ``sdfstream rdma probe``: device, meeting, loop, report and recording."""

from __future__ import annotations

import contextlib
import platform
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from sdfstream.agent.report import PathReport
from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.errors import ConfigError
from sdfstream.records.message import Message
from sdfstream.records.topics import PROBE
from sdfstream.verbs.library_io import the_device
from sdfstream.verbs.probing.device_events import PortChange
from sdfstream.verbs.probing.meeting_io import End, Meetings, meet
from sdfstream.verbs.probing.session_io import MOST_BYTES, Reflector, Sender, session
from sdfstream.verbs.probing.ud_endpoint_io import UdEndpoint
from sdfstream.verbs.udp_port import LEAST_PORT

_KEY_BITS = 31
_MOST_PATHS = 64
_LEAST_BYTES, _MOST_SECONDS, _MOST_RATE_HZ, _MOST_COUNT = 128, 86_400.0, 10_000.0, 1 << 32


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to probe, and how."""

    peer: str
    port: int
    device: str
    gid_index: int
    nic: str
    source_ports: tuple[int, ...]
    """Empty: `paths` of them, any."""
    paths: int
    rate_hz: float
    seconds: float
    count: int
    """Probes on each path, after which it ends before its time; 0: any number."""
    dscp: int
    size_bytes: int
    out: str | None
    """Folder of the recording; None: none is made."""

    def __post_init__(self) -> None:
        """ConfigError: a figure beyond its bounds."""
        bounds = {
            "--rate": (self.rate_hz, 0.1, _MOST_RATE_HZ),
            "--seconds": (self.seconds, 0.1, _MOST_SECONDS),
            "--paths": (self.paths, 1, _MOST_PATHS),
            "--count": (self.count, 0, _MOST_COUNT),
            "--dscp": (self.dscp, 0, 63),
            "--size": (self.size_bytes, _LEAST_BYTES, MOST_BYTES),
        }
        for name, (value, least, most) in bounds.items():
            if not least <= value <= most:
                raise ConfigError(f"{name} is {least:g} to {most:g}, not {value:g}")


def reflect(
    listen: str,
    port: int,
    device: str,
    gid_index: int,
    nic: str,
    say: Callable[[str], None],
    ended: Callable[[], bool],
) -> dict[str, Any]:
    """Answer probes until `ended` says so; what was counted.

    Raises
    ------
    UnavailableError
        No pyverbs, no device, no port to listen on; the device went away.
    """  # fmt: skip
    with _endpoint(device, gid_index) as endpoint:
        own = End(nic or _name(endpoint.device), endpoint.address)
        meetings = Meetings(listen, port, own)
        senders = 0
        try:
            reflector = Reflector(endpoint, own.nic, meetings, _reporter(say))
            say(f"{endpoint.device} ({own.nic}) reflects; senders meet it at {listen or '*'}:{meetings.port}")
            while not ended():
                for end in reflector.turn():
                    senders += 1
                    say(f"{end.nic} probes from now on")
        finally:
            meetings.close()
    counted = reflector.engine.counters
    return {
        "nic": own.nic,
        "senders": senders,
        "answered": counted.get("answered"),
        "refused_meetings": meetings.counters.total("refused"),
        "counters": {**counted.as_dict(), **meetings.counters.as_dict()},
    }


def probe(wanted: Wanted, say: Callable[[str], None]) -> dict[str, Any]:
    """Probe, report path by path, and record if so wanted.

    Raises
    ------
    ConfigError, UnavailableError
        The recording's folder is taken; no pyverbs, no device, nobody at the peer's; the device went away.
    """
    with _endpoint(wanted.device, wanted.gid_index, wanted.source_ports or _first(wanted.paths)) as endpoint:
        if wanted.source_ports and not endpoint.chooses_ports:
            raise ConfigError(f"{endpoint.device} chooses source ports itself, one a queue pair: use --paths instead")
        own = End(wanted.nic or _name(endpoint.device), endpoint.address)
        far, connection = meet(wanted.peer, wanted.port, own)
        writer = None if wanted.out is None else RecordingWriter(wanted.out, cluster="rdma")
        try:
            return _probed(endpoint, own, far, wanted, writer, say)
        finally:
            connection.close()
            if writer is not None:
                writer.finish(max(time.time_ns(), writer.end_at_ns or 0))


def _probed(
    endpoint: UdEndpoint, own: End, far: End, wanted: Wanted, writer: RecordingWriter | None,
    say: Callable[[str], None],
) -> dict[str, Any]:  # fmt: skip
    config = session(own, far, endpoint.source_ports, wanted.rate_hz, wanted.dscp, wanted.size_bytes)
    events: list[PortChange] = []
    report_change = _reporter(say)

    def on_change(change: PortChange) -> None:
        events.append(change)
        report_change(change)

    sender = Sender(endpoint, config, far, np.random.default_rng(), on_change)
    report = PathReport(np.random.default_rng())
    say(f"{own.nic} ({endpoint.device}) probes {far.nic} over {len(endpoint.source_ports)} source ports")
    boot_id = secrets.token_hex(8)
    for number, batch in enumerate(sender.run(wanted.seconds, wanted.count)):
        report.add(batch)
        if writer is not None:
            message = Message(PROBE.name, own.nic.partition("/")[0], batch, time.time_ns(), number, boot_id, number)
            writer.write([message])
    return {
        "src": own.nic,
        "dst": far.nic,
        "device": endpoint.device,
        "source_ports": "chosen" if endpoint.chooses_ports else "the device's",
        "stamps": "hardware" if endpoint.stamps else "user space",
        "paths": report.paths(),
        "liveness": sender.engine.liveness(time.monotonic_ns(), time.time_ns(), complete=True),
        "port_changes": [{"device": c.device, "port": c.port, "usable": c.usable, "why": c.why} for c in events],
        "counters": sender.engine.counters.as_dict(),
    }


def _reporter(say: Callable[[str], None]) -> Callable[[PortChange], None]:
    return lambda c: say(f"{c.device}/{c.port} {'can be used' if c.usable else 'cannot be used'}: {c.why}")


def _first(paths: int) -> range:
    return range(LEAST_PORT + 1, LEAST_PORT + 1 + paths)


def _name(device: str) -> str:
    return f"{platform.node()}/{device}"


@contextlib.contextmanager
def until_signal() -> Iterator[Callable[[], bool]]:
    """Whether SIGINT or SIGTERM has come, to be asked; a second one ends the process as it does without us."""
    came = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(number: int, frame: FrameType | None) -> None:
        came.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield came.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _endpoint(device: str, gid_index: int, ports: Sequence[int] = (LEAST_PORT,)) -> Iterator[UdEndpoint]:
    verbs, device = the_device(device)
    endpoint = UdEndpoint(verbs, device, MOST_BYTES, secrets.randbits(_KEY_BITS), ports, gid_index=gid_index)
    try:
        yield endpoint
    finally:
        endpoint.close()
