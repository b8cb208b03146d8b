"""The scorecard of findings as text and as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_HEAD: Final = ("fault", "n", "recall", "place@1", "cause", "p50 s", "p99 s", "findings per root", "closed early")
_COLUMNS: Final = (
    "faults", "recall", "place_at_1", "cause_accuracy", "delay_p50_s", "delay_p99_s", "findings_per_root",
    "closed_early",
)  # fmt: skip
_SUMMARY: Final = (
    "scenarios", "faults", "precision", "recall", "place_at_1", "inferred", "direction_at_1", "cause_accuracy",
    "hard_delay_p99_s", "gray_delay_p99_s", "false_alarms", "false_alarms_per_day", "closed_early", "empty_evidence",
    "findings_per_root", "queue_rmse_bytes", "utilisation_rmse", "grouping_ari",
)  # fmt: skip


def table(card: Mapping[str, Any]) -> str:
    """Summary, halves and faults as Markdown tables, which read as text too."""
    lines = ["| figure | all | with topology and traces | with neither |", "|---|---|---|---|"]
    for name in _SUMMARY:
        halves = [card[half].get(name, "") for half in ("with_map", "without_map")]
        lines.append(f"| {name} | {_cell(card.get(name))} | {_cell(halves[0])} | {_cell(halves[1])} |")
    lines += ["", "| " + " | ".join(_HEAD) + " | reported as |", "|---" * (len(_HEAD) + 1) + "|"]
    for kind, figures in card["per_fault"].items():
        said = ", ".join(f"{name} {n}" for name, n in figures["reported"].items())
        lines.append("| " + " | ".join([kind, *(_cell(figures.get(c)) for c in _COLUMNS), said or "–"]) + " |")
    for head, key in (("Findings that no fault explains", "wrong"), ("Findings with an empty statement", "empty")):
        lines += ["", f"{head}: {sum(card[key].values())}", *(f"- {text}: {n}" for text, n in card[key].items())]
    return "\n".join([*lines, "", f"Missed: {len(card['missed'])}", *(f"- {text}" for text in card["missed"])])


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
