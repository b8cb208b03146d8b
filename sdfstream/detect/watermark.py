"""How far agents' reports have come: the watermark of the dataflow model (Akidau et al., VLDB 2015), on bus time.

Each agent's messages carry readings of its own clock, and `bustime` dates them; so it is known up to when each agent
has reported. The **watermark** is the instant up to which a quarter of them (at least one) has. It lags behind bus
time as far as all messages come late together: then the bus or the pipeline is late, and no agent. While it stands, no
silence proves anything. What is judged by age compares with the watermark, what is judged by silence with its
**progress**: how far it came, at most as fast as bus time. A backlog of five seconds that is read in one is no progress
of five seconds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_SHARE: Final = 4
"""One of so many agents has reported up to the watermark."""
_ON_TIME_NS: Final = 500 * NS_PER_MS
"""A watermark this close to bus time does not lag: flushes and time-outs make such gaps."""
_STANDS_NS: Final = NS_PER_S
"""A watermark that has not moved for longer stands."""
_OWED_NS: Final = 500 * NS_PER_MS
"""So much of a step that was faster than bus time counts later."""
_GONE: Final = 50
"""A host from which nothing new came in so many boundaries at which something new came from others is none of those of
which a quarter is asked: names that spoke once would make the watermark stand."""
_MEMORY_NS: Final = 5 * NS_PER_S
"""For how long a lag excuses what is late: a backlog is read host by host."""


@dataclass(slots=True)
class Watermark:
    """Moves at 100 ms boundaries; every figure is ns of bus time."""

    at_ns: int = ABSENT_NS
    """The watermark itself; absent before the first report."""
    now_ns: int = ABSENT_NS
    """Last boundary."""
    moved_at_ns: int = ABSENT_NS
    """Boundary at which it moved last."""
    progress_ns: int = 0
    owed_ns: int = 0
    worst_lag_ns: int = 0
    """Largest lag of the last `_MEMORY_NS`."""
    worst_at_ns: int = ABSENT_NS
    reported_ns: Ints = field(default_factory=lambda: np.empty(0, np.int64), compare=False)
    """(hosts,) as of the last boundary."""
    passed_over: Ints = field(default_factory=lambda: np.empty(0, np.int64), compare=False)
    """(hosts,) boundaries at which others had news since this one had any."""

    def advance(self, reported_ns: Ints, now_ns: int) -> None:
        """Go on to `now_ns`; `reported_ns`: up to when each host has reported, absent where it has not."""
        known = reported_ns[self._report(reported_ns)]
        passed_ns = now_ns - self.now_ns if self.now_ns != ABSENT_NS else 0
        self.now_ns = now_ns
        if not known.size:
            return
        first = known.size - max(1, known.size // _SHARE)
        newest_ns = int(np.partition(known, first)[first])
        moved_ns = 0 if self.at_ns == ABSENT_NS else max(0, newest_ns - self.at_ns)
        step_ns = min(moved_ns + self.owed_ns, passed_ns)
        self.progress_ns += step_ns
        self.owed_ns = min(moved_ns + self.owed_ns - step_ns, _OWED_NS)
        if moved_ns > 0 or self.at_ns == ABSENT_NS:
            self.at_ns, self.moved_at_ns = newest_ns, now_ns
        lag_ns = self.lag_ns(now_ns)
        if lag_ns >= self.worst_lag_ns or now_ns - self.worst_at_ns > _MEMORY_NS:
            self.worst_lag_ns, self.worst_at_ns = lag_ns, now_ns

    def _report(self, reported_ns: Ints) -> Bools:
        """Which hosts count, after what they have reported until this boundary."""
        more = reported_ns.size - self.reported_ns.size
        before_ns = np.append(self.reported_ns, np.full(more, ABSENT_NS))
        news = reported_ns != before_ns
        self.passed_over = np.append(self.passed_over, np.zeros(more, np.int64))
        if news.any():
            self.passed_over = np.where(news, 0, self.passed_over + 1)
        self.reported_ns = reported_ns.copy()
        result: Bools = (reported_ns != ABSENT_NS) & (self.passed_over < _GONE)
        return result

    def lag_ns(self, now_ns: int) -> int:
        """How late all agents' messages are together; 0 when they are on time."""
        lag_ns = now_ns - self.at_ns
        return lag_ns if self.at_ns != ABSENT_NS and lag_ns > _ON_TIME_NS else 0

    def excused_ns(self) -> int:
        """Lateness that is no single agent's own: the largest lag lately."""
        return self.worst_lag_ns

    def stands(self, now_ns: int, for_ns: int = _STANDS_NS) -> bool:
        """Whether it has not moved for longer than `for_ns`: nothing proves that anybody is silent."""
        return self.moved_at_ns != ABSENT_NS and now_ns - self.moved_at_ns > for_ns

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return asdict(self)

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        for name, value in state.items():
            setattr(self, name, value)
