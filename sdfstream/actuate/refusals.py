"""Why nothing is done: doubts, and the outcomes by which the controller publishes them.

A refusal is published once per target and rule, then ever more seldom while it lasts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.actuate.config import ActuateConfig, ns
from sdfstream.records.command import CONTROLLER, Outcome
from sdfstream.records.message import MOST_KEY, Event, Output
from sdfstream.records.topics import OUTCOME
from sdfstream.records.units import NS_PER_S

SOURCE: Final = "actuate"
"""Source of the stage's events."""
HOST: Final = CONTROLLER
"""Host of the stage's outcomes."""

_LONGEST_PAUSE_NS: Final = 300 * NS_PER_S
_MOST_REFUSALS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why nothing is done: a rule's name, and a sentence."""

    rule: str
    why: str


class Refusals:
    """Refused proposals as outcomes of host ``controller``."""

    def __init__(self, config: ActuateConfig) -> None:
        self._every_ns = ns(config.refused_every_s)
        self._published: dict[tuple[str, str], tuple[int, int, int]] = {}
        """(target, rule) to (published at, met last at, pause until it is published again), ns."""
        self._number = 0

    def refuse(
        self, action: str, target: Mapping[str, Any], doubt: Doubt, reason: tuple[str, ...], now_ns: int
    ) -> list[Output]:
        """The refusal as an outcome, unless it was published lately."""
        key = (f"{action} {target.get('type')} {target.get('id')}", doubt.rule)
        published_at_ns, met_ns, pause_ns = self._published.get(key, (-1, -1, self._every_ns))
        if published_at_ns >= 0 and now_ns - published_at_ns < pause_ns:
            self._published[key] = (published_at_ns, now_ns, pause_ns)
            return []
        lasting = published_at_ns >= 0 and now_ns - met_ns < self._every_ns
        pause_ns = min(2 * pause_ns, _LONGEST_PAUSE_NS) if lasting else self._every_ns
        if key not in self._published and len(self._published) >= _MOST_REFUSALS:
            return []
        self._published[key] = (now_ns, now_ns, pause_ns)
        name = f"proposal {key[0]}"[:MOST_KEY]  # with the id that somebody's override names
        return [self.publish(name, "refused", doubt, action, target, reason, now_ns)]

    def publish(
        self,
        command_id: str,
        state: str,
        doubt: Doubt,
        action: str,
        target: Mapping[str, Any],
        reason: tuple[str, ...],
        now_ns: int,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> Output:
        """An outcome of the controller's own, always published."""
        self._number += 1
        why = f"{doubt.rule}: {doubt.why}"
        outcome = Outcome(
            command_id,
            state,
            why,
            HOST,
            now_ns,
            action,
            dict(target),
            before=before or {},
            after=after or {},
            reason=reason,
        )
        return outcome_event(outcome, self._number, now_ns)

    def forget(self, before_ns: int) -> None:
        """Drop what was not met since."""
        self._published = {key: row for key, row in self._published.items() if row[1] >= before_ns}

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {"told": [[*key, *row] for key, row in self._published.items()], "number": self._number}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._published = {(a, b): (published, met, pause) for a, b, published, met, pause in state["told"]}
        self._number = state["number"]


def outcome_event(outcome: Outcome, number: int, now_ns: int) -> Output:
    """An outcome by the controller itself; `number` is unique among them."""
    key = outcome.command[:MOST_KEY]
    event = Event(OUTCOME.name, SOURCE, f"{key}-said-{number}", now_ns, outcome.as_data())
    return Output(OUTCOME.name, key, event)
