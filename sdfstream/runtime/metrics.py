"""A process's counters and signs of life as Prometheus's families.

Names: a counter ``part.what.reason`` is ``sdfstream_<part>_<what>_total{reason=…}``; per task there are
``sdfstream_task_lag_messages``, ``…_progress_age_seconds``, ``…_bus_time_age_seconds`` and ``…_oldest_age_seconds``.
Nothing is labelled with a NIC or a pair of them: those live in ClickHouse.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from sdfstream import __version__
from sdfstream.runtime.health import STALL_S, Signs, problems
from sdfstream.stats import Counters

MOST_REASONS: Final = 200
"""Label values of one counter; the rarest beyond go under ``other``. Reasons are fixed words: this is for a mistake."""
_NOT_A_NAME: Final = re.compile(r"[^a-zA-Z0-9]+")


class Counted(Protocol):
    """Anything that counts."""

    @property
    def counters(self) -> Counters:
        """What it counted."""


@dataclass(slots=True)
class Told:
    """What a process tells of itself."""

    signs: Signs
    expected: Sequence[str] = ()
    """Readers that must be there."""
    parts: Sequence[Counted] = ()
    totals: Callable[[], Mapping[str, int]] = dict
    """Further counters, under dotted names."""
    gauges: Mapping[str, Callable[[], float | None]] = field(default_factory=dict)
    """Further figures, by names without the prefix ``sdfstream_``; None: not known now."""
    stall_s: float = STALL_S
    bus_s: float | None = None
    """When the bus last answered, seconds of the monotonic clock; None: it is not asked."""

    def problems(self, now_s: float) -> list[str]:
        """Why it is not well at `now_s` of the monotonic clock."""
        found = problems(self.signs, self.expected, now_s, stall_s=self.stall_s)
        if self.bus_s is not None and now_s - self.bus_s > self.stall_s:
            found.append(f"the bus has not answered for {now_s - self.bus_s:.0f} s")
        return found


class TellingCollector(Collector):
    """`Told` as Prometheus's families, made at each scrape."""

    def __init__(self, told: Told, steady_s: Callable[[], float], clock: Callable[[], int]) -> None:
        self._told, self._steady_s, self._clock = told, steady_s, clock

    def collect(self) -> Iterable[Metric]:
        """All families, of this moment."""
        told, now_s, now_ns = self._told, self._steady_s(), self._clock()
        yield InfoMetricFamily("sdfstream", "The program.", {"version": __version__})
        yield GaugeMetricFamily(
            "sdfstream_healthy", "1: all tasks get on (/health).", value=float(not told.problems(now_s))
        )
        yield from self._tasks(now_s, now_ns)
        for name, read in told.gauges.items():
            if (value := read()) is not None:
                yield GaugeMetricFamily(f"sdfstream_{name}", name.replace("_", " "), value=value)
        yield from families([*(part.counters for part in told.parts), *_taken_apart(told.totals())])

    def _tasks(self, now_s: float, now_ns: int) -> Iterator[Metric]:
        signs = self._told.signs
        lag, progress_s, reached_ns, oldest_ns = (
            sorted(of.copy().items()) for of in (signs.lag, signs.progress_s, signs.reached_ns, signs.oldest_ns)
        )
        yield _by_task("lag_messages", "Messages on the bus that it has not read.", lag)
        yield _by_task("progress_age_seconds", "Since it moved.", ((n, now_s - at) for n, at in progress_s))
        yield _by_task(
            "bus_time_age_seconds",
            "How far behind now the bus time is that it has reached.",
            ((n, (now_ns - at) / 1e9) for n, at in reached_ns if at),
        )
        yield _by_task(
            "oldest_age_seconds",
            "Age on the bus of the oldest message taken and not settled. Of task archive: the oldest row not archived. "
            "Absent: there is none.",
            ((n, (now_ns - at) / 1e9) for n, at in oldest_ns),
        )


def _by_task(name: str, doc: str, values: Iterable[tuple[str, float]]) -> Metric:
    family = GaugeMetricFamily(f"sdfstream_task_{name}", doc, labels=["task"])
    for task, value in values:
        family.add_metric([task], value)
    return family


def families(counted: Sequence[Counters]) -> Iterator[Metric]:
    """Counters as families; those of the same part and name (replicas of a stage in one process) are added up."""
    sums: dict[str, Counter[str]] = {}
    for counters in counted:
        for (what, reason), n in list(counters.values.items()):
            sums.setdefault(f"sdfstream_{_name(counters.stage)}_{_name(what)}", Counter())[reason] += n
    for name, by_reason in sorted(sums.items()):
        family = CounterMetricFamily(name, "Counted since the process began.", labels=["reason"])
        shown = by_reason.most_common(MOST_REASONS)
        for reason, n in sorted(shown):
            family.add_metric([reason], n)
        if rest := by_reason.total() - sum(n for _, n in shown):
            family.add_metric(["other"], rest)
        yield family


def _taken_apart(totals: Mapping[str, int]) -> Iterator[Counters]:
    """Counters again from their dotted names ``part.what.reason``."""
    for dotted, n in totals.items():
        stage, what, reason = (*dotted.split(".", 2), "", "")[:3]
        yield Counters(stage, {(what, reason): n})


def _name(text: str) -> str:
    return _NOT_A_NAME.sub("_", text).strip("_").lower() or "unnamed"
