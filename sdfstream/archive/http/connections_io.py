"""The open connections of one listening socket: how many, and how long each may take over what.

Who is not answered yet must not keep others out: a request's head has to come within seconds, and where all slots are
taken the connection that has been idle longest gives way to a new one.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Final

HEAD_S: Final = 10.0
"""For the whole head of the first request, and of any after one that was refused."""
IDLE_S: Final = 60.0
"""Between the requests of a connection that has been answered; it covers the next head."""
BODY_S: Final = 120.0
SEND_S: Final = 300.0


@dataclass(slots=True)
class _Connection:
    since_s: float
    until_s: float
    """When it is hung up."""
    busy: bool = False
    """A request that may be answered is under way."""


@dataclass(slots=True)
class Connections:
    """At most `most` open connections."""

    most: int
    head_s: float = HEAD_S
    """As `HEAD_S`."""
    _open: dict[socket.socket, _Connection] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admit(self, link: socket.socket) -> bool:
        """Take a new connection, in place of the longest idle one if need be; False: all are busy."""
        now_s = time.monotonic()
        with self._lock:
            if len(self._open) >= self.most:
                idle = [(one.since_s, other) for other, one in self._open.items() if not one.busy]
                if not idle:
                    return False
                longest = min(idle, key=lambda item: item[0])[1]
                del self._open[longest]
                _hang_up(longest)
            self._open[link] = _Connection(now_s, now_s + self.head_s)
        return True

    def work(self, link: socket.socket, most_s: float = math.inf) -> None:
        """The connection does something for a known caller now, for at most `most_s`."""
        self._set(link, most_s, busy=True)

    def rest(self, link: socket.socket, *, known: bool) -> None:
        """The connection waits for another request; `known`: of a caller who was answered."""
        self._set(link, IDLE_S if known else self.head_s, busy=False)

    def remove(self, link: socket.socket) -> None:
        """The connection has ended."""
        with self._lock:
            self._open.pop(link, None)

    def sweep(self) -> None:
        """Hang up every connection whose time is over."""
        now_s = time.monotonic()
        with self._lock:
            late = [link for link, one in self._open.items() if now_s > one.until_s]
            for link in late:
                del self._open[link]
                _hang_up(link)

    def close(self) -> None:
        """Hang up all."""
        with self._lock:
            for link in self._open:
                _hang_up(link)

    def _set(self, link: socket.socket, most_s: float, *, busy: bool) -> None:
        now_s = time.monotonic()
        with self._lock:
            one = self._open.get(link)
            if one is not None:
                one.since_s, one.until_s, one.busy = now_s, now_s + most_s, busy


def _hang_up(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
