"""The scorecard of findings as text and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sdfstream.score.detect.confusion import CLASSES, MISSED, UNKNOWN

_HEAD: Final = ("fault", "n", "recall", "place@1", "cause", "p50 s", "p99 s", "findings per root", "closed early")
_COLUMNS: Final = (
    "faults", "recall", "place_at_1", "cause_accuracy", "delay_p50_s", "delay_p99_s", "findings_per_root",
    "closed_early",
)  # fmt: skip
_HOPS: Final = ("queue_rmse_bytes", "queue_rmse_us", "standing_rmse_bytes", "queue_within", "utilisation_rmse")
_SUMMARY: Final = (
    "scenarios", "faults", "precision", "recall", "place_at_1", "inferred", "direction_at_1", "cause_accuracy",
    "hard_delay_p99_s", "gray_delay_p99_s", "false_alarms", "false_alarms_per_day", "closed_early", "empty_evidence",
    "findings_per_root", *_HOPS, "grouping_ari",
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
    lines += ["", *_confusion(card["confusion"]), "", *_calibration(card["calibration"]), "", *_hops(card["hops"])]
    for head, key in (("Findings that no fault explains", "wrong"), ("Findings with an empty statement", "empty")):
        lines += ["", f"{head}: {sum(card[key].values())}", *(f"- {text}: {n}" for text, n in card[key].items())]
    return "\n".join([*lines, "", f"Missed: {len(card['missed'])}", *(f"- {text}" for text in card["missed"])])


def _confusion(matrix: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Faults by their class, and the class that they were told as."""
    said = [name for name in (*CLASSES, UNKNOWN, MISSED) if any(name in row for row in matrix.values())]
    lines = [f"| class of fault, told as | {' | '.join(said)} |", "|---" * (len(said) + 1) + "|"]
    return lines + [f"| {name} | {' | '.join(str(row.get(s, 0)) for s in said)} |" for name, row in matrix.items()]


def _hops(scenarios: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Queues and utilisations of links by scenario."""
    lines = ["| scenario | " + " | ".join(_HOPS) + " |", "|---" * (len(_HOPS) + 1) + "|"]
    return lines + [f"| {name} | {' | '.join(_cell(row[h]) for h in _HOPS)} |" for name, row in scenarios.items()]


def _calibration(ranges: Sequence[Mapping[str, Any]]) -> list[str]:
    """The share of findings that were true, by the probability that they stated."""
    lines = ["| stated probability | findings | stated, mean | true |", "|---|---|---|---|"]
    return lines + [
        f"| {r['from']:g}–{r['to']:g} | {r['findings']} | {_cell(r['stated'])} | {_cell(r['true'])} |" for r in ranges
    ]


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
