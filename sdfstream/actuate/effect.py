"""Was it worth it? Every move for contention is a trial: throughput before and after, and no gain means back.

::

    sent ──(outcome applied)──► applied ──(first window on the new path)──► settling, then windows after ──► judged
      └──(no answer, refused)──► dropped                  └──(nothing to measure for too long)──► taken back

A move is kept when the queue pair, or the slowest queue pair of its job and of those it shared the full link with, got
faster by `kept_gain` and by more than noise. Windows say on which source port they left, so what was before and what
after is read off the windows themselves, whatever the clocks. (A kernel flow's windows show its program's own port; for
those the windows that came after the outcome count, with twice the settling time.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sdfstream.actuate.config import ns
from sdfstream.actuate.context import Parts
from sdfstream.actuate.ledger import Doubt, Lease
from sdfstream.actuate.measurements import Throughput
from sdfstream.records.message import Output
from sdfstream.records.units import NS_PER_S, TICK_NS

_ANSWER_NS: Final = 5 * NS_PER_S
"""An agent that says nothing for this long does not obey."""
_LEAST: Final = 5
"""Windows below which a throughput is not one."""
_COMPANIONS: Final = 64
"""Queue pairs beside the moved one that are looked at."""


@dataclass(slots=True)
class Trial:
    """A move whose effect is not known yet."""

    lease: str
    qp: str
    job: str
    hop: str
    """The full link it left."""
    rail: str
    former: int
    path: int
    began_ns: int
    hoped_bps: float
    base: int
    """Number of its newest window at the decision."""
    companions: list[str]
    """Queue pairs of its job and on the full link."""
    excess_ns: float = 0.0
    """Of the full link at the decision."""
    kernel: bool = False
    applied_ns: int = 0
    first: int = -1
    """Number of the first window on the new path."""
    before: list[float] = field(default_factory=list)
    """Throughput, its standard error and n of the moved one, then of the slowest companion."""


class Trials:
    """All moves under trial."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._trials: dict[str, Trial] = {}

    def __contains__(self, qp: str) -> bool:
        return qp in self._trials

    def busy(self, qps: Iterable[str], job: str) -> bool:
        """Whether a move that any of these queue pairs has to do with, or of this job, is being measured."""
        asked = set(qps)
        return any(trial.job == job or asked & {trial.qp, *trial.companions} for trial in self._trials.values())

    def begin(self, trial: Trial) -> None:
        """The command was sent."""
        self._trials[trial.qp] = trial
        self._parts.facts.rails[trial.qp] = trial.rail

    def tick(self, now_ns: int) -> list[Output]:
        """Judge what can be judged."""
        out: list[Output] = []
        for trial in list(self._trials.values()):
            out += self._see_to(trial, now_ns)
        return out

    def _see_to(self, trial: Trial, now_ns: int) -> list[Output]:
        lease = self._parts.ledger.get(trial.lease)
        if lease is None or lease.state in ("over", "held") or self._parts.jobs.get(trial.qp) is None:
            self._end(trial, now_ns, ban=lease is not None and lease.state == "over")
            return []
        if lease.state != "applied":
            if now_ns - trial.began_ns < _ANSWER_NS:
                return []
            self._end(trial, now_ns, ban=True)
            doubt = Doubt("no-answer", f"{lease.host} did not say within {_ANSWER_NS // NS_PER_S} s what became of it")
            return self._take_back(lease, doubt, {}, {}, now_ns)
        trial.applied_ns = trial.applied_ns or now_ns
        self._look_before(trial)
        after = self._after(trial)
        if trial.before and after is not None:
            return self._judge(trial, lease, after, now_ns)
        if now_ns - trial.applied_ns < ns(self._parts.config.effect_wait_s):
            return []
        self._end(trial, now_ns, ban=True)
        doubt = Doubt("not-measured", "too little was sent on the new path to tell whether it is better; taken back")
        return self._take_back(lease, doubt, {"path": trial.former}, {"path": trial.path}, now_ns)

    def _look_before(self, trial: Trial) -> None:
        """Measure what was, once the first window on the new path is there and the ones before are still kept."""
        if trial.before:
            return
        windows, span = self._parts.windows, self._span()
        if trial.kernel:
            first: int | None = windows.newest_of(trial.qp) + 1
        else:
            first = windows.first_on(trial.qp, trial.path, trial.base)
        if first is None:
            return
        trial.first = first
        own = windows.between(trial.qp, first - span, first - 1, None if trial.kernel else trial.former)
        slow = self._slowest(trial, first - span, first - 1)
        trial.before = [own.bps, own.error_bps, own.n, slow.bps, slow.error_bps, slow.n]

    def _after(self, trial: Trial) -> tuple[Throughput, Throughput] | None:
        """What is now: the moved one and the slowest companion; None: not enough windows yet."""
        if not trial.before:
            return None
        settle = round(self._parts.config.settle_s * NS_PER_S / TICK_NS) * (2 if trial.kernel else 1)
        first, windows = trial.first + settle, self._parts.windows
        own = windows.between(trial.qp, first, windows.newest, None if trial.kernel else trial.path)
        if own.n < self._span():
            return None
        return own, self._slowest(trial, first, windows.newest)

    def _span(self) -> int:
        return max(_LEAST, round(self._parts.config.effect_s * NS_PER_S / TICK_NS))

    def _slowest(self, trial: Trial, first: int, last: int) -> Throughput:
        found = [self._parts.windows.between(qp, first, last) for qp in (trial.qp, *trial.companions)]
        known = [t for t in found if t.n >= _LEAST]
        return min(known, key=lambda t: t.bps) if known else Throughput(0.0, 0.0, 0)

    def _judge(self, trial: Trial, lease: Lease, after: tuple[Throughput, Throughput], now_ns: int) -> list[Output]:
        own, slow = after
        b = trial.before
        was, was_slow = Throughput(b[0], b[1], int(b[2])), Throughput(b[3], b[4], int(b[5]))
        queue = self._parts.queue(trial.hop, now_ns)
        before = _figures(trial.former, was, was_slow, trial.excess_ns)
        now = _figures(trial.path, own, slow, queue.excess_ns)
        gained = self._better(was, own)
        kept = gained or self._better(was_slow, slow)
        self._end(trial, now_ns, ban=not kept)
        text = (
            f"{was.bps / 1e6:.1f} to {own.bps / 1e6:.1f} Mbit/s, the slowest beside it {was_slow.bps / 1e6:.1f} to "
            f"{slow.bps / 1e6:.1f} Mbit/s"
        )
        if kept:
            return [
                *self._parts.judged(False, now_ns),
                self._say(lease, Doubt("effect", f"{text}: kept"), before, now, now_ns),
            ]
        return self._take_back(lease, Doubt("no-gain", f"{text}: taken back"), before, now, now_ns)

    def _better(self, was: Throughput, now: Throughput) -> bool:
        if was.n < _LEAST or now.n < _LEAST:
            return False
        config = self._parts.config
        noise = config.noise_errors * math.hypot(was.error_bps, now.error_bps)
        return now.bps - was.bps > max(config.kept_gain * was.bps, noise)

    def _take_back(
        self, lease: Lease, doubt: Doubt, before: dict[str, Any], after: dict[str, Any], now_ns: int
    ) -> list[Output]:
        return [
            self._say(lease, doubt, before, after, now_ns),
            *self._parts.undo(lease, tuple(lease.reason), now_ns),
            *self._parts.judged(True, now_ns),
        ]

    def _say(self, lease: Lease, doubt: Doubt, before: dict[str, Any], after: dict[str, Any], now_ns: int) -> Output:
        self._parts.counters.add("effects", doubt.rule)
        reason = tuple(lease.reason)
        return self._parts.refusals.say(
            lease.id, "applied", doubt, lease.action, lease.target, reason, now_ns, before, after
        )

    def _end(self, trial: Trial, now_ns: int, *, ban: bool) -> None:
        del self._trials[trial.qp]
        self._parts.facts.rails.pop(trial.qp, None)
        if ban:
            self._parts.facts.banned[trial.qp, trial.path] = now_ns + ns(self._parts.config.path_ban_s)

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [asdict(trial) for trial in self._trials.values()]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._trials = {row["qp"]: Trial(**row) for row in state}


def companions(qps: Iterable[str], moved: str) -> list[str]:
    """The queue pairs looked at beside the moved one, by name."""
    return sorted({qp for qp in qps if qp != moved})[:_COMPANIONS]


def _figures(path: int, own: Throughput, slowest: Throughput, excess_ns: float) -> dict[str, Any]:
    return {
        "path": path,
        "throughput_bps": round(own.bps),
        "error_bps": round(own.error_bps),
        "n": own.n,
        "slowest_bps": round(slowest.bps),
        "slowest_n": slowest.n,
        "excess_ns": round(excess_ns),
    }
