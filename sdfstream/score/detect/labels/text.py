"""The card of learned causes as Markdown tables, which read as text too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TITLES = {"without_counters": "Without port counters", "with_counters": "With port counters"}


def table(cards: Mapping[str, Any]) -> str:
    """A table a fabric: cause accuracy of each fault without labels and with them."""
    return "\n\n".join(_one(title, cards[name]) for name, title in _TITLES.items())


def _one(title: str, card: Mapping[str, Any]) -> str:
    changed, wrong = card["changed"], card["false_alarms"]
    lines = [
        f"{title}: {card['labels']} labels of {_count(card['labelled_seeds'], 'seed')}, "
        f"{card['findings']} findings of {_count(card['seeds'], 'other seed')}",
        "",
        "| fault | findings | rules: mean, median, worst seed | with labels: mean, median, worst seed |",
        "|---|---|---|---|",
    ]
    for fault, figures in card["accuracy"].items():
        lines.append(
            f"| {fault} | {figures['findings']} | {_shares(figures['without'])} | {_shares(figures['with'])} |"
        )
    lines += [
        "",
        f"Causes changed: {changed['n']}; right {changed['right']}, wrong where the rules were right "
        f"{changed['rules_right']}, of false alarms {changed['of_false_alarms']}; mean probability "
        f"{_figure(changed['mean_probability'])}",
        f"Probability of a false alarm, mean: {_figure(wrong['mean_probability'])} on {wrong['n']} that are one, "
        f"{_figure(wrong['mean_probability_of_others'])} on others",
    ]
    return "\n".join(lines)


def _count(numbers: list[int], what: str) -> str:
    return f"{len(numbers)} {what}{'' if len(numbers) == 1 else 's'}"


def _shares(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{figures[name]:.2f}" for name in ("mean", "median", "worst"))


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
