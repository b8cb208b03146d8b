"""Looks at this host for `doctor`; changes nothing, and sends one packet over loopback."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sdfstream.errors import SdfError
from sdfstream.probes.net.socket_io import capabilities as stamps_offered
from sdfstream.serve.doctor import WANTED_BUFFER_BYTES, HostFacts

T = TypeVar("T")
_SO_TIMESTAMPNS = 35
_WAIT_S = 1.0


def look(namespaces: Callable[[], bool]) -> HostFacts:
    """The facts of this host; `namespaces` tries whether some can be made."""
    return HostFacts(
        nic_stamps=_tried(_nic_stamps) or {},
        stamped=_tried(_stamped),
        buffer_bytes=_tried(_buffer_bytes),
        files=_tried(lambda: _limit(resource.RLIMIT_NOFILE)),
        capabilities=_tried(_capabilities),
        rtprio=_tried(lambda: _limit(resource.RLIMIT_RTPRIO)),
        engine=_tried(_engine),
        rdma=_tried(_rdma),
        namespaces=_tried(namespaces),
        clocksource=_tried(_clocksource),
    )


def _tried(find: Callable[[], T]) -> T | None:
    try:
        return find()
    except (OSError, ValueError, SdfError):
        return None


def _nic_stamps() -> dict[str, int]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        names = sorted(name for _, name in socket.if_nameindex() if name != "lo")
        return {name: stamps_offered(sock, name) for name in names}


def _stamped() -> bool:
    """Whether a packet over loopback comes with the kernel's stamp."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        receiver.settimeout(_WAIT_S)
        receiver.bind(("127.0.0.1", 0))
        before_ns = time.time_ns()
        sender.sendto(b"sdfstream doctor", receiver.getsockname())
        _, control, _, _ = receiver.recvmsg(64, 64)
        for level, kind, data in control:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) >= 16:
                seconds, ns = (int.from_bytes(data[i : i + 8], "little", signed=True) for i in (0, 8))
                return abs(seconds * 1_000_000_000 + ns - before_ns) < 1_000_000_000
        return False


def _buffer_bytes() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.setsockopt(socket.SOL_SOCKET, 33, WANTED_BUFFER_BYTES)  # SO_RCVBUFFORCE
        except OSError:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WANTED_BUFFER_BYTES)
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2  # the kernel tells the double


def _limit(which: int) -> int:
    most = resource.getrlimit(which)[1]
    return 1 << 30 if most == resource.RLIM_INFINITY else most


def _capabilities() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    raise ValueError("no CapEff")


def _engine() -> str:
    from sdfstream.probes.engine.shell_library_io import shell_library

    try:
        shell_library()
    except SdfError as error:
        return str(error)
    return ""


def _rdma() -> str:
    from sdfstream.verbs.machine_io import survey

    found: dict[str, Any] = survey(os.sep)
    return str(found["why_none"])


def _clocksource() -> str:
    file = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    return file.read_text(encoding="ascii", errors="replace").strip()
