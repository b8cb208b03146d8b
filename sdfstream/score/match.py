"""Findings against injected faults: verdict and delay of every fault, and false alarms.

The rules
---------
A statement of a finding may speak for a fault when it is made between the fault's beginning and `GRACE_NS` after its
end. Its kind and its location (`sdfstream.score.location`) are compared with the fault's:

==========  =====================================================================================
verdict     the best statement for the fault has
==========  =====================================================================================
right       a kind that names the fault (`RIGHT_KINDS`) on exactly the faulty element
near        a kind that names it or follows from it (`RELATED_KINDS`), with the element only among
            the suspects, or a neighbour named, or the element named under a following kind
wrong       nothing of the above, but a finding of such a kind blames another element meanwhile
missed      nothing but path symptoms, or nothing at all
==========  =====================================================================================

Each finding is tied to the one fault it meets best. One that no statement ties to any fault is a **false alarm**,
unless it speaks of our own agents and pipeline (class telemetry), which is listed apart; findings of severity ``info``
alarm nobody and are left out, except that they may tell of a fault that is over before anybody could be woken (bursts,
a link around which the fabric reroutes within `PASSES_S`). A finding that opens resolved speaks by that statement; of
others what is resolved says nothing any more. A finding on exactly the faulty element while the fault holds is no false
alarm whatever its kind (a lossy link may well congest), but only its kind makes it right, and beside another it is one
too many (`sdfstream.score.alarms`).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sdfstream.records.units import NS_PER_S
from sdfstream.score import alarms as alarm
from sdfstream.score.alarms import AlarmClass
from sdfstream.score.location import LocationMatch, located

Verdict = Literal["right", "near", "wrong", "missed"]
Data = Mapping[str, Any]

GRACE_NS: Final = 5 * NS_PER_S
"""A statement this long after the end of a fault may still be about it: detectors look back over windows."""
PASSES_S: Final = 1.0
"""A fault around which the fabric reroutes this soon is over before anybody could be woken."""
SLACK_NS: Final = 50_000_000
"""A fault's time is taken just before its first change; clocks of two processes on one machine differ by less."""

_DOWN: Final = frozenset({"link-down", "nic-down"})
RIGHT_KINDS: Final[dict[str, frozenset[str]]] = {
    # kind of fault: kinds of finding that name it
    "link-down": _DOWN,
    "black-hole": _DOWN,
    "gray-loss": frozenset({"loss"}),
    "congestion": frozenset({"congestion", "ecn-marks"}),
    "flap": frozenset({"link-flap"}),
    "miscabled": frozenset({"miscabled"}),
    "remark": frozenset({"class-rewritten"}),
    "host-gone": frozenset({"host-silent", "agent-stale"}),
    "clock": frozenset({"clock-faulty", "clock-unsynced"}),
    # of the twin
    "nic-down": _DOWN,
    "switch-down": _DOWN,
    "host-down": frozenset({"host-silent"}),
    "congested-link": frozenset({"congestion", "ecn-marks"}),
    "incast": frozenset({"congestion", "ecn-marks"}),
    "bursts": frozenset({"congestion", "ecn-marks"}),
    "ecn-mistuned": frozenset({"congestion", "ecn-mistuned"}),
    "ecn-early": frozenset({"ecn-marks"}),
    "ecmp-imbalance": frozenset({"congestion", "ecn-marks"}),
    "pfc-storm": frozenset({"congestion", "pfc-storm"}),
    "slow-nic": frozenset({"congestion", "slow-nic"}),
    "rocev1": frozenset({"qp-slow", "inband-mismatch"}),
    "clock-step": frozenset({"clock-faulty", "clock-unsynced", "clock-step"}),
    "agent-dead": frozenset({"agent-stale"}),
    "agent-late": frozenset({"agent-stale", "agent-degraded"}),
    "link-flap": frozenset({"link-flap"}),
    "hash-loss": frozenset({"loss"}),
    "mtu": frozenset({"mtu-mismatch"}),
    "optic-degrading": frozenset({"loss", "port-errors"}),
    "clock-faulty": frozenset({"clock-faulty", "clock-unsynced"}),
}
RELATED_KINDS: Final[dict[str, frozenset[str]]] = {
    # kind of fault: kinds of finding that follow from it
    "link-down": frozenset({"path-down", "host-silent", "link-flap", "loss", "port-errors", "qp-slow"}),
    "black-hole": frozenset({"path-down", "host-silent", "loss", "qp-slow"}),
    "gray-loss": frozenset({"path-down", "port-errors", "qp-slow", *_DOWN}),
    "congestion": frozenset({"loss", "path-down", "qp-slow"}),
    "flap": frozenset({"path-down", "loss", "port-errors", "host-silent", "qp-slow", *_DOWN}),
    "miscabled": frozenset({"path-down", "loss", *_DOWN}),
    "host-gone": frozenset({"path-down", *_DOWN}),
    "nic-down": frozenset({"path-down", "host-silent", "link-flap", "loss", "port-errors", "qp-slow"}),
    "switch-down": frozenset({"path-down", "host-silent", "loss", "qp-slow"}),
    "host-down": frozenset({"path-down", "agent-stale", *_DOWN}),
    "congested-link": frozenset({"loss", "path-down", "qp-slow"}),
    "incast": frozenset({"loss", "path-down", "qp-slow"}),
    "bursts": frozenset({"loss", "qp-slow"}),
    "ecn-mistuned": frozenset({"ecn-marks", "loss", "qp-slow"}),
    "ecn-early": frozenset({"congestion", "qp-slow"}),
    "ecmp-imbalance": frozenset({"loss", "path-down", "qp-slow"}),
    "pfc-storm": frozenset({"ecn-marks", "path-down", "loss", "qp-slow", "nic-down"}),
    "slow-nic": frozenset({"ecn-marks", "loss", "qp-slow"}),
    "agent-dead": frozenset({"host-silent"}),
    "agent-late": frozenset({"host-silent"}),
    "link-flap": frozenset({"path-down", "loss", "host-silent", "qp-slow", *_DOWN}),
    "hash-loss": frozenset({"path-down", "qp-slow", *_DOWN}),
    "mtu": frozenset({"loss", "path-down", "qp-slow", *_DOWN}),
    "optic-degrading": frozenset({"path-down", "qp-slow", *_DOWN}),
    "clock-faulty": frozenset({"clock-step"}),
}


@dataclass(slots=True)
class FaultOutcome:
    """The best verdict that the findings earned for one fault."""

    fault: Data
    verdict: Verdict = "missed"
    finding: Data | None = None
    """The statement that earned the verdict."""
    location: LocationMatch = LocationMatch.ELSEWHERE
    delay_ns: int | None = None
    """From the fault to that statement."""
    first_sign_ns: int | None = None
    """From the fault to the first statement tied to it, symptoms included."""
    cleared_ns: int | None = None
    """From the fault's end to the finding's resolution; None while either is open."""
    tied: set[str] = field(default_factory=set)
    """Ids of the findings tied to it."""

    def reporter(self, firsts: Mapping[str, Data]) -> str | None:
        """Id of the finding by which it was judged, else of the first one tied to it; `firsts`: first statements."""
        if self.finding is not None and str(self.finding["id"]) in self.tied:
            return str(self.finding["id"])
        return min(self.tied, key=lambda one: (int(firsts[one]["seen_at_ns"]), one), default=None)


@dataclass(slots=True)
class Scorecard:
    """Outcomes of all faults, oldest first, and false alarms."""

    outcomes: list[FaultOutcome]
    false_alarms: list[Data]
    """First statements of findings tied to no fault, those about our own telemetry left out."""
    alarms: int
    """Findings, ``info`` left out."""
    beside: list[tuple[AlarmClass, Data, Data | None]] = field(default_factory=list)
    """Class, first statement and fault of every alarm that is not simply a fault's own, false ones included."""

    @property
    def telemetry(self) -> list[Data]:
        """First statements of findings about our own agents and pipeline that no fault explains."""
        return [finding for what, finding, _ in self.beside if what == "telemetry"]

    def of_class(self, what: AlarmClass) -> int:
        """How many alarms are of a class."""
        return sum(one == what for one, _, _ in self.beside)

    def count(self, verdict: Verdict) -> int:
        """Faults with that verdict."""
        return sum(o.verdict == verdict for o in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON; shares are of 1, and absent where there is nothing to divide by."""
        delays = sorted(o.delay_ns for o in self.outcomes if o.verdict == "right" and o.delay_ns is not None)
        faults, false = len(self.outcomes), self.of_class("false")
        return {
            "faults": faults,
            **{verdict: self.count(verdict) for verdict in ("right", "near", "wrong", "missed")},
            "alarms": self.alarms,
            "false_alarms": false,
            "extra": self.of_class("extra"),
            "early": self.of_class("early"),
            "late": self.of_class("late"),
            "telemetry": self.of_class("telemetry"),
            "precision": (self.alarms - false) / self.alarms if self.alarms else None,
            "recall": self.count("right") / faults if faults else None,
            "delay_median_ns": int(statistics.median(delays)) if delays else None,
            "delay_worst_ns": delays[-1] if delays else None,
            "outcomes": [_outcome_dict(o) for o in self.outcomes],
            "unexplained": [_brief(f) for what, f, _ in self.beside if what == "false"],
            "beside": [
                {"class": what, **_brief(finding), **({"fault": fault.get("id")} if fault else {})}
                for what, finding, fault in self.beside
            ],
        }


def match(faults: Iterable[Data], findings: Iterable[Data]) -> Scorecard:
    """Match `findings` with `faults`.

    Parameters
    ----------
    faults : iterable of mappings
        Lines of ``truth/faults.jsonl``: id, kind, target, direction, at_ns, healed_at_ns, parameters.
    findings : iterable of mappings
        Every statement (`data` of ``sdf.event.finding.v1``), with seen_at_ns, in any order.

    Raises
    ------
    KeyError, TypeError
        A fault without kind, target or at_ns, or a finding without id, kind or seen_at_ns.
    """
    outcomes = [FaultOutcome(fault) for fault in sorted(faults, key=lambda f: (f["at_ns"], str(f.get("id", ""))))]
    histories: dict[str, list[Data]] = {}
    for statement in sorted(findings, key=lambda f: int(f["seen_at_ns"])):
        histories.setdefault(str(statement["id"]), []).append(statement)
    alarms = {
        key: statements for key, statements in histories.items() if any(f.get("severity") != "info" for f in statements)
    }
    untied = [statements for statements in alarms.values() if not _tie(statements, outcomes)]
    passing = [outcome for outcome in outcomes if _passes(outcome.fault)]
    for key, statements in histories.items():
        if key not in alarms:
            _tie(statements, passing)
    for outcome in outcomes:
        _settle(outcome, untied)
    beside = _beside(outcomes, alarms, {key: history[0] for key, history in histories.items()}, untied)
    false = [first for what, first, fault in beside if what == "false" and fault is None]
    return Scorecard(outcomes, false, len(alarms), beside)


def _beside(
    outcomes: Sequence[FaultOutcome],
    alarms: Mapping[str, Sequence[Data]],
    firsts: Mapping[str, Data],
    untied: Sequence[Sequence[Data]],
) -> list[tuple[AlarmClass, Data, Data | None]]:
    """Class, first statement and fault of every alarm that is not simply a fault's own, in order of time."""
    end_ns = max((int(history[-1]["seen_at_ns"]) for history in alarms.values()), default=0)
    end_ns = max(end_ns, *(int(o.fault.get("healed_at_ns") or 0) for o in outcomes), 0)
    found: list[tuple[AlarmClass, Data, Data | None]] = [(alarm.untied(h), h[0], None) for h in untied]
    for outcome in outcomes:
        reporter = outcome.reporter(firsts)
        for key in outcome.tied & alarms.keys():
            what = alarm.tied(alarms[key], outcome.fault, reports=key == reporter, end_ns=end_ns)
            found.append((what, firsts[key], outcome.fault))
    found = [one for one in found if one[0] != "fault"]
    return sorted(found, key=lambda one: (int(one[1]["seen_at_ns"]), str(one[1]["id"])))


def _passes(fault: Data) -> bool:
    """Whether a fault comes and goes so soon that telling it as information is telling it."""
    reroute_s = fault.get("parameters", {}).get("reroute_s")
    return fault["kind"] == "bursts" or (reroute_s is not None and float(reroute_s) <= PASSES_S)


def _speaking(statements: Sequence[Data]) -> list[Data]:
    """Statements that say that something is wrong: all but the resolved ones, of which only the first may."""
    return [s for i, s in enumerate(statements) if i == 0 or s.get("status") != "resolved"]


def _tie(statements: Sequence[Data], outcomes: Sequence[FaultOutcome]) -> bool:
    """Tie one finding (its statements in order) to the fault it meets best; False when it meets none."""
    best: tuple[tuple[int, int], FaultOutcome] | None = None
    for outcome in outcomes:
        for statement in _speaking(statements):
            weight = _weight(outcome.fault, statement)
            if weight and (best is None or (weight, int(outcome.fault["at_ns"])) > best[0]):
                best = ((weight, int(outcome.fault["at_ns"])), outcome)
    if best is None:
        return False
    _credit(best[1], statements)
    return True


def _weight(fault: Data, statement: Data) -> int:
    """0: no tie; else greater is better: right kind and exact location, then by location, then by kind."""
    healed = fault.get("healed_at_ns")
    seen_at_ns = int(statement["seen_at_ns"])
    if seen_at_ns < int(fault["at_ns"]) - SLACK_NS or (healed is not None and seen_at_ns > int(healed) + GRACE_NS):
        return 0
    where = located(fault, statement)
    kind = _kind_rank(fault, statement)
    if where is LocationMatch.ELSEWHERE or (kind == 0 and where is not LocationMatch.EXACT):
        return 0
    return 10 * where + kind + (100 if kind == 2 and where is LocationMatch.EXACT else 0)


def _kind_rank(fault: Data, statement: Data) -> int:
    kind = str(fault["kind"])
    if statement["kind"] in RIGHT_KINDS.get(kind, frozenset({kind})):
        return 2
    return int(statement["kind"] in RELATED_KINDS.get(kind, frozenset()))


def _verdict(fault: Data, statement: Data, where: LocationMatch) -> Verdict:
    kind = _kind_rank(fault, statement)
    if kind == 2 and where is LocationMatch.EXACT:
        return "right"
    return "near" if kind and where >= LocationMatch.NEAR else "missed"


_ORDER: Final = {"right": 0, "near": 1, "wrong": 2, "missed": 3}


def _credit(outcome: FaultOutcome, statements: Sequence[Data]) -> None:
    """Update a fault's outcome with the statements of a finding tied to it."""
    outcome.tied.add(str(statements[0]["id"]))
    at_ns = int(outcome.fault["at_ns"])
    for statement in _speaking(statements):
        if not _weight(outcome.fault, statement):
            continue
        delay_ns = max(int(statement["seen_at_ns"]) - at_ns, 0)
        if outcome.first_sign_ns is None or delay_ns < outcome.first_sign_ns:
            outcome.first_sign_ns = delay_ns
        where = located(outcome.fault, statement)
        verdict = _verdict(outcome.fault, statement, where)
        key = (_ORDER[verdict], -where, delay_ns)
        held_ns = outcome.delay_ns if outcome.delay_ns is not None else 1 << 62
        if verdict != "missed" and key < (_ORDER[outcome.verdict], -outcome.location, held_ns):
            outcome.verdict, outcome.finding, outcome.location, outcome.delay_ns = verdict, statement, where, delay_ns
            outcome.cleared_ns = _cleared_ns(outcome.fault, statements)


def _cleared_ns(fault: Data, statements: Sequence[Data]) -> int | None:
    healed, last = fault.get("healed_at_ns"), statements[-1]
    if healed is None or last.get("status") != "resolved":
        return None
    return int(last["seen_at_ns"]) - int(healed)


def _settle(outcome: FaultOutcome, untied: Sequence[Sequence[Data]]) -> None:
    """A missed fault becomes wrong when a finding of a fitting kind blamed another element meanwhile."""
    if outcome.verdict != "missed":
        return
    at_ns, healed = int(outcome.fault["at_ns"]), outcome.fault.get("healed_at_ns")
    for first in (statements[0] for statements in untied):
        seen_at_ns = int(first["seen_at_ns"])
        during = at_ns - SLACK_NS <= seen_at_ns and (healed is None or seen_at_ns <= int(healed) + GRACE_NS)
        if during and _kind_rank(outcome.fault, first):
            outcome.verdict, outcome.finding, outcome.delay_ns = "wrong", first, max(seen_at_ns - at_ns, 0)
            return


def _outcome_dict(outcome: FaultOutcome) -> dict[str, Any]:
    return {
        "fault": dict(outcome.fault),
        "verdict": outcome.verdict,
        "place": outcome.location.name.lower(),
        "found": _brief(outcome.finding) if outcome.finding else None,
        "delay_ns": outcome.delay_ns,
        "first_sign_ns": outcome.first_sign_ns,
        "cleared_ns": outcome.cleared_ns,
        "findings": len(outcome.tied),
    }


def _brief(finding: Data) -> dict[str, Any]:
    names = ("id", "kind", "severity", "subject", "cause", "confidence", "seen_at_ns")
    return {name: finding[name] for name in names if finding.get(name) is not None}
