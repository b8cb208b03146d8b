"""The closing table of a demo or a score: injected faults, findings, delays, false alarms, further SQL.

Pure: from `Scorecard.as_dict()` and `clock_errors()` to text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sdfstream import visible
from sdfstream.board.humanize import duration, number, share, subject_of

Data = Mapping[str, Any]
_HEADS: Final = ("injected", "where", "at", "found as", "after", "verdict", "cleared after")
_BESIDE: Final = {
    "extra": "told a fault once more",
    "early": "resolved before their fault ended",
    "late": "open long after it",
    "telemetry": "about our own telemetry",
}
_MARKS: Final = {"right": "● right", "near": "◐ near", "wrong": "✖ wrong", "missed": "◌ missed"}


def summary(card: Data, start_at_ns: int | None = None, data: str | None = None) -> str:
    """The whole text: table, totals, false alarms, SQL.

    Parameters
    ----------
    card : mapping
        `Scorecard.as_dict()`.
    start_at_ns : int, optional
        What the column "at" counts from; the first fault by default.
    data : str, optional
        Data folder named in the SQL lines; None leaves the lines out.
    """
    sections = [outcome_table(card["outcomes"], start_at_ns), totals(card)]
    if card["beside"]:
        sections.append(beside(card["beside"], card["outcomes"], start_at_ns))
    if data is not None:
        sections.append(further(card, data))
    return "\n\n".join(sections)


def outcome_table(outcomes: Sequence[Data], start_at_ns: int | None = None) -> str:
    """One line per fault."""
    if not outcomes:
        return "no fault was injected"
    begin_ns = min(int(o["fault"]["at_ns"]) for o in outcomes) if start_at_ns is None else start_at_ns
    return aligned([_HEADS, *(_line(outcome, begin_ns) for outcome in outcomes)])


def _line(outcome: Data, begin_ns: int) -> tuple[str, ...]:
    fault, found = outcome["fault"], outcome.get("found")
    where = str(fault.get("direction") or fault["target"])
    cleared_ns = outcome.get("cleared_ns")
    if fault.get("healed_at_ns") is None:
        cleared = "not healed"
    else:
        cleared = duration(cleared_ns) if cleared_ns is not None else "–"
    named = "–" if not found else f"{found['kind']} {subject_of(found)}"
    if outcome["verdict"] == "near" and outcome.get("place") == "suspect":
        named += " (suspect)"
    return (
        _fault_name(fault),
        where,
        duration(int(fault["at_ns"]) - begin_ns),
        named,
        duration(outcome.get("delay_ns")),
        _MARKS[outcome["verdict"]],
        cleared,
    )


def _fault_name(fault: Data) -> str:
    """``gray-loss 2 %``."""
    parameters = fault.get("parameters") or {}
    lost = parameters.get("share")
    return f"{fault['kind']} {share(lost)}" if isinstance(lost, int | float) else str(fault["kind"])


def totals(card: Data) -> str:
    """Counts and times in two or three sentences."""
    faults = card["faults"]
    counts = ", ".join(f"{card[verdict]} {verdict}" for verdict in ("right", "near", "wrong", "missed"))
    text = f"{number(faults)} injected: {counts}; {number(card['alarms'])} alarms, {card['false_alarms']} of them false"
    counted = ((card[what], words) for what, words in _BESIDE.items())
    text += "".join(f", {n} {words}" for n, words in counted if n)
    if card.get("delay_median_ns") is not None:
        median, worst = duration(card["delay_median_ns"]), duration(card["delay_worst_ns"])
        text += f"\ntime from fault to right finding: median {median}, worst {worst}"
    return text


def beside(alarms: Sequence[Data], outcomes: Sequence[Data], start_at_ns: int | None, most: int = 20) -> str:
    """Alarms that are not simply a fault's own, with their class and the fault that they are tied to."""
    faults = {o["fault"].get("id"): o["fault"] for o in outcomes}
    begins = [int(f["at_ns"]) for f in faults.values()] or [int(f["seen_at_ns"]) for f in alarms]
    begin_ns = min(begins) if start_at_ns is None else start_at_ns
    rows = [("alarm", "class", "subject", "cause", "at", "fault", "id")]
    for f in alarms[:most]:
        at, fault = duration(int(f["seen_at_ns"]) - begin_ns), faults.get(f.get("fault")) if "fault" in f else None
        its_fault = f"{_fault_name(fault)} {fault['target']}" if fault else "–"
        rows.append(
            (str(f["kind"]), str(f["class"]), subject_of(f), str(f.get("cause", "–")), at, its_fault, str(f["id"]))
        )
    left = len(alarms) - most
    return aligned(rows) + (f"\nand {left} more" if left > 0 else "")


def further(card: Data, data: str) -> str:
    """SQL that goes on from here, the first found fault's evidence among it."""
    found = next((o["found"] for o in card["outcomes"] if o.get("found")), None)
    queries = ["SELECT kind, subject_id, cause, opened_at, duration_s FROM v_findings"]
    if found:
        queries.append(f"SELECT evidence, suspects, remedy FROM v_findings WHERE id = '{found['id']}'")
    queries.append("SELECT * FROM v_path_1m ORDER BY excess_p50_ns DESC LIMIT 10")
    return "look further:\n" + visible.lines(f'  sdfstream sql --data {data} "{query}"' for query in queries)


def clock_table(errors: Data) -> str:
    """Clock errors against truth, one line per clock."""
    if errors.get("reference") is None:
        return "clocks: no reference clock in the recording; nothing judged"
    heads = ("clock", "rows", "bias", "error p50", "error p99", "error max", "bound p50", "bound held")
    rows = [heads]
    named = dict(errors["clocks"]) | ({"all": errors["all"]} if "all" in errors else {})
    for name, m in named.items():
        figures = (m["bias_ns"], m["error_p50_ns"], m["error_p99_ns"], m["error_max_ns"], m["bound_p50_ns"])
        rows.append((name, number(m["n"]), *(duration(v) for v in figures), share(m["bound_held"])))
    skipped = f"; {number(errors['not_judged'])} rows not judged" if errors.get("not_judged") else ""
    return aligned(rows) + f"\n{errors['kind']} offsets against reference {errors['reference']}{skipped}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns of equal width, two blanks apart."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return visible.lines(line.rstrip() for line in lines)
