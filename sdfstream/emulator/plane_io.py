"""The data plane in Python: the reference, and the fallback where there is no C compiler.

A pass every two milliseconds: read what has arrived, let the engine work, send. Between two passes packets wait in
the sockets; arrivals are stamped by the kernel, so waiting falsifies no delay. The engine's clock does not count the
process's own stalls: a process that was not scheduled for a while must not take packets in its sockets for lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from sdfstream.emulator.process_net_io import JobNet
from sdfstream.emulator.process_nic_io import Enter
from sdfstream.emulator.process_rows import Rows
from sdfstream.emulator.rank_job import JobEngine, QpEnds, qp_stats
from sdfstream.emulator.rank_plan import JobPlan
from sdfstream.records.units import NS_PER_MS, NS_PER_S

PASS_NS: Final = 2 * NS_PER_MS
_STALL_NS: Final = 5 * PASS_NS
"""A pass later than this is a stall of the process; the engine's clock stands still meanwhile."""


class PythonPlane:
    """A `DataPlane` over `JobEngine` and `JobNet`.

    Parameters
    ----------
    plan : JobPlan
    run : int
    enter : Enter

    Raises
    ------
    ConfigError, UnavailableError
        A NIC cannot be used.
    """

    name = "Python"

    def __init__(self, plan: JobPlan, run: int, enter: Enter) -> None:
        self._now_ns = self._real_ns = time.monotonic_ns()
        self.engine = JobEngine(plan, run, self._now_ns)
        self._worst_pass_ns = 0
        self._net = JobNet(plan.nics, run, enter, self.engine.counters)
        self._stopped = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_done(self) -> bool:
        """Whether every rank has done its last collective."""
        return self.engine.is_done

    def start(self, changed: Callable[[], None]) -> None:
        """Begin to make passes."""
        self._real_ns = time.monotonic_ns()
        self._task = asyncio.get_running_loop().create_task(self._pace())
        self._task.add_done_callback(lambda _: changed())

    def check(self) -> None:
        """Reopen the NICs that went away."""
        if self._task is not None and self._task.done():
            self._task.result()
        self._net.reopen()

    def stop(self) -> None:
        """Make no more passes, and close the sockets."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
        self._net.close()

    def close(self) -> None:
        """Nothing is left."""

    def sender(self, index: int) -> _Steered:
        """The sending end of a queue pair."""
        return _Steered(list(self.engine.ends.values())[index], self)

    def stats(self) -> dict[str, Any]:
        """Figures since the start."""
        return {"worst_pass_ms": self._worst_pass_ns / NS_PER_MS, **self.engine.stats()}

    def qps(self) -> list[dict[str, Any]]:
        """The figures of each queue pair."""
        return [qp_stats(ends) for ends in self.engine.ends.values()]

    def take_rows(self) -> Rows:
        """The chunks carried since the last call."""
        chunks = list(self.engine.finished)
        self.engine.finished.clear()
        return chunks

    @property
    def now_ns(self) -> int:
        """The engine's clock."""
        return self._now_ns

    def pass_now(self) -> None:
        """One pass; an additional one, too: a command that moved a queue pair takes effect at once."""
        if self._stopped:
            return
        real_ns = time.monotonic_ns()
        self._worst_pass_ns = max(self._worst_pass_ns, real_ns - self._real_ns)
        self._now_ns += min(real_ns - self._real_ns, _STALL_NS)
        self._real_ns = real_ns
        now_ns = self._now_ns
        receive = self.engine.receive
        self._net.receive(lambda rank, port, tos, at_ns, packet: receive(rank, port, tos, at_ns, packet, now_ns))
        batch = self.engine.step(now_ns)
        if batch:
            self._net.send(batch)

    async def _pace(self) -> None:
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while not self.engine.is_done:
            self.pass_now()
            next_s = max(next_s + PASS_NS / NS_PER_S, loop.time())
            await asyncio.sleep(next_s - loop.time())


class _Steered:
    """A queue pair's sending end as commands see it: a change takes effect in a pass of its own."""

    def __init__(self, ends: QpEnds, plane: PythonPlane) -> None:
        self._sender = ends.requester
        self._plane = plane

    @property
    def path(self) -> int:
        """Source port now."""
        return self._sender.path

    @property
    def rate_bps(self) -> int | None:
        """Limit in force."""
        return self._sender.rate_bps

    @rate_bps.setter
    def rate_bps(self, rate_bps: int | None) -> None:
        self._sender.rate_bps = rate_bps

    def steer(self, path: int, _now_ns: int) -> None:
        """Move, and send at once the packets due on the new path."""
        self._sender.steer(path, self._plane.now_ns)
        self._plane.pass_now()
