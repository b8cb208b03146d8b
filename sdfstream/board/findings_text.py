"""Findings as people read them: chosen, one on a line, or one in full."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sdfstream import visible
from sdfstream.board import notes_text
from sdfstream.board.humanize import duration, evidence_of, figure, listed, subject_of
from sdfstream.board.lateness import as_of

Data = Mapping[str, Any]
LEFT_OPEN: Final = "left_open"
"""Field of a finding that an earlier run of the pipeline left open: nobody knows whether it still holds."""


def select(
    findings: Sequence[Data], now_ns: int, *, open_only: bool = False, since_s: float | None = None, kind: str | None
) -> list[dict[str, Any]]:
    """The findings that pass every given filter, in their order."""

    def passes(f: Data) -> bool:
        if open_only and f.get("status") == "resolved":
            return False
        if kind and f.get("kind") != kind:
            return False
        return since_s is None or now_ns - int(f.get("since_at_ns", 0)) <= since_s * 1e9

    return [dict(f) for f in findings if passes(f)]


def line_of(finding: Data, now_ns: int, known_ns: int | None = None) -> str:
    """One line: id, severity, kind, subject, cause, age, state, the first fact, jobs that it hurts, what operators say.

    Of what is known only as of a while ago (`known_ns`) it says so.
    """
    since_ns, resolved_ns = finding.get("since_at_ns"), finding.get("resolved_at_ns")
    if finding.get("status") == "resolved":
        lasted = resolved_ns - since_ns if resolved_ns is not None and since_ns is not None else None
        when = f"resolved, lasted {duration(lasted)}"
    elif finding.get(LEFT_OPEN):
        when = "left open when its run ended; whether it still holds is unknown"
    elif known := as_of(known_ns, now_ns):
        when = f"open {known}"
    else:
        when = f"for {duration(now_ns - since_ns if since_ns is not None else None)}"
    fact = evidence_of(finding)
    head = f"{finding['id']}  {finding.get('severity', '?'):<7}  {finding.get('kind', '?')}  {subject_of(finding)}"
    direction = (finding.get("subject") or {}).get("direction")
    head += f", {direction} only" if direction else ""
    hurt = [str(job) for job in finding.get("jobs") or ()]
    line = f"{head}  ({finding.get('cause', 'unknown')}), {when}" + (f"; {fact}" if fact else "")
    line += f"; hurts {listed(hurt, 3)}" if hurt else ""
    said = notes_text.of_finding(finding, now_ns)
    return line + (f"; {said}" if said else "")


def detail_of(finding: Data, now_ns: int, known_ns: int | None = None) -> str:
    """Everything a person needs: evidence with baselines, suspects, symptoms, remedy, runbook."""
    lines = [line_of(finding, now_ns, known_ns)]
    instants = [name for name in ("since_at_ns", "seen_at_ns", "resolved_at_ns") if finding.get(name) is not None]
    lines += [f"  {name.removesuffix('_at_ns'):<11}{_clock_time(int(finding[name]))}" for name in instants]
    if finding.get("confidence") is not None:
        lines.append(f"  {'confidence':<11}{100 * float(finding['confidence']):.0f} %")
    lines += [_fact_line(fact) for fact in finding.get("evidence") or ()]
    lines += [
        f"  {'suspect':<11}{suspect.get('id')} ({100 * float(suspect.get('probability', 0)):.0f} %)"
        for suspect in finding.get("suspects") or ()
    ]
    symptoms = finding.get("symptoms") or ()
    if symptoms:
        lines.append(f"  {'symptoms':<11}{len(symptoms)}, such as {_symptom(symptoms[0])}")
    for name in ("jobs", "remedy", "runbook"):
        value = finding.get(name)
        if value:
            lines.append(f"  {name:<11}{', '.join(value) if isinstance(value, list) else value}")
    return visible.lines(lines)


def _fact_line(fact: Data) -> str:
    unit = str(fact.get("unit", ""))
    normal = f" (normally {figure(fact['baseline'], unit)})" if fact.get("baseline") is not None else ""
    where = f" at {fact['where']}" if fact.get("where") else ""
    return f"  {'evidence':<11}{fact.get('what')} {figure(fact.get('value'), unit)}{normal}{where}"


def _symptom(symptom: Data) -> str:
    return f"{symptom.get('kind', '?')} {subject_of(symptom)}"


def _clock_time(at_ns: int) -> str:
    moment = datetime.datetime.fromtimestamp(at_ns // 1_000_000_000, tz=datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{at_ns % 1_000_000_000 // 1_000_000:03d} UTC"
