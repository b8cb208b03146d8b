"""The control sockets of the processes that own queue pairs: newline-delimited JSON over unix streams.

One connection a process, kept open. A request is in transit when `apply` returns (a unix stream takes it into the
receiver's buffer at once); answers are picked up by `answers`, which the agent calls at every reading of liveness.
Answers come in the order of the requests. When one is overdue the connection is given up with everything that waited on
it: what came late could not be distinguished from the answer to something else.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections import deque
from collections.abc import Iterator, Sized
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.agent.commands.actuator import ActuatorAnswer, ActuatorRequest
from sdfstream.errors import FormatError
from sdfstream.records.units import NS_PER_MS
from sdfstream.stats import Counters

TIMEOUT_NS: Final = 1_000 * NS_PER_MS
"""A process that has not answered by then may be stuck; what was asked may still be done when it goes on."""
_MOST_WAITING: Final = 4096
_MOST_ANSWER_BYTES: Final = 1 << 20


@dataclass(slots=True)
class _Link:
    """A connection, what is not yet sent on it, and who waits for an answer."""

    path: str
    socket: socket.socket
    unsent: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    """(request, steady time by which it must be answered)."""


class QpSocketActuator:
    """Actuator over control sockets; see the module."""

    def __init__(self, counters: Counters | None = None, timeout_ns: int = TIMEOUT_NS) -> None:
        self.counters = counters or Counters("control")
        self._timeout_ns = timeout_ns
        self._links: dict[str, _Link] = {}
        self._lost: list[ActuatorAnswer] = []

    def apply(self, request: ActuatorRequest, now_ns: int) -> ActuatorAnswer | None:
        """Hand over `request`; answered at once only when it cannot be."""
        line = request_line(request)
        for fresh in (False, True):  # a connection that broke since it was last used says so on sending
            link = self._links.get(request.control)
            if link is None or fresh:
                try:
                    link = self._connect(request.control)
                except OSError as error:
                    return ActuatorAnswer(
                        request.id, False, f"no process answers at {request.control}: {error.strerror}"
                    )
            if len(link.waiting) >= _MOST_WAITING:
                return ActuatorAnswer(request.id, False, "too many requests wait for an answer of this process")
            try:
                link.unsent += line
                self._send(link)
            except OSError:
                del link.unsent[-len(line) :]
                self._give_up(link, "the process went away")
                continue
            link.waiting.append((request.id, now_ns + self._timeout_ns))
            return None
        return ActuatorAnswer(request.id, False, f"the process at {request.control} does not take requests")

    def answers(self, now_ns: int) -> list[ActuatorAnswer]:
        """What has come; requests whose time is out are answered as not done, perhaps."""
        found, self._lost = self._lost, []
        for link in [x for x in self._links.values() if x.waiting]:
            try:
                if link.unsent:
                    self._send(link)
                found += self._receive(link)
            except (OSError, ValueError) as error:
                self._give_up(link, f"the process went away: {error}")
            if link.waiting and now_ns >= link.waiting[0][1]:
                self.counters.add("socket", "timed-out")
                self._give_up(link, "the process did not answer in time")
        if self._lost:
            found += self._lost
            self._lost = []
        return found

    def keep(self, paths: set[str]) -> None:
        """Close connections to processes that are not among `paths`."""
        for path in self._links.keys() - paths:
            self._give_up(self._links[path], "the job has ended")

    def close(self) -> None:
        """Close all connections."""
        for link in list(self._links.values()):
            self._give_up(link, "the agent ends")

    def _connect(self, path: str) -> _Link:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            made.connect(path)
        except OSError:
            made.close()
            raise
        self.counters.add("socket", "connected")
        link = self._links[path] = _Link(path, made)
        return link

    @staticmethod
    def _send(link: _Link) -> None:
        try:
            while link.unsent:
                sent = link.socket.send(link.unsent)
                del link.unsent[:sent]
        except BlockingIOError:
            pass  # the rest goes with the next look

    @staticmethod
    def _receive(link: _Link) -> list[ActuatorAnswer]:
        receive(link.socket, link.received)
        return [read_answer(link.waiting.popleft()[0], line) for line in lines_for(link.received, link.waiting)]

    def _give_up(self, link: _Link, why: str) -> None:
        link.socket.close()
        if self._links.get(link.path) is link:
            del self._links[link.path]
        self._lost += [ActuatorAnswer(request, False, why, sure=False) for request, _ in link.waiting]
        link.waiting.clear()


def receive(connection: socket.socket, received: bytearray) -> None:
    """Append what has come; ConnectionResetError at the end of the stream, ValueError where an answer has no end."""
    with contextlib.suppress(BlockingIOError):
        while True:
            piece = connection.recv(1 << 16)
            if not piece:
                raise ConnectionResetError("end of stream")
            received += piece
            if len(received) > _MOST_ANSWER_BYTES:
                raise ValueError("an answer without end")


def lines_for(received: bytearray, waiting: Sized) -> Iterator[bytes]:
    """Take whole lines off `received`, as long as somebody is waiting."""
    while waiting and (end := received.find(b"\n")) >= 0:
        line = bytes(received[:end])
        del received[: end + 1]
        yield line


def request_line(request: ActuatorRequest) -> bytes:
    """What goes over the socket."""
    what: dict[str, Any] = {"do": request.do, "command": request.command}
    if request.choice:
        what["choice"] = {"path": request.path}
    if request.do == "set":
        what["ttl_ms"] = request.ttl_ms
    return json.dumps(what, separators=(",", ":")).encode() + b"\n"


def read_answer(request: int, line: bytes) -> ActuatorAnswer:
    """What came back; anything unreadable is an answer that says nothing."""
    try:
        answer = strict_json.loads(line)
    except FormatError:
        answer = None
    if isinstance(answer, dict) and isinstance(answer.get("error"), str):
        return ActuatorAnswer(request, False, answer["error"])
    if not isinstance(answer, dict) or answer.get("ok") is not True:
        return ActuatorAnswer(request, False, "the process answered something that cannot be read", sure=False)
    before, after = (x if isinstance(x := answer.get(k), dict) else {} for k in ("before", "after"))
    return ActuatorAnswer(request, True, "", before, after)
