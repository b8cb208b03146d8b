"""The phrases of ``sdfstream why``: figures and findings in plain language. `why` puts them into sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from sdfstream.board import notes_text
from sdfstream.board.humanize import bitrate, clock_time, duration, figure, listed, number, plural, share
from sdfstream.board.job_facts import SLOW, STRETCH_S, JobFacts, JobThroughput, QpFacts
from sdfstream.board.lateness import as_of
from sdfstream.records.units import NS_PER_S

Data = Mapping[str, Any]

TROUBLES: Final[dict[str, tuple[str, str]]] = {
    # kind of finding: what its subject does, and did when it is over
    "nic-down": ("passes no packets", "passed no packets"),
    "link-down": ("passes no packets", "passed no packets"),
    "path-down": ("passes no packets", "passed no packets"),
    "host-silent": ("is silent with all its NICs and its agent", "was silent with all its NICs and its agent"),
    "link-flap": ("goes down and comes back again and again", "went down and came back again and again"),
    "loss": ("loses some of the packets", "lost some of the packets"),
    "congestion": ("is congested (packets wait in a queue)", "was congested (packets waited in a queue)"),
    "ecn-marks": ("is congested (packets are marked there)", "was congested (packets were marked there)"),
    "class-rewritten": ("rewrites the traffic class of packets", "rewrote the traffic class of packets"),
    "miscabled": ("is cabled otherwise than planned", "was cabled otherwise than planned"),
    "port-errors": ("has rising error counters", "had rising error counters"),
    "inband-mismatch": (
        "takes far longer than the probes beside it (its packets travel otherwise)",
        "took far longer than the probes beside it (its packets travelled otherwise)",
    ),
    "clock-step": ("jumped", "jumped"),
    "clock-unsynced": ("has no trusted time", "had no trusted time"),
    "clock-faulty": ("disagrees with every neighbour", "disagreed with every neighbour"),
    "agent-stale": ("is not watched (its agent stopped publishing)", "was not watched (its agent stopped publishing)"),
    "agent-degraded": ("cannot do all of its work", "could not do all of its work"),
}
_EARLY: Final = "marks packets that hardly waited", "marked packets that hardly waited"
_ENDED: Final = {
    "held": "; its lease is over, but its former path is not clean, so it stays",
    "undone": "; taken back since",
    "expired": "; its lease is over",
}
RESENT: Final = 0.001
MARKED: Final = 0.01
ODD_NS: Final = 100_000
"""A queue pair's delay is out of line when it is this much, and as much again as the median, above the median."""
SOON_NS: Final = 60 * NS_PER_S


def location_of(finding: Data) -> str:
    """Subject of a finding, with its direction.

    >>> location_of({"subject": {"type": "link", "id": "l0--s1"}, "suspects": [{"id": "l0->s1", "probability": 0.9}]})
    'link l0--s1 (from l0 to s1)'
    """
    subject = finding["subject"]
    kind = str(subject.get("type", "place"))
    if subject.get("id") == "all agents" or (kind == "process" and subject.get("id") == "bus"):
        return "the whole fabric"
    name = f"{'NIC' if kind == 'nic' else kind} {subject.get('id', '?')}"
    directions = [words for suspect in likely(finding) if (words := _direction(suspect, str(subject.get("id"))))]
    return f"{name} ({' and '.join(directions)})" if directions else name


def likely(finding: Data) -> list[str]:
    """Suspects at least half as probable as the first."""
    suspects = [(str(s.get("id")), float(s.get("probability", 0))) for s in finding.get("suspects") or ()]
    most = max((p for _, p in suspects), default=0.0)
    return [name for name, p in suspects if p >= 0.5 * most]


def does_and_did(finding: Data) -> tuple[str, str]:
    """What a finding's subject does, and did; a kind without a sentence of its own is called by its name."""
    kind = str(finding["kind"])
    if kind == "ecn-marks" and finding.get("cause") == "ecn-mistuned":
        return _EARLY
    return TROUBLES.get(kind, (kind, kind))


def trouble(finding: Data, now_ns: int, known_ns: int | None = None) -> str:
    """What is the matter, where, since when, why and how sure; was, where what is known is of a while ago."""
    subject, since = str(finding["subject"].get("id")), int(finding["since_at_ns"])
    elsewhere = [s for s in likely(finding) if not _direction(s, subject) and s.removeprefix("node ") != subject]
    doubt = f" or else {listed(elsewhere)} (the evidence does not tell them apart)" if elsewhere else ""
    does, did = does_and_did(finding)
    if finding.get("status") == "resolved" and finding.get("resolved_at_ns"):
        ended = int(finding["resolved_at_ns"])
        does, when = did, f"from {clock_time(since)} to {clock_time(ended)}, {duration(ended - since)} long"
    elif known := as_of(known_ns, now_ns):
        does, when = did, f"{known}, from {clock_time(since)} on"
    else:
        when = f"since {clock_time(since)}, {duration(now_ns - since)} ago"
    cause = str(finding.get("cause", "unknown")).replace("-", " ")
    sure = f", {share(finding['confidence'])} sure" if isinstance(finding.get("confidence"), int | float) else ""
    said = notes_text.of_finding(finding, now_ns)
    said = f"; {said}" if said else ""
    return f"{location_of(finding)}{doubt} {does}, {when} (cause: {cause}{sure}; finding {finding['id']}{said})"


def evidence(finding: Data, most: int = 2) -> str:
    """Its first facts with what is normal; empty without any."""
    words = []
    for fact in [f for f in finding.get("evidence") or () if f.get("value") is not None][:most]:
        unit = str(fact.get("unit", ""))
        normal = f" (normally {figure(fact['baseline'], unit)})" if fact.get("baseline") is not None else ""
        where = f" at {fact['where']}" if fact.get("where") else ""
        what = str(fact.get("what")).replace("-", " ")
        name = "" if what.split()[-1:] == [unit] else f"{what} "
        words.append(f"{name}{figure(fact['value'], unit)}{normal}{where}")
    return listed(words)


def rates(rate: JobThroughput, *, old: bool = False) -> str:
    """Throughput now, or then where what is known is `old`, against before, with the count behind it."""
    moves, now = ("moved", "then") if old else ("moves", "now")
    if rate.now_bps is None:
        return f"it sent nothing in the newest {STRETCH_S} s"
    if not rate.before_bps:
        return f"it {moves} {bitrate(rate.now_bps)} {now}, and there is nothing before to compare with"
    stretches = f"{rate.before_n} stretch{'' if rate.before_n == 1 else 'es'} of {STRETCH_S} s"
    words = (
        f"it {moves} {bitrate(rate.now_bps)} {now} against {bitrate(rate.before_bps)} before (median of {stretches}): "
    )
    words += f"{100 * rate.now_bps / rate.before_bps:.0f} %"
    if rate.low_bps is not None and rate.low_bps < SLOW * min(rate.now_bps, rate.before_bps):
        words += f", after {bitrate(rate.low_bps)} in the slowest second since the trouble began"
    return words


def slowest(qps: Sequence[QpFacts]) -> str:
    """The slowest queue pair beside the median of the others; empty where none sent anything."""
    sending = sorted((qp.rate_bps, qp.qp, qp) for qp in qps if qp.rate_bps is not None)
    if not sending:
        return ""
    (rate_bps, _, first), rest = sending[0], [qp for _, _, qp in sending[1:]]
    words = f"its slowest queue pair {first.qp} ({first.src} to {first.dst}, source port {first.path})"
    words += f" gets {bitrate(rate_bps)}"
    if rest:
        words += f" where the median of the other {len(rest)} gets {bitrate(_median([qp.rate_bps for qp in rest]))}"
    if first.owd_ns is not None:
        words += f", one-way delay {duration(first.owd_ns)}"
        theirs = _median([qp.owd_ns for qp in rest])
        words += f" against {duration(theirs)}" if theirs is not None else ""
    resent = _packet_share(first.resent_share, "sent again", "no packet sent again", "packets sent again not told")
    marked = _packet_share(first.ce_share, "marked", "none marked", "marks not told")
    return f"{words}, {resent}, {marked}"


def crossing(finding: Data, qps: Sequence[QpFacts]) -> str:
    """How many of the queue pairs cross the finding's subject or suspects; empty where none is known to."""
    subject = str(finding["subject"].get("id"))
    elements = {*likely(finding), f"node {subject}", f"tx {subject}", f"rx {subject}"}
    n = sum(bool(qp.elements & elements) for qp in qps)
    return f"{number(n)} of its {plural(len(qps), 'queue pair')} cross{'es' if n == 1 else ''} it" if n else ""


def signs(qps: Sequence[QpFacts]) -> list[str]:
    """Signs of trouble in band: packets sent again, marks, one delay out of line."""
    found = []
    for name, least, what in (
        ("resent_share", RESENT, "sent packets again"),
        ("ce_share", MARKED, "got packets marked"),
    ):
        odd = sorted(((getattr(qp, name) or 0.0), qp.qp) for qp in qps if (getattr(qp, name) or 0.0) >= least)
        if odd:
            found.append(f"{plural(len(odd), 'queue pair')} {what}, {odd[-1][1]} most ({share(odd[-1][0])} of its own)")
    delays = sorted((qp.owd_ns, qp.qp, qp.err_ns or 0.0) for qp in qps if qp.owd_ns is not None)
    if len(delays) >= 3:
        usual, (most, name, err_ns) = median(d for d, _, _ in delays), delays[-1]
        if most > usual + max(usual, ODD_NS, 2 * err_ns):
            found.append(f"{name} has a one-way delay of {duration(most)} where the median is {duration(usual)}")
    return found


def action(command: Data, trouble_ns: int | None) -> str:
    """What one command did, or why it did not."""
    target, state = command["target"], command.get("state")
    what = f"{str(target.get('type', '?')).replace('qp', 'queue pair')} {target.get('id', '?')}"
    doing = f"{command['action'] or 'an action'} of {what}"
    why = f" ({command['why']})" if command.get("why") else ""
    if state is None:
        return f"{doing}: {command.get('waits')}"
    if state == "failed":
        return f"{doing} was tried and failed{why}"
    if command.get("applied_bus_at_ns") is None:
        return f"{doing}: {state}{why}"
    before, after = command.get("before") or {}, command.get("after") or {}
    if before.get("path") and after.get("path") and before["path"] != after["path"]:
        done = f"{what} was moved from source port {before['path']} to {after['path']} ({command['action']})"
    elif command["action"] == "throttle" and after.get("rate_bps"):
        done = f"{what} was limited to {bitrate(after['rate_bps'])}"
    else:
        done = f"{doing} was applied"
    return f"{done}{_when(command, trouble_ns)}{_gain(command)}{_ENDED.get(str(state), '')}"


def refusal(commands: Sequence[Data]) -> str:
    """What was refused for one reason."""
    target = commands[0]["target"]
    what = f"{str(target.get('type', '?')).replace('qp', 'queue pair')}"
    which = f"{what} {target.get('id', '?')}" if len(commands) == 1 else plural(len(commands), what)
    why = f" ({commands[0]['why']})" if commands[0].get("why") else ""
    return f"{commands[0]['action'] or 'an action'} of {which} was refused{why}"


def people(facts: JobFacts) -> str:
    """The job in a few words."""
    name = facts.job + (f" ({facts.name})" if facts.name and facts.name != facts.job else "")
    ranks = f"{plural(facts.ranks, 'rank')} on " if facts.ranks else "on "
    return f"{name}, {ranks}{listed(facts.hosts, 4)}," if facts.hosts else name


def stale(facts: JobFacts) -> str:
    """Which agents are silent."""
    ages = [f"{host} ({duration(age)})" if age is not None else host for host, age in sorted(facts.stale.items())]
    return f"the agent{'s' if len(ages) != 1 else ''} of {listed(ages)} {'is' if len(ages) == 1 else 'are'} silent"


def _direction(suspect: str, subject: str) -> str:
    """Which direction of `subject` the suspect is, in words; empty when it is none."""
    a, arrow, b = suspect.partition("->")
    if arrow and sorted((a, b)) == sorted(subject.split("--")):
        return f"from {a} to {b}"
    if arrow and "/" in subject and subject in (a, b):  # a NIC whose switch is known
        return "what it sends" if subject == a else "what it receives"
    return {f"tx {subject}": "what it sends", f"rx {subject}": "what it receives"}.get(suspect, "")


def _when(command: Data, trouble_ns: int | None) -> str:
    at_ns = int(command.get("applied_at_ns") or command["applied_bus_at_ns"])
    after = at_ns - trouble_ns if trouble_ns is not None else -1
    return f" at {clock_time(at_ns)}" + (f", {duration(after)} after it began" if 0 <= after < SOON_NS else "")


def _gain(command: Data) -> str:
    if command.get("gain") is None:
        return ""
    before, after = command["before"], command["after"]
    n = f", n = {after['n']}" if isinstance(after.get("n"), int) else ""
    change = f"{bitrate(before.get('throughput_bps'))} before, {bitrate(after.get('throughput_bps'))} after"
    return f": {change} (×{command['gain']:.1f}{n})"


def _packet_share(value: float | None, what: str, none: str, unknown: str) -> str:
    return unknown if value is None else none if value == 0 else f"{share(value)} of its packets {what}"


def _median(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return median(known) if known else None
