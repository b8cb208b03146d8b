"""Was it worth it? Every move for contention is a trial: throughput before and after, and no gain means back.

::

    sent ──(outcome applied)──► applied ──(first window on the new path)──► settling, then windows after ──► concluded
      └──(no answer, refused)──► dropped                  └──(nothing to measure for too long)──► taken back

A move stays when the queue pair, or the slowest queue pair of its job and of those it shared the full link with, got
faster by `kept_gain` and by more than noise. Windows have the source port that they left on, so what was before and
what after is read off the windows themselves, whatever the clocks. (A kernel flow's windows show its program's own
port; for those the windows that came after the outcome count, with twice the settling time.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from sdfstream.actuate.config import ns
from sdfstream.actuate.context import Context
from sdfstream.actuate.jobs import MeanRate
from sdfstream.actuate.ledger import IssuedCommand
from sdfstream.actuate.refusals import Doubt
from sdfstream.records.message import Output
from sdfstream.records.units import NS_PER_S, TICK_NS

_ANSWER_NS: Final = 5 * NS_PER_S
"""An agent without an outcome for this long does not obey."""
_LEAST: Final = 5
"""Windows below which a throughput is not one."""
_SAVED_AS: Final = {"command": "lease", "predicted_bps": "hoped_bps", "affected": "companions"}
"""Fields of `MoveTrial` that have another name in a snapshot."""


@dataclass(slots=True)
class MoveTrial:
    """A move whose effect is not known yet."""

    command: str
    qp: str
    job: str
    hop: str
    """The full link it left."""
    rail: str
    former: int
    path: int
    began_ns: int
    predicted_bps: float
    base: int
    """Number of its newest window at the decision."""
    affected: list[str]
    """Queue pairs of its job and on the full link."""
    excess_ns: float = 0.0
    """Of the full link at the decision."""
    kernel: bool = False
    applied_ns: int = 0
    first: int = -1
    """Number of the first window on the new path."""
    before: list[float] = field(default_factory=list)
    """Throughput (bit/s), its standard error and n of the moved one, then of the slowest one affected."""

    def as_row(self) -> dict[str, Any]:
        """Its fields by their names in a snapshot."""
        return {_SAVED_AS.get(f.name, f.name): getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> MoveTrial:
        """The trial that `as_row` was made of."""
        return cls(**{f.name: row[_SAVED_AS.get(f.name, f.name)] for f in fields(cls)})


class MoveTrials(dict[str, MoveTrial]):
    """All moves whose effect is not known yet, by queue pair."""

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [trial.as_row() for trial in self.values()]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.clear()
        self.update((row["qp"], MoveTrial.from_row(row)) for row in state)


class Effects:
    """Measures what moves brought."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def follow(self, trial: MoveTrial, now_ns: int) -> list[Output] | None:
        """Conclude a trial for which enough was measured, or enough time has passed; None: it goes on."""
        command = self._context.ledger.get(trial.command)
        if command is None or command.state in ("over", "held") or self._context.jobs.get(trial.qp) is None:
            if command is not None and command.state == "over":
                self._ban(trial, now_ns)
            return []
        if command.state != "applied":
            if now_ns - trial.began_ns < _ANSWER_NS:
                return None
            self._ban(trial, now_ns)
            doubt = Doubt(
                "no-answer", f"{command.host} did not say within {_ANSWER_NS // NS_PER_S} s what became of it"
            )
            return self._take_back(command, doubt, {}, {}, now_ns)
        trial.applied_ns = trial.applied_ns or now_ns
        self._measure_before(trial)
        after = self._measure_after(trial)
        if trial.before and after is not None:
            return self._conclude(trial, command, after, now_ns)
        if now_ns - trial.applied_ns < ns(self._context.config.effect_wait_s):
            return None
        self._ban(trial, now_ns)
        doubt = Doubt("not-measured", "too little was sent on the new path to tell whether it is better; taken back")
        return self._take_back(command, doubt, {"path": trial.former}, {"path": trial.path}, now_ns)

    def _measure_before(self, trial: MoveTrial) -> None:
        """Measure what was, once the first window on the new path is there and those before are still in the ring."""
        if trial.before:
            return
        windows, span = self._context.windows, self._span()
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

    def _measure_after(self, trial: MoveTrial) -> tuple[MeanRate, MeanRate] | None:
        """Throughput now, of the moved one and of the slowest one affected; None: not enough windows yet."""
        if not trial.before:
            return None
        settle = round(self._context.config.settle_s * NS_PER_S / TICK_NS) * (2 if trial.kernel else 1)
        first, windows = trial.first + settle, self._context.windows
        own = windows.between(trial.qp, first, windows.newest, None if trial.kernel else trial.path)
        if own.n < self._span():
            return None
        return own, self._slowest(trial, first, windows.newest)

    def _span(self) -> int:
        return max(_LEAST, round(self._context.config.effect_s * NS_PER_S / TICK_NS))

    def _slowest(self, trial: MoveTrial, first: int, last: int) -> MeanRate:
        found = [self._context.windows.between(qp, first, last) for qp in (trial.qp, *trial.affected)]
        known = [t for t in found if t.n >= _LEAST]
        return min(known, key=lambda t: t.bps) if known else MeanRate(0.0, 0.0, 0)

    def _conclude(
        self, trial: MoveTrial, command: IssuedCommand, after: tuple[MeanRate, MeanRate], now_ns: int
    ) -> list[Output]:
        own, slow = after
        b = trial.before
        was, was_slow = MeanRate(b[0], b[1], int(b[2])), MeanRate(b[3], b[4], int(b[5]))
        queue = self._context.queue_delays.queue(trial.hop, now_ns)
        before = _figures(trial.former, was, was_slow, trial.excess_ns)
        now = _figures(trial.path, own, slow, queue.excess_ns)
        gained = self._better(was, own)
        keeps = gained or self._better(was_slow, slow)
        text = (
            f"{was.bps / 1e6:.1f} to {own.bps / 1e6:.1f} Mbit/s, the slowest beside it {was_slow.bps / 1e6:.1f} to "
            f"{slow.bps / 1e6:.1f} Mbit/s"
        )
        if keeps:
            return [
                *self._context.commands.count_result(False, now_ns),
                self._publish(command, Doubt("effect", f"{text}: kept"), before, now, now_ns),
            ]
        self._ban(trial, now_ns)
        return self._take_back(command, Doubt("no-gain", f"{text}: taken back"), before, now, now_ns)

    def _better(self, was: MeanRate, now: MeanRate) -> bool:
        if was.n < _LEAST or now.n < _LEAST:
            return False
        config = self._context.config
        noise = config.noise_errors * math.hypot(was.error_bps, now.error_bps)
        return now.bps - was.bps > max(config.kept_gain * was.bps, noise)

    def _ban(self, trial: MoveTrial, now_ns: int) -> None:
        self._context.commands.ban(trial.qp, now_ns, trial.path)

    def _take_back(
        self, command: IssuedCommand, doubt: Doubt, before: dict[str, Any], after: dict[str, Any], now_ns: int
    ) -> list[Output]:
        return [
            self._publish(command, doubt, before, after, now_ns),
            *self._context.commands.undo(command, tuple(command.reason), now_ns),
            *self._context.commands.count_result(True, now_ns),
        ]

    def _publish(
        self, command: IssuedCommand, doubt: Doubt, before: dict[str, Any], after: dict[str, Any], now_ns: int
    ) -> Output:
        self._context.counters.add("effects", doubt.rule)
        reason = tuple(command.reason)
        return self._context.refusals.publish(
            command.id, "applied", doubt, command.action, command.target, reason, now_ns, before, after
        )


def _figures(path: int, own: MeanRate, slowest: MeanRate, excess_ns: float) -> dict[str, Any]:
    return {
        "path": path,
        "throughput_bps": round(own.bps),
        "error_bps": round(own.error_bps),
        "n": own.n,
        "slowest_bps": round(slowest.bps),
        "slowest_n": slowest.n,
        "excess_ns": round(excess_ns),
    }
