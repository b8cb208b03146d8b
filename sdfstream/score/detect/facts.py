"""What a run's findings made of each of its faults, from the lines of truth and the statements alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sdfstream.records.units import NS_PER_S
from sdfstream.score.alarms import closed_early
from sdfstream.score.detect.confusion import MISSED, TELEMETRY, Stated, reported_class
from sdfstream.score.detect.hops import HopSums
from sdfstream.score.detect.inferred import in_truth, is_inferred
from sdfstream.score.location import LocationMatch, ends, located
from sdfstream.score.match import FaultOutcome, match

Data = Mapping[str, Any]

CAUSES_OF: Final[dict[str, frozenset[str]]] = {
    # kind of fault: causes that are right
    "nic-down": frozenset({"link-failure"}),
    "link-down": frozenset({"link-failure"}),
    "switch-down": frozenset({"link-failure", "switch-failure"}),
    "flap": frozenset({"link-failure", "degraded-link"}),
    "host-down": frozenset({"host-gone"}),
    "agent-dead": frozenset({"host-gone", "software", "agent-gone"}),
    "gray-loss": frozenset({"gray-failure", "degraded-link"}),
    "congested-link": frozenset({"queueing"}),
    "incast": frozenset({"queueing", "incast"}),
    "bursts": frozenset({"queueing", "incast"}),
    "pfc-storm": frozenset({"pfc-storm", "pause-storm"}),
    "slow-nic": frozenset({"slow-nic", "slow-receiver", "slow-sender"}),
    "ecn-mistuned": frozenset({"ecn-mistuned", "ecn-threshold"}),
    "ecn-early": frozenset({"ecn-mistuned", "ecn-threshold"}),
    "ecmp-imbalance": frozenset({"ecmp-imbalance"}),
    "rocev1": frozenset({"rocev1", "class-mismatch", "inband-mismatch"}),
    "clock-step": frozenset({"clock"}),
    "clock-faulty": frozenset({"clock"}),
    "agent-late": frozenset({"host-gone", "software"}),
    "link-flap": frozenset({"link-failure", "degraded-link"}),
    "hash-loss": frozenset({"gray-failure"}),
    "mtu": frozenset({"mtu"}),
    "optic-degrading": frozenset({"gray-failure", "degraded-link"}),
    "remark": frozenset({"remarking"}),
    "miscabled": frozenset({"cabling"}),
}
HARD: Final = frozenset({"nic-down", "host-down", "link-down", "switch-down"})
GRAY: Final = frozenset({"gray-loss"})
SETTLED_NS: Final = 3 * NS_PER_S
_LATER_NS: Final = {"ecmp-imbalance": 8 * NS_PER_S}
"""Of kinds of fault whose cause shows later: by the bytes of whole seconds, along routes that are traced anew first."""
_AT_A_NIC: Final = frozenset({"incast", "bursts", "pfc-storm"})
"""Kinds whose fault is a NIC's; that only what it receives suffers goes without saying."""
_ADDRESS: Final = re.compile(r"\d+\.\d+\.\d+\.\d+")


@dataclass(slots=True)
class FaultFact:
    """What was made of one fault."""

    scenario: str
    seed: int
    kind: str
    target: str
    blind: bool
    """Neither topology file nor traces were known."""
    found: bool = False
    exact: bool = False
    """The best finding's subject is the faulty element (a link's direction aside)."""
    directed: bool | None = None
    """Of a link or NIC at fault whose element is exact: the subject has its direction, or none where both are; None:
    not asked, or a switch is named."""
    cause: bool = False
    """The best finding's cause is right, `SETTLED_NS` after its statement."""
    reported_class: str = MISSED
    """Class of the best finding then (`sdfstream.score.detect.confusion`)."""
    inferred: bool = False
    """The best finding's subject is exact, and known by NICs and paths alone (`sdfstream.score.detect.inferred`)."""
    delay_s: float | None = None
    """To the first finding tied to it."""
    findings: int = 0
    """Above info that are tied to it; what tells of a fault that is over at once may be info, and counts no alarm."""
    closed_early: int = 0
    reported: tuple[str, ...] = ()
    """Kind and subject of every finding tied to it, the best first."""


@dataclass(slots=True)
class RunFacts:
    """What was made of one run."""

    scenario: str
    seed: int
    seconds: float
    blind: bool
    faults: list[FaultFact] = field(default_factory=list)
    alarms: int = 0
    """Findings above info."""
    false_alarms: list[str] = field(default_factory=list)
    """Kind and subject of findings that no fault explains, benign events included."""
    stated: list[Stated] = field(default_factory=list)
    """What each finding above info stated, telemetry's left out."""
    grouping_ari: float | None = None
    """Of the NICs that share a leaf by measured delays, against the truth."""
    hops: HopSums = field(default_factory=HopSums)
    """Errors of queues and utilisations."""
    empty_evidence: list[str] = field(default_factory=list)
    """Kind and subject of findings of which a statement has no evidence above what is normal."""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def facts(truth: Data, faults: Iterable[Data], statements: Sequence[Data], *, blind: bool) -> RunFacts:
    """Facts of a run.

    Parameters
    ----------
    truth : mapping
        ``truth/fabric.json``: scenario, seed, seconds, addresses, leaves; ``routes`` of ``truth/routes.json``.
    faults : iterable of mappings
        Lines of ``truth/faults.jsonl``.
    statements : sequence of mappings
        `data` of ``sdf.event.finding.v1``, in order.
    """
    leaves, routes = truth.get("leaves", {}), truth.get("routes", {})
    named = [_named(in_truth(s, leaves, routes), truth["addresses"]) for s in statements]
    without_names = {str(s["id"]) for s in statements if is_inferred(s)}
    real = [fault for fault in faults if not fault["benign"]]
    card = match(real, named)
    histories: dict[str, list[Data]] = {}
    for statement in named:
        histories.setdefault(str(statement["id"]), []).append(statement)
    made = RunFacts(str(truth["scenario"]), int(truth["seed"]), float(truth["seconds"]), blind)
    made.alarms = card.alarms
    made.false_alarms = [_brief(f) for f in [*card.false_alarms, *card.telemetry]]
    made.empty_evidence = [_brief(h[0]) for h in histories.values() if any(is_empty(s) for s in h)]
    made.stated = _stated(card.outcomes, histories)
    made.faults = [_fact(made, outcome, histories) for outcome in card.outcomes]
    for fact, outcome in zip(made.faults, card.outcomes, strict=True):
        fact.inferred = fact.exact and outcome.finding is not None and str(outcome.finding["id"]) in without_names
    return made


def _fact(run: RunFacts, outcome: FaultOutcome, histories: Mapping[str, Sequence[Data]]) -> FaultFact:
    fault, best = outcome.fault, outcome.finding
    made = FaultFact(run.scenario, run.seed, str(fault["kind"]), str(fault["target"]), run.blind)
    tied = [histories[key] for key in outcome.tied]
    made.findings = sum(any(s["severity"] != "info" for s in history) for history in tied)
    made.found = outcome.first_sign_ns is not None
    if outcome.first_sign_ns is not None:
        made.delay_s = outcome.first_sign_ns / 1e9
    if best is None or outcome.verdict == "wrong":
        best = min((h[0] for h in tied), key=lambda s: int(s["seen_at_ns"]), default=None)
    if best is not None:
        made.exact = outcome.location is LocationMatch.EXACT
        settled = _settled(best, histories, made.kind)
        made.cause = settled["cause"] in CAUSES_OF.get(made.kind, frozenset())
        made.reported_class = reported_class(str(settled["kind"]), str(settled["cause"]))
        directed = made.kind not in _AT_A_NIC and best["subject"]["type"] != "switch"
        if made.exact and 1 <= len(fault.get("links", ())) <= 2 and directed:
            made.directed = directs(best, fault["links"])
    first = [] if best is None else [_brief(best)]
    made.reported = tuple(dict.fromkeys([*first, *sorted(_brief(h[0]) for h in tied)]))
    made.closed_early = sum(closed_early(history, fault) for history in tied)
    return made


def _stated(outcomes: Sequence[FaultOutcome], histories: Mapping[str, Sequence[Data]]) -> list[Stated]:
    """What every finding above info stated once it had settled, and whether it was true of the fault it is tied to."""
    fault_of = {key: outcome.fault for outcome in outcomes for key in outcome.tied}
    found = []
    for key, history in histories.items():
        fault = fault_of.get(key)
        settled = _settled(history[0], histories, "" if fault is None else str(fault["kind"]))
        if all(s["severity"] == "info" for s in history) or settled.get("class") == TELEMETRY:
            continue
        is_true = (
            fault is not None
            and located(fault, settled) is LocationMatch.EXACT
            and settled["cause"] in CAUSES_OF.get(str(fault["kind"]), frozenset())
        )
        found.append(Stated(float(settled.get("confidence", 0.0)), is_true))
    return found


def _settled(best: Data, histories: Mapping[str, Sequence[Data]], kind: str) -> Data:
    """The finding as it stands `SETTLED_NS` later: some causes show by counters, which are read once a second.

    `kind`: of the fault that it is tied to.
    """
    until_ns = int(best["seen_at_ns"]) + _LATER_NS.get(kind, SETTLED_NS)
    later = [s for s in histories[str(best["id"])] if int(s["seen_at_ns"]) <= until_ns and s["status"] != "resolved"]
    return later[-1] if later else best


def directs(finding: Data, links: Sequence[str]) -> bool:
    """Whether the subject has the one direction that is at fault, or none where several are.

    >>> directs({"subject": {"type": "nic", "id": "h0/r0", "direction": "h0/r0 tx"}}, ["h0/r0->l0"])
    True
    """
    said = str(finding["subject"].get("direction") or "")
    if len(links) != 1:
        return not said
    a, _, b = links[0].partition("->")
    return said in (links[0], f"{a} tx" if "/" in a else f"{b} rx")


def is_empty(statement: Data) -> bool:
    """Whether a statement above info shows nothing: no evidence, or none whose value differs from its baseline.

    >>> is_empty({"status": "open", "severity": "urgent", "evidence": [{"value": 0.0, "baseline": 0.0}]})
    True
    """
    if statement["status"] == "resolved" or statement["severity"] == "info":
        return False
    return all(not _shows(e) for e in statement["evidence"])


def _shows(evidence: Data) -> bool:
    value, baseline = evidence.get("value"), evidence.get("baseline")
    return value is not None and value != (baseline or 0.0)


def _brief(finding: Data) -> str:
    return f"{finding['kind']} {finding['subject']['type']} {finding['subject']['id']}"


def _named(statement: Data, addresses: Mapping[str, str]) -> Data:
    """The statement with links by their names where it has only addresses of interfaces."""
    subject = {name: _name(str(text), addresses) for name, text in statement["subject"].items()}
    suspects = [{**s, "id": _name(str(s["id"]), addresses)} for s in statement.get("suspects") or ()]
    return {**statement, "subject": subject, "suspects": suspects}


def _name(text: str, addresses: Mapping[str, str]) -> str:
    found = [addresses[a] for a in _ADDRESS.findall(text) if a in addresses]
    if not found or _ADDRESS.sub("", text).strip("->"):
        return text
    if "->" in text:
        return found[-1]  # the far end's address is that of the direction
    cables = {"--".join(sorted(ends(direction))) for direction in found}
    return cables.pop() if len(cables) == 1 else text
