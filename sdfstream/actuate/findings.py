"""Open findings, as far as the controller minds them: where a queue stands, and when the fabric itself changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_UNREST: Final = ("link-down", "nic-down", "path-down", "link-flap", "host-silent")
_MOST: Final = 10_000
_LIKELY: Final = 0.3
"""Suspects less likely than this are not named."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """An open finding that may move something."""

    id: str
    kind: str
    subject_type: str
    subject: str
    directions: tuple[str, ...]
    """Link directions ``a->b`` that it may be about."""
    confidence: float
    seen_ns: int
    """Bus time at which it was last said."""


class Findings:
    """Open findings of some kinds."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self._kinds = frozenset(kinds)
        self._open: dict[str, Trouble] = {}

    def __iter__(self) -> Any:
        return iter(self._open.values())

    def take(self, data: Mapping[str, Any], at_ns: int) -> bool:
        """Take a finding; True when it tells that the fabric changes (something is down, or up again)."""
        kind, status, name = str(data["kind"]), data["status"], str(data["id"])
        if kind in self._kinds:
            if status == "resolved":
                self._open.pop(name, None)
            elif name in self._open or len(self._open) < _MOST:
                self._open[name] = _trouble(data, at_ns)
        return kind in _UNREST and status != "update"

    def forget(self, before_ns: int) -> None:
        """Drop what was not repeated since: its resolution was lost."""
        self._open = {name: trouble for name, trouble in self._open.items() if trouble.seen_ns >= before_ns}

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [
            [t.id, t.kind, t.subject_type, t.subject, list(t.directions), t.confidence, t.seen_ns]
            for t in self._open.values()
        ]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._open = {row[0]: Trouble(row[0], row[1], row[2], row[3], tuple(row[4]), row[5], row[6]) for row in state}


def _trouble(data: Mapping[str, Any], at_ns: int) -> Trouble:
    subject = data["subject"]
    kind, name = str(subject["type"]), str(subject["id"])
    told = [word for word in str(data.get("detail") or "").split() if "->" in word]
    suspects = [str(s["id"]) for s in data.get("suspects", ()) if float(s["probability"]) >= _LIKELY]
    named = told if kind in ("link", "nic") else []
    directions = tuple(dict.fromkeys([*named, *(s for s in suspects if "->" in s)]))
    if not directions and kind == "link":
        a, dashes, b = name.partition("--")
        directions = (f"{a}->{b}", f"{b}->{a}") if dashes else (name,)
    return Trouble(str(data["id"]), str(data["kind"]), kind, name, directions, float(data["confidence"]), at_ns)
