"""Every rule of the guard on its own: what it stops, what it lets through, and that not knowing speaks against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sdfstream.actuate import guard
from sdfstream.actuate.config import ActuateConfig, ns
from sdfstream.actuate.guard import RULES, Breaker, GuardFacts, Hold, Proposal, check, gone_out
from sdfstream.actuate.jobs import RunningJobs
from sdfstream.actuate.ledger import CommandLedger
from sdfstream.actuate.paths import Probing
from sdfstream.actuate.routes import Selectable
from sdfstream.records.fabric import QueuePair
from sdfstream.records.job import JobShard
from sdfstream.records.signature import Signer
from sdfstream.records.silences import FindingSilence
from sdfstream.records.units import NS_PER_S

NOW = 1_000 * NS_PER_S
PAIR = QueuePair("h0/r0#1", 0, 1, "h0/r0", "h1/r0", "10.0.0.2", 51_000, 4791, steering="socket", alternates=(51_001,))


def facts(config: ActuateConfig | None = None, qps: int = 1) -> GuardFacts:
    """Nothing speaks against a steer of `PAIR`."""
    config = config or ActuateConfig(mode="enforce")
    jobs, probing, selectable = RunningJobs(), Probing(), Selectable(config)
    pairs = tuple(replace(PAIR, qp=f"h0/r0#{i + 1}") for i in range(qps))
    jobs.take(JobShard("j", "h0", name="train", qps=pairs), NOW)
    probing.received_from("h0", NOW)
    for port, hop in ((1, "a"), (2, "b"), (3, "a"), (4, "b")):
        selectable.note(("h0/r0", "h1/r0"), "udp", port, ("l", hop, "m"), "new", NOW, NOW)
    made = GuardFacts(
        config, jobs, probing, selectable, CommandLedger(config, Signer(b"k" * 32), 7), Breaker(config), "enforce"
    )
    made.expire(NOW)
    return made


def proposal(f: GuardFacts, qp: int = 1, action: str = "steer", **more: object) -> Proposal:
    owned = f.jobs.get(f"h0/r0#{qp}")
    assert owned is not None
    return Proposal(action, owned, **{"path": 51_001, "rail": "r0", **more})  # type: ignore[arg-type]


def break_nothing(f: GuardFacts) -> None:
    """All is well."""


def open_breaker(f: GuardFacts) -> None:
    f.breaker.open_since_ns = NOW


def hold_job(f: GuardFacts) -> None:
    f.holds.append(Hold("o1", "job", "train", NOW + NS_PER_S))


def maintain_spine(f: GuardFacts) -> None:
    f.crossed = lambda owned, path, now_ns: [("l0", "s1")] if path == 51_001 else []
    f.silences.append(FindingSilence("o2", "switch", "s1", NOW, NOW + NS_PER_S, "ann", maintenance=True))


def contest(f: GuardFacts) -> None:
    f.jobs.take(JobShard("other", "h0", qps=(PAIR,)), NOW)


def another_path_seen(f: GuardFacts) -> None:
    f.seen_path = lambda qp, now_ns: 51_009


def never_received(f: GuardFacts) -> None:
    f.probing.restore({"heard": [], "paths": [], "shed": 0})


def received_long_ago(f: GuardFacts) -> None:
    f.probing.restore({"heard": [["h0", NOW - 3 * NS_PER_S]], "paths": [], "shed": 0})


def nothing_traced(f: GuardFacts) -> None:
    f.selectable.restore({"pairs": [], "unrest": [], "pending": []})


def ban(f: GuardFacts) -> None:
    f.banned["h0/r0#1", 51_001] = NOW + 1


def steer_just_now(f: GuardFacts) -> None:
    f.steered["h0/r0#1"] = NOW - ns(9.9)


def steer_another(f: GuardFacts) -> None:
    f.steers.append((NOW - NS_PER_S, "j"))


def other_rail(f: GuardFacts) -> None:
    f.rails["h9/r1#1"] = "r1"


def empty_bucket(f: GuardFacts) -> None:
    f.tokens = 0.4


def full(f: GuardFacts) -> None:
    f.config = replace(f.config, max_leases=1)
    f.ledger.open("steer", {"id": "x"}, {}, {}, {"path": 1}, (), "enforce")


def opt_out(f: GuardFacts) -> None:
    f.config = replace(f.config, opt_out=("train",))


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (break_nothing, ""),
        (open_breaker, "breaker"),
        (hold_job, "hold"),
        (maintain_spine, "maintenance"),
        (opt_out, "opt-out"),
        (never_received, "stale-agent"),
        (received_long_ago, "stale-agent"),
        (nothing_traced, "not-selectable"),
        (contest, "unexpected-state"),
        (another_path_seen, "unexpected-state"),
        (full, "lease-budget"),
        (ban, "banned"),
        (steer_just_now, "dwell"),
        (steer_another, "job-share"),
        (other_rail, "one-rail"),
        (empty_bucket, "bucket"),
    ],
)
def test_each_rule_stops_what_it_is_for(spoil: Callable[[GuardFacts], None], rule: str) -> None:
    f = facts()
    spoil(f)
    doubt = check(proposal(f), f, NOW)
    assert (doubt.rule if doubt else "") == rule
    assert doubt is None or len(doubt.why) > 10


def test_what_cannot_be_steered_is_not() -> None:
    f = facts()
    f.jobs.take(JobShard("j", "h0", qps=(replace(PAIR, steering="none"),)), NOW)
    doubt = check(proposal(f), f, NOW)
    assert doubt is not None and doubt.rule == "not-steerable"


@pytest.mark.parametrize(("err_ns", "stopped"), [(None, False), (1e6, False), (2.1e6, True), (3.6e12, True)])
def test_wide_clocks_stop_only_what_rests_on_delays(err_ns: float | None, stopped: bool) -> None:
    f = facts()
    doubt = check(proposal(f, err_ns=err_ns), f, NOW)
    assert (doubt is not None and doubt.rule == "wide-clock") == stopped


def test_armed_failovers_are_not_held_up_by_the_pace_of_steers() -> None:
    f = facts()
    for spoil in (steer_just_now, steer_another, other_rail, empty_bucket):
        spoil(f)
    assert check(proposal(f, action="failover"), f, NOW) is None


def test_a_renewal_is_not_held_up_by_pace_either_but_by_doubt() -> None:
    f = facts()
    for spoil in (steer_just_now, steer_another, other_rail, empty_bucket, full, ban):
        spoil(f)
    assert check(proposal(f, renewal=True), f, NOW) is None
    received_long_ago(f)
    assert check(proposal(f, renewal=True, moved=True), f, NOW) is not None


def test_what_was_moved_is_not_let_go_by_breaker_or_hold() -> None:
    f = facts()
    open_breaker(f)
    hold_job(f)
    assert check(proposal(f, renewal=True, moved=True), f, NOW) is None
    assert check(proposal(f, renewal=True), f, NOW) is not None


def test_a_twentieth_of_a_job_may_be_steered_within_a_dwell() -> None:
    f = facts(qps=60)
    for qp in (1, 2, 3):
        assert check(proposal(f, qp), f, NOW) is None
        gone_out(proposal(f, qp), f, NOW)
    doubt = check(proposal(f, 4), f, NOW)
    assert doubt is not None and doubt.rule == "job-share"
    f.expire(NOW + 10 * NS_PER_S)
    f.probing.received_from("h0", NOW + 10 * NS_PER_S)
    assert check(proposal(f, 4), f, NOW + 10 * NS_PER_S) is None


def test_the_bucket_fills_at_its_rate() -> None:
    f = facts(ActuateConfig(mode="enforce", bucket_rate_hz=2, bucket_burst=3, job_share=1.0), qps=9)
    for qp in (1, 2, 3):
        gone_out(proposal(f, qp), f, NOW)
    doubt = check(proposal(f, 4), f, NOW)
    assert doubt is not None and doubt.rule == "bucket"
    f.expire(NOW + NS_PER_S // 2)
    assert check(proposal(f, 4), f, NOW + NS_PER_S // 2) is None


def test_the_breaker_opens_on_number_and_share_and_stays_open() -> None:
    breaker = Breaker(ActuateConfig(breaker_bad=3, breaker_share=0.5))
    assert not any(breaker.note(bad, NOW) for bad in (False, False, False, False, True, True, True))
    assert breaker.note(True, NOW) and breaker.open_since_ns == NOW
    assert not breaker.note(True, NOW), "said once"
    breaker.note(False, NOW + 1_000 * NS_PER_S)
    assert breaker.open_since_ns == NOW
    breaker.reset()
    assert breaker.open_since_ns is None and not breaker.marks


def test_every_rule_has_a_name_and_a_sentence() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES) == 15
    assert all((rule.check.__doc__ or "").endswith(".") for rule in RULES)
    assert guard.RULES[0].name == "breaker"


def test_what_the_guard_remembers_survives() -> None:
    f = facts()
    for spoil in (open_breaker, hold_job, ban, steer_just_now, steer_another, other_rail, empty_bucket):
        spoil(f)
    other = facts()
    other.restore(f.snapshot())
    assert other.snapshot() == f.snapshot()
