"""What a run came to: in words on stderr, and as the one JSON object."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.placements import PlacementReport
from tests.chaos.run import Outcome

_WORDS = re.compile(r"Traceback|Error|fenced|lost|refused|defect|died|restarting", re.IGNORECASE)


def rows_balanced(outcome: Outcome, placed: PlacementReport) -> bool:
    """Whether nothing was lost or said twice: rows, findings, commands, letters."""
    books = outcome.books
    return (
        books.balanced
        and books.produced == books.archived_of_agents
        and placed.balanced
        and not outcome.findings.doubled
        and not (outcome.commands.remarks or outcome.commands.doubled)
    )


def balanced(outcome: Outcome, placed: PlacementReport) -> bool:
    """Whether the whole run balances: that, and every fault was found."""
    findings = outcome.findings
    return rows_balanced(outcome, placed) and not findings.remarks and findings.seen == findings.expected


def as_json(outcome: Outcome, placed: PlacementReport, seed: int, seconds: float) -> dict[str, Any]:
    """The object of the last line."""
    books = outcome.books
    return {
        "kills": sum(outcome.kills.values()),
        "placements": placed.placed,
        "produced": books.produced,
        "archived": books.archived_of_agents,
        "lost": books.lost + placed.lost,
        "doubled": books.doubled + placed.doubled,
        "findings_expected": outcome.findings.expected,
        "findings_seen": outcome.findings.seen,
        "findings_doubled": outcome.findings.doubled,
        "commands": outcome.commands.seen,
        "commands_doubled": outcome.commands.doubled,
        "shed": books.shed,
        "balanced": balanced(outcome, placed),
        "rows_balanced": rows_balanced(outcome, placed),
        "seed": seed,
        "seconds": round(seconds, 1),
        "died_with_agent": books.died,
        "repeats_on_bus": books.repeats,
        "archived_all": books.archived,
        "dead_letters": outcome.letters,
        "kills_of": dict(sorted(outcome.kills.items())),
        "placements_of": placed.by_part,
        "ended_by_themselves": outcome.ends,
        "faults": outcome.findings.faults,
        "recovered": [{"after": who, "seconds": s} for who, s in outcome.recovered_s],
        "accounted": {what: round(share, 4) for what, share in outcome.worked.items()},
        "told_late_s": round(outcome.late_s, 1),
        "not_done": outcome.missing,
        "done": outcome.done,
        "topics": {name: dict(sums) for name, sums in books.topics.items()},
        "amiss": amiss(outcome, placed),
    }


def amiss(outcome: Outcome, placed: PlacementReport) -> list[str]:
    """Everything that does not balance, one sentence each."""
    books = outcome.books
    several = [str(gap) for gap in books.gaps[:60]]
    if len(books.gaps) > 60:
        several.append(f"… and {len(books.gaps) - 60} more such places")
    if books.produced != books.archived_of_agents:
        several.append(f"{books.produced} rows were produced, {books.archived_of_agents} of them are archived")
    return [*several, *books.remarks, *outcome.findings.remarks, *outcome.commands.remarks, *placed.failures]


def tell(outcome: Outcome, placed: PlacementReport, say: Callable[[str], None]) -> None:
    """In words."""
    for name, sums in outcome.books.topics.items():
        say(f"{name:28} {sums['on_topic']:9} rows on the topic, {sums['archived']} archived, {sums['repeats']} repeats")
    for fault in outcome.findings.faults:
        say(f"fault {fault}")
    for line in amiss(outcome, placed):
        say(f"AMISS {line}")


def logs(folder: Path, say: Callable[[str], None], lines: int = 4) -> None:
    """The last telling lines of every process's log."""
    for log in sorted((folder / "logs").glob("*.log")):
        telling = [line for line in log.read_text(errors="replace").splitlines() if _WORDS.search(line)]
        for line in telling[-lines:]:
            say(f"{log.name}: {line[:200]}")
    say(f"everything is kept in {folder}")
