"""What the executor requests of an actuator that can change a queue pair, and its answer: one seam, several methods.

`qp_socket_io` speaks to the process that owns the queue pair, `kernel_flow_io` rewrites an unmodified program's
packets; `MemoryActuator` is the twin that tests run against. All pass ``tests/contract/actuators.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sdfstream.records.fabric import QueuePair


@dataclass(frozen=True, slots=True)
class ActuatorRequest:
    """One change to one queue pair, under one signed command."""

    id: int
    """The executor's number for it; the answer carries it."""
    do: str
    """``set`` (path or rate) or ``undo`` (of the command)."""
    qp: QueuePair
    """As the job map has it."""
    control: str
    """Unix socket of the process that owns it; empty: none."""
    command: Mapping[str, Any]
    """The signed command, for an actuator that checks for itself."""
    path: int | None = None
    """Source port to put it on; None: the path is not touched."""
    choice: bool = False
    """`path` was chosen by the agent among what the command allows (failover, failback)."""
    rate_bps: int | None = None
    """Limit to put on it; with ``undo`` and no path: the limit is lifted."""
    ttl_ms: int = 0
    """A limit ends by itself after this long without renewal."""
    peer: bool = False
    """This is the receiving end of a kernel flow: translate `paths` back to the flow's own port."""
    paths: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ActuatorAnswer:
    """What became of a request."""

    request: int
    ok: bool
    why: str = ""
    """A sentence, where it was not done."""
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    sure: bool = True
    """False: no answer came, so it may have been done all the same."""


class Actuator(Protocol):
    """Changes queue pairs. Neither method waits."""

    def apply(self, request: ActuatorRequest, now_ns: int) -> ActuatorAnswer | None:
        """Have `request` done: all bytes for it leave in this call. None: `answers` will have its answer."""

    def answers(self, now_ns: int) -> list[ActuatorAnswer]:
        """Answers that have come since the last call; a request whose time is out is answered as not done."""


@dataclass(slots=True)
class MemoryActuator:
    """Queue pairs in memory: the twin."""

    paths: dict[str, int] = field(default_factory=dict)
    rates: dict[str, int | None] = field(default_factory=dict)
    rate_until_ns: dict[str, int] = field(default_factory=dict)
    deaf: set[str] = field(default_factory=set)
    """Queue pairs whose requests are refused."""
    asked: list[ActuatorRequest] = field(default_factory=list)

    def apply(self, request: ActuatorRequest, now_ns: int) -> ActuatorAnswer | None:
        """Done at once, or refused."""
        self.asked.append(request)
        qp = request.qp.qp
        if qp in self.deaf:
            return ActuatorAnswer(request.id, False, "refused: told to")
        self.expire(now_ns)
        before = self._state(request.qp)
        if request.path is not None:
            self.paths[qp] = request.path
        elif request.do == "undo":
            self.rates[qp] = None
        elif request.rate_bps is not None:
            self.rates[qp] = request.rate_bps
            self.rate_until_ns[qp] = now_ns + request.ttl_ms * 1_000_000
        return ActuatorAnswer(request.id, True, "", before, self._state(request.qp))

    def answers(self, now_ns: int) -> list[ActuatorAnswer]:
        """All were given at once."""
        self.expire(now_ns)
        return []

    def expire(self, now_ns: int) -> None:
        """Limits whose own time is over end."""
        for qp, until_ns in self.rate_until_ns.items():
            if now_ns >= until_ns:
                self.rates[qp] = None

    def _state(self, qp: QueuePair) -> dict[str, Any]:
        return {"path": self.paths.get(qp.qp, qp.path), "rate_bps": self.rates.get(qp.qp)}
