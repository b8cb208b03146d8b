"""The process at the other end of a unix socket, as the kernel names it."""

from __future__ import annotations

import socket
import struct
import uuid
from pathlib import Path
from typing import Final

from sdfstream.bus.link.owners import Process

_UCRED: Final = struct.Struct("3i")
"""pid, uid, gid: ``struct ucred`` (unix(7))."""
_STATE: Final = 2
_STARTED: Final = 21
"""Fields of ``/proc/PID/stat`` (proc(5)), counted from 0: behind the command's closing bracket they begin with 2."""


def process_at(end: socket.socket) -> Process:
    """The process that connected; one that cannot be seen from here (another pid namespace) is as its connection."""
    pid, uid, _ = _UCRED.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Process(pid, uid, _stat(pid, _STARTED) if pid else f"unseen {uuid.uuid4()}")


def runs(process: Process) -> bool:
    """Whether `process` still runs; one that cannot be seen does as long as it is connected."""
    if not process.pid:
        return True
    return _stat(process.pid, _STARTED) == process.began and _stat(process.pid, _STATE) not in ("Z", "X")


def _stat(pid: int, number: int) -> str:
    try:
        said = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return said.rpartition(")")[2].split()[number - 2]
    except (OSError, IndexError):
        return ""
