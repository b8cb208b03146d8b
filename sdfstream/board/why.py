"""Why a job is slow: is it the network, where, since when, with evidence; one paragraph.

`explain` is pure: facts in, a verdict out, the same for the running pipeline and for an instant of the past. The rules,
the first that fits; a finding *about the network* is one of links, NICs, ports or how they are set up:

===========  ===========  ====================================================================================
case         network      when
===========  ===========  ====================================================================================
unknown-job  cannot tell  nobody told of such a job
ended        cannot tell  every part of it has ended
hurt         yes          a finding about the network touches it, and it is slow or its throughput is not known
not-slowed   no           a finding about the network touches it, but it is as fast as before
host         no           a host of it fell silent, and nothing else explains it
not-heard    cannot tell  agents of its hosts are silent, or nothing is heard of its queue pairs
signs        cannot tell  it is slow, no finding touches it, but its queue pairs show loss, marks or an odd delay
slow-clean   no           it is slow, and neither probes nor queue pairs show anything
too-young    cannot tell  it has no past to compare with
recovered    no           it is as fast as before, and a finding that touched it ended within ten minutes
healthy      no           it is as fast as before, and nothing touches it
===========  ===========  ====================================================================================

*Slow*: the newest 5 s below 80 % of the job's own median over the stretches of 5 s before.
"""

from __future__ import annotations

from sdfstream.board import why_cases as cases
from sdfstream.board import why_text
from sdfstream.board.job_facts import Facts, is_idle, is_network, is_slow
from sdfstream.board.why_cases import Verdict


def explain(facts: Facts) -> Verdict:
    """Judge one job; see the module's table."""
    if facts.state == "unknown":
        return cases.unknown_job(facts)
    if facts.state == "ended":
        return cases.ended(facts)
    slow = is_slow(facts.throughput)
    network = [f for f in facts.findings if is_network(f)]
    if network:
        return cases.not_slowed(facts, network) if slow is False else cases.hurt(facts, network)
    for finding in facts.findings:
        if finding["kind"] == "host-silent":
            return cases.host_gone(facts, finding)
    blind = [f for f in facts.findings if f["kind"] == "agent-stale"]
    if facts.stale or blind or is_idle(facts.throughput):
        return cases.not_heard(facts)
    if slow is None:
        return cases.too_young(facts)
    if slow:
        signs = why_text.signs(facts.qps)
        return cases.slow_with_signs(facts, signs) if signs else cases.slow_but_clean(facts)
    return cases.recovered(facts) if facts.ended_findings else cases.healthy(facts)
