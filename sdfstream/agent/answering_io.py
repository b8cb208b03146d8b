"""When the reflectors of an agent's hosts answer: at once when a probe finds them idle, then with rests in between."""

from __future__ import annotations

import asyncio
import math
import select
import time
from collections.abc import Callable, Sequence
from typing import Final

from sdfstream.agent.host_io import HostAgent

_REST, _LONGEST_REST, _SMOOTH = 32, 10, 8
"""A rest is 32 times as long as the work, but at most 10 times the usual, and no longer than fast probes can wait; the
work is averaged over 8 passes."""

Guard = Callable[[str, Callable[[], bool]], bool]
"""Runs a function; its failure is counted under a name and logged, and does not end the agent."""


class Answering:
    """Wakes the reflectors.

    Parameters
    ----------
    hosts : sequence of HostAgent
        Started.
    turnaround_ms : float
        The usual rest, see `AgentConfig.turnaround_ms`.
    guard : callable
    """

    def __init__(self, hosts: Sequence[HostAgent], turnaround_ms: float, guard: Guard) -> None:
        self._requests: Final = select.epoll()
        self._host_of = {host.packets.arrivals_fd(): host.packets for host in hosts if not host.packets.self_driven}
        for fd in self._host_of:
            self._requests.register(fd, select.EPOLLIN)
        self._usual_s = turnaround_ms / 1e3
        self._work_s = 0.0
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        self._rest: asyncio.TimerHandle | None = None
        self._wait()

    def close(self) -> None:
        """Stop."""
        self._loop.remove_reader(self._requests.fileno())
        if self._rest is not None:
            self._rest.cancel()
        self._requests.close()

    def _wait(self) -> None:
        self._rest = None
        self._loop.add_reader(self._requests.fileno(), self._wake)

    def _wake(self) -> None:
        self._loop.remove_reader(self._requests.fileno())
        self._answer()

    def _answer(self) -> None:
        """Answer the probes that have come; after any, rest and try again, else wait for the next probe."""
        began_s = time.monotonic()
        ready = [self._host_of[fd] for fd, _ in self._requests.poll(0, len(self._host_of))]
        if any([self._guard("reflector", packets.reflect) for packets in ready]):
            self._work_s += (time.monotonic() - began_s - self._work_s) / _SMOOTH
            longest_s = min(
                _LONGEST_REST * self._usual_s, *(p.longest_rest_ns() / 1e9 or math.inf for p in ready), math.inf
            )
            rest_s = max(min(self._work_s * _REST, longest_s), self._usual_s)
            self._rest = self._loop.call_later(rest_s, self._answer)
        else:
            self._wait()
