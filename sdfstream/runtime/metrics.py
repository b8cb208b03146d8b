"""A process's counters and progress as families of Prometheus.

Names: a counter ``stage.what.reason`` is ``sdfstream_<stage>_<what>_total{reason=…}``; per task there are
``sdfstream_task_lag_messages``, ``…_progress_age_seconds``, ``…_bus_time_age_seconds`` and ``…_oldest_age_seconds``.
Nothing is labelled with a NIC or a pair of them: those live in ClickHouse.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from sdfstream import __version__
from sdfstream.runtime.health import STALL_S, ReaderProgress, problems
from sdfstream.stats import Counters, HasCounters

MOST_REASONS: Final = 200
"""Label values of one counter; the rarest beyond are summed as ``other``. Reasons are fixed words, so that this bound
is met only by mistake."""
_SUMS: Final = {
    "refused": ("Messages and rows that could not be used, for whatever reason.", ("refused", "set-aside")),
    "lost": ("Messages and rows that were shed or gone before they were used.", ("lost", "shed", "dropped")),
}
"""Sums over all counters of a process, there from the start: a rule over a counter that appears with its first count
would miss that count."""
RAISED: Final = ("set-aside", "tick-raised", "finish-raised", "begun-anew")
"""Counters of code that raised."""
_NOT_A_NAME: Final = re.compile(r"[^a-zA-Z0-9]+")


@dataclass(slots=True)
class ProcessStatus:
    """What a process serves as metrics and health: progress of its readers, counters, gauges."""

    readers: ReaderProgress
    expected: Sequence[str] = ()
    """Readers that must be there."""
    counted: Sequence[HasCounters] = ()
    totals: Callable[[], Mapping[str, int]] = dict
    """Further counters, under dotted names."""
    gauges: Mapping[str, Callable[[], float | None]] = field(default_factory=dict)
    """Further gauges, by names without the prefix ``sdfstream_``; None: not known now."""
    stall_s: float = STALL_S
    bus_answered_at_s: float | None = None
    """When the bus last answered a poll, seconds of the monotonic clock; None: the bus is not polled."""

    troubles: Callable[[], list[str]] = list
    """What is wrong with parts of the process, in sentences (`own_troubles`)."""

    def problems(self, now_s: float) -> list[str]:
        """Why the process is not well at `now_s`, seconds of the monotonic clock; none when it is."""
        found = problems(self.readers, self.expected, now_s, stall_s=self.stall_s)
        if self.bus_answered_at_s is not None and now_s - self.bus_answered_at_s > self.stall_s:
            found.append(f"the bus has not answered for {now_s - self.bus_answered_at_s:.0f} s")
        return found + self.troubles()

    def warnings(self) -> list[str]:
        """What a person should look at although the process gets on: where a stage's code raised (`runtime.aside`)."""
        found = Counter[str]()
        for one in self.counted:
            counters = one.counters
            for (what, reason), n in list(counters.values.items()):
                if what in RAISED:
                    found[f"{counters.stage}.{what}" + (f".{reason}" if reason else "")] += n
        return [f"{name} {n}" for name, n in sorted(found.items())]


class StatusCollector(Collector):
    """`ProcessStatus` as families of Prometheus, made at each scrape."""

    def __init__(self, status: ProcessStatus, steady_s: Callable[[], float], clock: Callable[[], int]) -> None:
        self._status, self._steady_s, self._clock = status, steady_s, clock

    def collect(self) -> Iterable[Metric]:
        """All families, with the values of this moment."""
        status, now_s, now_ns = self._status, self._steady_s(), self._clock()
        yield InfoMetricFamily("sdfstream", "The program.", {"version": __version__})
        yield GaugeMetricFamily(
            "sdfstream_healthy", "1: all tasks get on (/health).", value=float(not status.problems(now_s))
        )
        yield from self._tasks(now_s, now_ns)
        for name, read in status.gauges.items():
            if (value := read()) is not None:
                yield GaugeMetricFamily(f"sdfstream_{name}", name.replace("_", " "), value=value)
        counted = [*(one.counters for one in status.counted), *_from_dotted(status.totals())]
        for name, (doc, words) in _SUMS.items():
            total = sum(n for c in counted for (what, _), n in list(c.values.items()) if what in words)
            yield CounterMetricFamily(f"sdfstream_{name}", doc, value=total)
        yield GaugeMetricFamily("sdfstream_troubles", "What is wrong with parts of it.", value=len(status.troubles()))
        yield from families(counted)

    def _tasks(self, now_s: float, now_ns: int) -> Iterator[Metric]:
        readers = self._status.readers
        lag, progress_at_s, reached_at_ns, oldest_at_ns = (
            sorted(of.copy().items())
            for of in (readers.lag, readers.progress_at_s, readers.reached_at_ns, readers.oldest_at_ns)
        )
        yield _by_task("lag_messages", "Messages on the bus that it has not read.", lag)
        yield _by_task("progress_age_seconds", "Since it moved.", ((n, now_s - at) for n, at in progress_at_s))
        yield _by_task(
            "bus_time_age_seconds",
            "How far behind now the bus time is that it has reached.",
            ((n, (now_ns - at) / 1e9) for n, at in reached_at_ns if at),
        )
        yield _by_task(
            "oldest_age_seconds",
            "Age on the bus of the oldest message taken and not settled. Of task archive: the oldest row not archived. "
            "Absent: there is none.",
            ((n, (now_ns - at) / 1e9) for n, at in oldest_at_ns),
        )


def _by_task(name: str, doc: str, values: Iterable[tuple[str, float]]) -> Metric:
    family = GaugeMetricFamily(f"sdfstream_task_{name}", doc, labels=["task"])
    for task, value in values:
        family.add_metric([task], value)
    return family


def families(counted: Sequence[Counters]) -> Iterator[Metric]:
    """Counters as families; those of one stage and name (units of a stage in one process) are added up."""
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


def _from_dotted(totals: Mapping[str, int]) -> Iterator[Counters]:
    """Counters of the dotted names ``stage.what.reason``."""
    for dotted, n in totals.items():
        stage, what, reason = (*dotted.split(".", 2), "", "")[:3]
        yield Counters(stage, {(what, reason): n})


def _name(text: str) -> str:
    return _NOT_A_NAME.sub("_", text).strip("_").lower() or "unnamed"
