"""Why a job is slow: is it the network, where, since when, with evidence; one paragraph.

`explain` is pure: facts in, an explanation out, the same for the running pipeline and for an instant of the past. The
first case that fits is taken; a finding *about the network* is one of links, NICs, ports or how they are set up:

===========  ===========  ====================================================================================
case         network      when
===========  ===========  ====================================================================================
unknown-job  cannot tell  no agent has reported such a job
ended        cannot tell  every shard of it has ended
hurt         yes          a finding about the network touches it, and it is slow or its throughput is not known
not-slowed   no           a finding about the network touches it, but it is as fast as before
host         no           a host of it fell silent, and nothing else explains it
not-heard    cannot tell  agents of its hosts are silent, or no window of its queue pairs comes
signs        cannot tell  it is slow, no finding touches it, but its queue pairs show loss, marks or an odd delay
slow-clean   no           it is slow, and neither probes nor queue pairs show anything
too-young    cannot tell  it has no past to compare with
recovered    no           it is as fast as before, and a finding that touched it ended within ten minutes
healthy      no           it is as fast as before, and nothing touches it
===========  ===========  ====================================================================================

What is known only of an instant more than 2 s ago, since messages come late or wait to be read, is told with that
instant and in the past tense.

*Slow*: the newest 5 s below 80 % of the job's own median over the stretches of 5 s before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sdfstream.board import why_text
from sdfstream.board.humanize import duration, listed, plural
from sdfstream.board.job_facts import LEAST_STRETCHES, STRETCH_S, JobFacts, is_idle, is_network, is_slow
from sdfstream.board.lateness import as_of

Network = Literal["yes", "no", "cannot tell"]
Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer about one job at one instant."""

    job: str
    at_ns: int
    """Bus time of the question."""
    network: Network
    """Whether the network holds the job up."""
    case: str
    """Case of the module's table."""
    sentences: tuple[str, ...]
    """The paragraph, sentence by sentence."""
    advice: str
    """What a person should do; the last sentence."""
    where: str = ""
    """The subject of the first finding, with its direction."""
    since_at_ns: int | None = None
    findings: tuple[str, ...] = ()
    """Ids of the findings behind it."""
    jobs: tuple[str, ...] = ()
    """Other jobs that are hurt or slow too."""
    commands: tuple[str, ...] = ()
    """Ids of the commands that concern it."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Figures, by name with unit."""
    known: tuple[str, ...] = ()
    """Of an unknown job: the jobs there are."""
    known_at_ns: int | None = None
    """Bus time of which the answer speaks; earlier than `at_ns` where messages come late or wait to be read."""

    @property
    def paragraph(self) -> str:
        """All of it as one paragraph."""
        return " ".join((*self.sentences, self.advice))

    def as_data(self) -> dict[str, Any]:
        """Plain JSON, with the paragraph."""
        return asdict(self) | {"paragraph": self.paragraph}


def explain(facts: JobFacts) -> Explanation:
    """The first case of the module's table that fits the job."""
    if facts.state == "unknown":
        return _unknown_job(facts)
    if facts.state == "ended":
        return _ended(facts)
    slow = is_slow(facts.throughput)
    network = [f for f in facts.findings if is_network(f)]
    if network:
        return _not_slowed(facts, network) if slow is False else _hurt(facts, network)
    silent_host = next((f for f in facts.findings if f["kind"] == "host-silent"), None)
    if silent_host is not None:
        return _host_gone(facts, silent_host)
    return _without_finding(facts, slow)


def _without_finding(facts: JobFacts, slow: bool | None) -> Explanation:
    """The cases in which no finding is a reason."""
    blind = [f for f in facts.findings if f["kind"] == "agent-stale"]
    if facts.stale or blind or is_idle(facts.throughput):
        return _no_data(facts)
    if slow is None:
        return _too_young(facts)
    if slow:
        signs = why_text.signs(facts.qps)
        return _slow_with_signs(facts, signs) if signs else _slow_but_clean(facts)
    return _recovered(facts) if facts.ended_findings else _healthy(facts)


def _unknown_job(facts: JobFacts) -> Explanation:
    """No agent has reported it."""
    known = f"known are {listed(facts.known, 12)}" if facts.known else "no job is known at all"
    sentences = [f"Nobody told of a job {facts.job!r}; {known}."]
    return _verdict(facts, "cannot tell", "unknown-job", sentences, "Name one of those, or let a prolog tell of it.")


def _ended(facts: JobFacts) -> Explanation:
    """Every shard of it has ended."""
    sentences = [f"Job {why_text.people(facts)} has ended."]
    return _verdict(facts, "cannot tell", "ended", sentences, "Ask about an instant while it ran with --at.")


def _hurt(facts: JobFacts, findings: Sequence[Data]) -> Explanation:
    """A finding touches it, and it is slow, or its throughput is not known."""
    first, measured = findings[0], not is_idle(facts.throughput)
    rate = why_text.rates(facts.throughput, old=_is_old(facts)) if measured else "how fast it is now is not known"
    sentences = [
        f"Yes, the network {_holds(facts)} up job {facts.job}: {_trouble(facts, first)}.",
        *_sentence(rate, why_text.crossing(first, facts.qps)),
        *_sentence(why_text.slowest(facts.qps) if measured else ""),
        *_evidence(first),
    ]
    if more := findings[1:]:
        others = [f"{f['kind']} at {why_text.location_of(f)}" for f in more]
        sentences.append(f"More findings touch it: {listed(others, 3)}.")
    if facts.stale:
        sentences += _sentence(f"{why_text.stale(facts)}, so what they saw last is old")
    sentences += [*_others(facts), *_done(facts, int(first["since_at_ns"]))]
    return _verdict(facts, "yes", "hurt", sentences, _advice(facts, first), first)


def _not_slowed(facts: JobFacts, findings: Sequence[Data]) -> Explanation:
    """A finding touches it, but it is as fast as before."""
    first = findings[0]
    sentences = [
        f"No, not then: job {facts.job} was as fast as before, although something was wrong where it runs."
        if _is_old(facts)
        else f"No, not now: job {facts.job} is as fast as before, although something is wrong where it runs.",
        *_sentence(_trouble(facts, first)),
        *_sentence(why_text.rates(facts.throughput, old=_is_old(facts)), why_text.crossing(first, facts.qps)),
        *_evidence(first),
        *_others(facts),
        *_done(facts, int(first["since_at_ns"])),
    ]
    return _verdict(facts, "no", "not-slowed", sentences, _advice(facts, first), first)


def _host_gone(facts: JobFacts, finding: Data) -> Explanation:
    """A host of it fell silent."""
    sentences = [
        f"Not the network but a host {_holds(facts)} up job {facts.job}: {_trouble(facts, finding)}.",
        *_evidence(finding),
        *_others(facts),
        *_done(facts, int(finding["since_at_ns"])),
    ]
    return _verdict(facts, "no", "host", sentences, _advice(facts, finding), finding)


def _no_data(facts: JobFacts) -> Explanation:
    """Agents are silent, or no window of its queue pairs comes."""
    rate, why = facts.throughput, []
    if facts.stale:
        why.append(why_text.stale(facts))
    if rate.age_ns is None:
        why.append("no queue pair of it was ever measured")
    elif is_idle(rate):
        why.append(f"nothing was heard of its queue pairs for {duration(rate.age_ns)}")
    why += [f"{why_text.location_of(finding)} {why_text.does_and_did(finding)[0]}" for finding in facts.findings]
    sentences = [f"Cannot tell whether the network holds up job {facts.job}: {listed(why)}."]
    if facts.stale or facts.findings:
        sentences.append("What can still be heard shows no trouble on the links and NICs that it uses.")
        advice = "Restart those agents or mend their way to the bus, then ask again."
    else:
        sentences.append(
            "Its agents are heard and no finding touches it: it sends nothing, or nothing measures what it sends."
        )
        advice = "If it should be sending, look at its ranks first."
    return _verdict(facts, "cannot tell", "not-heard", [*sentences, *_done(facts, None)], advice)


def _slow_with_signs(facts: JobFacts, signs: Sequence[str]) -> Explanation:
    """It is slow and its queue pairs show trouble that no finding names."""
    sentences = [
        f"Cannot tell whether the network holds up job {facts.job}: it is slow and its queue pairs show signs of "
        "trouble, but no open finding names a place that it uses.",
        *_sentence(why_text.rates(facts.throughput, old=_is_old(facts))),
        *_sentence(listed(signs)),
        *_sentence(why_text.slowest(facts.qps)),
        *_others(facts),
        *_done(facts, None),
    ]
    advice = "Ask again in some seconds; then look at both ends of the queue pairs that are named here."
    return _verdict(facts, "cannot tell", "signs", sentences, advice)


def _slow_but_clean(facts: JobFacts) -> Explanation:
    """It is slow, and neither probes nor queue pairs show anything."""
    sentences = [
        f"Not the network as far as probes and queue pairs show: job {facts.job} is slow, but no open finding touches "
        f"a link, NIC or host that it uses, and none of its {plural(len(facts.qps), 'queue pair')} shows loss, marks "
        "or a delay out of line.",
        *_sentence(why_text.rates(facts.throughput, old=_is_old(facts))),
        *_sentence(why_text.slowest(facts.qps)),
        *_others(facts),
        *_done(facts, None),
    ]
    advice = "Look at the job itself: its input, stragglers among its ranks, clocks of the accelerators, host load."
    return _verdict(facts, "no", "slow-clean", sentences, advice)


def _too_young(facts: JobFacts) -> Explanation:
    """It has no past to compare with."""
    have = f"{facts.throughput.before_n} of at least {LEAST_STRETCHES} stretches of {STRETCH_S} s"
    sentences = [
        f"Cannot tell yet whether job {facts.job} is slow: {have} are there to compare with.",
        *_sentence(why_text.rates(facts.throughput, old=_is_old(facts))),
        *_sentence(why_text.slowest(facts.qps)),
        "No open finding touches it.",
        *_done(facts, None),
    ]
    return _verdict(facts, "cannot tell", "too-young", sentences, "Ask again in half a minute.")


def _recovered(facts: JobFacts) -> Explanation:
    """It is as fast as before, and a finding that touched it has ended."""
    first = facts.ended_findings[0]
    sentences = [
        f"No, not any more: job {facts.job} is as fast as before.",
        *_sentence(f"before, {_trouble(facts, first)}"),
        *_sentence(why_text.rates(facts.throughput, old=_is_old(facts))),
        *_done(facts, int(first["since_at_ns"])),
    ]
    return _verdict(facts, "no", "recovered", sentences, "Nothing needs to be done for the job.", first)


def _healthy(facts: JobFacts) -> Explanation:
    """It is as fast as before, and nothing touches it."""
    rate = why_text.rates(facts.throughput, old=_is_old(facts))
    sentences = [
        f"No, the network does not hold up job {why_text.people(facts)} as far as probes and queue pairs show.",
        *_sentence(rate, "no open finding touches a link, NIC or host that it uses"),
        *_sentence(why_text.slowest(facts.qps)),
    ]
    if armed := sum(qp.armed for qp in facts.qps):
        sentences.append(f"A failover is armed for {armed} of its {plural(len(facts.qps), 'queue pair')}.")
    for (action, _), commands in _refused(facts).items():
        if action == "failover" and armed < len(facts.qps):
            sentences.append(f"It cannot be armed for all: {why_text.refusal(commands)}.")
            break
    return _verdict(facts, "no", "healthy", [*sentences, *_done(facts, None)], "Nothing needs to be done.")


def _trouble(facts: JobFacts, finding: Data) -> str:
    return why_text.trouble(finding, facts.at_ns, facts.known_at_ns)


def _is_old(facts: JobFacts) -> bool:
    return bool(as_of(facts.known_at_ns, facts.at_ns))


def _holds(facts: JobFacts) -> str:
    return "held" if _is_old(facts) else "holds"


def _done(facts: JobFacts, trouble_ns: int | None) -> list[str]:
    """What the loop did, without failovers that were never triggered, and undos, which the undone command shows.

    Refusals of one kind are named once; of failovers that cannot be armed only where there is trouble.
    """
    refused = _refused(facts)
    shown = [c for c in facts.commands if c["action"] != "undo" and (c["action"] != "failover" or _was_triggered(c))]
    words = [why_text.action(c, trouble_ns) for c in shown if c.get("state") != "refused"]
    for (action, _), commands in refused.items():
        if action != "failover" or trouble_ns is not None:
            words.append(why_text.refusal(commands))
    if not words:
        return ["Nothing was done about it."] if trouble_ns is not None else []
    done = any(c.get("applied_bus_at_ns") is not None for c in shown)
    more = f"; and {len(words) - 3} more, see sdfstream commands --job {facts.job}" if len(words) > 3 else ""
    return [f"{'What was done' if done else 'Nothing was done'}: {'; '.join(words[:3])}{more}."]


def _refused(facts: JobFacts) -> dict[tuple[str, str], list[Data]]:
    """What was refused, by action and rule, the newest first; not failovers that are armed by now."""
    groups: dict[tuple[str, str], list[Data]] = {}
    armed = {qp.qp for qp in facts.qps if qp.armed}
    for command in facts.commands:
        since = command["action"] == "failover" and command["target"].get("id") in armed
        if command.get("state") == "refused" and not since:
            rule = str(command.get("why") or "").partition(":")[0]
            groups.setdefault((str(command["action"]), rule), []).append(command)
    return groups


def _was_triggered(command: Data) -> bool:
    return command.get("applied_bus_at_ns") is not None or command.get("state") in ("failed", "held")


def _advice(facts: JobFacts, finding: Data) -> str:
    waiting = [c for c in facts.commands if c.get("mode") == "approve" and c.get("state") is None]
    remedy = str(finding.get("remedy") or f"Look at sdfstream findings {finding['id']}.")
    if waiting:
        return f"For you: a {waiting[0]['action']} waits for sdfstream approve {waiting[0]['id']}; and: {remedy}"
    return f"For you: {remedy}"


def _others(facts: JobFacts) -> list[str]:
    if not facts.others:
        return ["No other job is hurt or slow."]
    verb = "is" if len(facts.others) == 1 else "are"
    return [f"{plural(len(facts.others), 'other job')} {verb} hurt or slow too: {listed(facts.others)}."]


def _evidence(finding: Data) -> list[str]:
    facts = why_text.evidence(finding)
    return [f"Evidence: {facts}."] if facts else []


def _sentence(*clauses: str) -> list[str]:
    text = "; ".join(clause for clause in clauses if clause)
    return [f"{text[0].upper()}{text[1:]}."] if text else []


def _verdict(
    facts: JobFacts, network: Network, case: str, sentences: Sequence[str], advice: str, finding: Data | None = None
) -> Explanation:
    if known := as_of(facts.known_at_ns, facts.at_ns):
        sentences = [*sentences, f"All this is {known}; what has happened since is not known yet."]
    return Explanation(
        job=facts.job,
        at_ns=facts.at_ns,
        network=network,
        case=case,
        sentences=tuple(sentences),
        advice=advice,
        where=why_text.location_of(finding) if finding else "",
        since_at_ns=int(finding["since_at_ns"]) if finding else None,
        findings=tuple(str(f["id"]) for f in facts.findings or facts.ended_findings),
        jobs=facts.others,
        commands=tuple(str(c["id"]) for c in facts.commands),
        numbers=_numbers(facts),
        known=facts.known if case == "unknown-job" else (),
        known_at_ns=facts.at_ns if facts.known_at_ns is None else facts.known_at_ns,
    )


def _numbers(facts: JobFacts) -> dict[str, Any]:
    rate = facts.throughput
    sending = sorted((qp.rate_bps, qp.qp, qp) for qp in facts.qps if qp.rate_bps is not None)
    slowest = {k: v for k, v in asdict(sending[0][2]).items() if k != "elements"} if sending else None
    return {
        "throughput_now_bps": rate.now_bps,
        "throughput_before_bps": rate.before_bps,
        "throughput_before_n": rate.before_n,
        "throughput_low_bps": rate.low_bps,
        "data_age_ns": rate.age_ns,
        "queue_pairs": len(facts.qps),
        "queue_pairs_armed": sum(qp.armed for qp in facts.qps),
        "findings_elsewhere": facts.elsewhere,
        "slowest": slowest,
        "stale_hosts": dict(facts.stale),
    }
