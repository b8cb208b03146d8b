"""What was refused is told, but not again and again: once per target and rule, then ever more seldom while it lasts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sdfstream.actuate.config import ActuateConfig, ns
from sdfstream.actuate.ledger import HOST, outcome_event
from sdfstream.actuate.maps import Doubt
from sdfstream.records.command import Outcome
from sdfstream.records.message import Output
from sdfstream.records.units import NS_PER_S

_LONGEST_NS: Final = 300 * NS_PER_S
_MOST: Final = 100_000


class Refusals:
    """Refused proposals as outcomes of host ``controller``."""

    def __init__(self, config: ActuateConfig) -> None:
        self._every_ns = ns(config.refused_every_s)
        self._told: dict[tuple[str, str], tuple[int, int, int]] = {}
        """(target, rule) to (told, met last, pause until it is told again)."""
        self._number = 0

    def tell(
        self, action: str, target: Mapping[str, Any], doubt: Doubt, reason: tuple[str, ...], now_ns: int
    ) -> list[Output]:
        """The refusal as an outcome, unless it was told lately."""
        key = (f"{action} {target.get('type')} {target.get('id')}", doubt.rule)
        told_ns, met_ns, pause_ns = self._told.get(key, (-1, -1, self._every_ns))
        if told_ns >= 0 and now_ns - told_ns < pause_ns:
            self._told[key] = (told_ns, now_ns, pause_ns)
            return []
        lasting = told_ns >= 0 and now_ns - met_ns < self._every_ns
        pause_ns = min(2 * pause_ns, _LONGEST_NS) if lasting else self._every_ns
        if key not in self._told and len(self._told) >= _MOST:
            return []
        self._told[key] = (now_ns, now_ns, pause_ns)
        return [self.say(f"proposal {key[0]}", "refused", doubt, action, target, reason, now_ns)]

    def say(
        self,
        command: str,
        state: str,
        doubt: Doubt,
        action: str,
        target: Mapping[str, Any],
        reason: tuple[str, ...],
        now_ns: int,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> Output:
        """An outcome of the controller's own, always told."""
        self._number += 1
        why = f"{doubt.rule}: {doubt.why}"
        outcome = Outcome(
            command,
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
        self._told = {key: row for key, row in self._told.items() if row[1] >= before_ns}

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {"told": [[*key, *row] for key, row in self._told.items()], "number": self._number}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._told = {(a, b): (told, met, pause) for a, b, told, met, pause in state["told"]}
        self._number = state["number"]
