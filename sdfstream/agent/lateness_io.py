"""How late an agent is, and for want of what: its own turns, the packet engine's, and the kernel's account of both."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import numpy as np

from sdfstream.agent.lateness import DECILE, FULL, RateGovernor, Rates, TurnLateness, sentence
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.agent")

_SCHEDULED: Final = Path("/proc/self/schedstat")
"""Time on a processor and time in wait of one, of the main thread, ns (kernel's scheduler/sched-stats)."""
_PROCESSORS: Final = Path("/proc/stat")
_SOFTIRQ: Final = 7
"""Its column in a line of `_PROCESSORS` (proc_pid_stat(5))."""
_MUCH: Final = 0.25
"""Of a processor."""

EngineQuantile = Callable[[Mapping[int, int]], tuple[int, dict[int, int]]]
"""A reading of the engine's lateness and, given the one before, the decile of what came since, ns."""


class _Account(NamedTuple):
    """The kernel's account: seconds since some start."""

    at_s: float
    waited_s: float
    softirq_s: float


class Slowed(Protocol):
    """Probes at what rates it is told to (`host_io.HostAgent`)."""

    def slow_down(self, rates: Rates) -> None:
        """Probe at these shares of the rates that are wanted, from now on."""


class PaceKeeper:
    """Lets an agent give up work while it is late, and say so.

    Parameters
    ----------
    counters : Counters
        Gets ``slowed`` (seconds at less than the full rates), and the trouble ``pace``.
    engine : callable, optional
        As `LatenessMeter`.
    """

    def __init__(self, counters: Counters, engine: EngineQuantile | None = None) -> None:
        self._counters = counters
        self._meter = LatenessMeter(engine)
        self._governor = RateGovernor()
        self._cause = ""

    def note(self, late_s: float) -> None:
        """A turn of the loop came so late."""
        self._meter.note(late_s)

    def look(self, hosts: Sequence[Slowed]) -> None:
        """Once a second: let `hosts` have the rates that it can keep up with."""
        before = self._governor.rates
        rates = self._governor.look(self._meter.read())
        if rates != before:
            self._cause = self._meter.cause  # kept until the next step, for a sentence that changes is told again
            _log.warning("%s", sentence(rates, self._cause))
            for host in hosts:
                host.slow_down(rates)
        if rates == FULL:
            self._counters.troubles.end("pace")
        else:
            self._counters.add("slowed")
            self._counters.troubles.begin("pace", sentence(rates, self._cause))


class LatenessMeter:
    """Notes how late the loop's turns are, and says once a second what it comes to.

    Parameters
    ----------
    engine : callable, optional
        Of the packet engine; without one, the loop sends the probes.
    """

    def __init__(self, engine: EngineQuantile | None = None) -> None:
        self._engine = engine
        self._bins: dict[int, int] = {}
        if engine is not None:
            _, self._bins = engine({})
        self._turns_s: list[float] = []
        self._account = _account()
        self.cause = ""
        """For want of what it was late in the time before the last `read`."""

    def note(self, late_s: float) -> None:
        """A turn of the loop came so late."""
        self._turns_s.append(late_s)

    def read(self) -> TurnLateness:
        """The deciles since the last call."""
        turns_s, self._turns_s = self._turns_s, []
        loop_ns = int(np.quantile(turns_s, DECILE) * NS_PER_S) if turns_s else 0
        probes_ns = 0 if self._engine is not None else loop_ns
        if self._engine is not None:
            probes_ns, self._bins = self._engine(self._bins)
        before, self._account = self._account, _account()
        self.cause = _cause(before, self._account)
        return TurnLateness(probes_ns, loop_ns)


def _account() -> _Account:
    waited_s = softirq_s = 0.0
    with suppress(OSError, ValueError, IndexError):  # a kernel without it, or /proc is not mounted
        waited_s = int(_SCHEDULED.read_text().split()[1]) / NS_PER_S
    with suppress(OSError, ValueError, IndexError):
        softirq_s = int(_PROCESSORS.read_text().split("\n", 1)[0].split()[_SOFTIRQ]) / os.sysconf("SC_CLK_TCK")
    return _Account(time.monotonic(), waited_s, softirq_s)


def _cause(before: _Account, now: _Account) -> str:
    passed_s = max(now.at_s - before.at_s, 1e-3)
    if (now.waited_s - before.waited_s) / passed_s > _MUCH:
        return "it waits for a processor"
    if (now.softirq_s - before.softirq_s) / passed_s > _MUCH:
        return "the kernel's packets (softirq) take a processor"
    return "its own work takes a processor"
