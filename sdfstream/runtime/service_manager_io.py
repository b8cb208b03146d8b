"""What a daemon says to the service manager that started it: ready, alive, stopping, and a line on how it is.

The protocol is sd_notify(3): datagrams of ``KEY=value`` lines to the Unix socket that NOTIFY_SOCKET names; what begins
with ``@`` is an abstract name. Where WATCHDOG_USEC is set, the manager restarts a service that says nothing that long.
Nothing here has a timer or thread of its own: `alive` is called by the loop whose health it is, so that a loop that
hangs falls silent.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

from sdfstream.visible import line

_log = logging.getLogger("sdfstream.service")

_SIGNS: Final = 4
"""A life sign is sent this often within the watchdog's time: three may be lost."""
_STATUS_S: Final = 10.0
"""Longest time between two status lines."""
_MOST_STATUS: Final = 500


class ServiceManager:
    """The service manager's socket; every method returns at once, and what cannot be sent is dropped.

    Parameters
    ----------
    address : str
        Of NOTIFY_SOCKET; empty: there is no manager, and nothing is said.
    watchdog_s : float
        Silence after which the manager restarts the service; 0: it does not watch.
    status : callable
        How the service is, in a sentence; asked every ten seconds at most.
    """

    def __init__(self, address: str = "", watchdog_s: float = 0.0, status: Callable[[], str] = str) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._pause_s = min(watchdog_s / _SIGNS, _STATUS_S) if watchdog_s else _STATUS_S
        self._watched = watchdog_s > 0
        self._ready = False
        self._due_s = 0.0
        self._status_s = 0.0
        self.status = status

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ, pid: int | None = None) -> ServiceManager:
        """The one that `environment` names; a watchdog that is meant for another process is none of ours."""
        usec, watched_pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        ours = watched_pid in ("", str(os.getpid() if pid is None else pid))
        return cls(environment.get("NOTIFY_SOCKET", ""), int(usec) / 1e6 if usec.isdigit() and ours else 0.0)

    def alive(self) -> None:
        """Call it from every round of the service's loop, the first time once it serves; that says READY."""
        now_s = time.monotonic()
        if not self._address or now_s < self._due_s:
            return
        self._due_s = now_s + self._pause_s
        said = ["WATCHDOG=1"] if self._watched else []
        if not self._ready:
            self._ready = True
            said = ["READY=1", *said]
        if now_s >= self._status_s:
            self._status_s = now_s + _STATUS_S
            said.append(f"STATUS={line(self.status())[:_MOST_STATUS]}")
        self._send(said)

    def stopping(self) -> None:
        """The service ends now; before it drains and closes."""
        self._send(["STOPPING=1"])

    def _send(self, lines: list[str]) -> None:
        if not self._address or not lines:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            if isinstance(error, BlockingIOError):  # the manager is behind; the next life sign is due soon
                return
            _log.warning("the service manager cannot be reached at %r: %s", self._address, error)
