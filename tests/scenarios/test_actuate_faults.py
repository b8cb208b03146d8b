"""The controller against a small fabric with agents that obey: what it commands, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from sdfstream.actuate.config import ActuateConfig
from sdfstream.records.fabric import QueuePair
from sdfstream.records.units import NS_PER_S
from tests.fixtures.plant import EPOCH, Plan, Plant

PORTS = tuple(range(52_001, 52_009))


def seconds(plant: Plant, at_ns: int) -> float:
    return (at_ns - EPOCH) / NS_PER_S


def pair(plant: Plant, src: str, dst: str, number: int, spine: str, alternates: tuple[int, ...] = PORTS) -> QueuePair:
    """A queue pair whose data go over `spine`."""
    port = next(iter(plant.ports_via(src, dst, spine))) if plant.plan.hash == "tuple" else 51_000
    return plant.qp(src, dst, number, port, alternates)


def collided(config: ActuateConfig | None = None, **plan: object) -> tuple[Plant, QueuePair, QueuePair]:
    """Two jobs of one queue pair each on one uplink, some seconds of quiet tracing before."""
    plant = Plant(Plan(**plan), config or ActuateConfig(mode="enforce"))  # type: ignore[arg-type]
    a, b = pair(plant, "h00", "h02", 1, "s1"), pair(plant, "h01", "h03", 2, "s1")
    plant.run(4)
    plant.job("one", [a])
    plant.job("two", [b])
    return plant, a, b


def alone(config: ActuateConfig | None = None, **plan: object) -> tuple[Plant, QueuePair]:
    """One job of one queue pair."""
    plant = Plant(Plan(**plan), config or ActuateConfig(mode="enforce"))  # type: ignore[arg-type]
    a = pair(plant, "h00", "h02", 1, "s1")
    plant.run(4)
    plant.job("one", [a])
    return plant, a


# --- failover ------------------------------------------------------------------------------------------------------


def test_a_dead_link_moves_the_queue_pair_over_what_was_armed_and_back_when_it_heals() -> None:
    plant, a = alone()
    plant.run(4)
    armed = plant.said("failover")[-1]
    assert armed["expected"] == armed["undo"] == {"path": a.path}
    routes = {m["path"]: plant.route(a.flow(m["path"]))[1:3] for m in armed["set"]["alternates"]}
    assert len(routes) == 3 and all("s1" not in "".join(route) for route in routes.values()), (
        "apart from the present path"
    )
    assert len({route[0] for route in routes.values()}) >= 2, "and from each other, as far as there are other ways"
    link = plant.route(a.flow())[1]
    plant.dead.add(link)
    plant.run(2)
    assert [m.why for m in plant.moves] == ["failover"]
    moved = plant.said("failover")[-1]
    assert moved["id"] == armed["id"] and moved["undo"] == {"path": a.path} == moved["expected"]
    assert moved["set"]["alternates"][0]["path"] == plant.find(a.qp).path, "its present path leads, to be watched"
    plant.run(25)
    assert [m.why for m in plant.moves] == ["failover"], "renewed, and not back while the link is dead"
    plant.dead.clear()
    plant.run(8)
    assert [m.why for m in plant.moves] == ["failover", "failback"]
    again = plant.said("failover")[-1]
    assert again["id"] != moved["id"] and again["expected"] == {"path": a.path}, "armed afresh"


def test_a_lease_is_renewed_every_third_and_let_go_when_the_job_ends() -> None:
    plant, _ = alone()
    plant.run(40)
    said = plant.said("failover")
    assert len({c["id"] for c in said}) == 1
    gaps = [b["issued_at_ns"] - a["issued_at_ns"] for a, b in pairwise(said)]
    assert gaps and max(gaps) <= 10.2 * NS_PER_S
    assert all(c["expires_at_ns"] - c["issued_at_ns"] == 30 * NS_PER_S for c in said)
    plant.end("one")
    before = len(plant.commands)
    plant.run(40)
    assert len(plant.commands) == before, "nothing more is said of a job that ended"
    assert not plant.leases, "and nothing is left in force"


def test_a_flapping_path_moves_a_queue_pair_ever_more_seldom() -> None:
    plant, a = alone(ActuateConfig(mode="enforce", hold_down_ms=1_000))
    plant.run(4)
    link = plant.route(a.flow())[1]
    for _ in range(40):
        plant.dead.add(link)
        plant.run(1)
        plant.dead.clear()
        plant.run(2)
    flaps, failovers = 40, [m for m in plant.moves if m.why == "failover"]
    assert 2 <= len(failovers) <= 8 < flaps
    holds = [c["set"]["hold_down_ms"] for c in plant.said("failover")]
    assert holds == sorted(holds) and holds[-1] >= 4_000


def test_new_traces_remake_what_is_armed_at_most_once_a_second() -> None:
    plant, _ = alone(trace_s=1.0)
    plant.run(4)
    before = len(plant.said("failover"))
    plant.dead |= {"!l0->s3", "l0->s3", "s3->l0"}  # the leaf takes an uplink out: ways of many probe paths change
    plant.run(6)
    plant.dead.clear()
    plant.run(7)
    times = [c["issued_at_ns"] for c in plant.said("failover")]
    assert len(times) > before
    assert all(b - a >= NS_PER_S for a, b in pairwise(times))


# --- contention ----------------------------------------------------------------------------------------------------


def test_two_jobs_on_one_link_are_parted_one_moves_and_it_is_measured() -> None:
    plant, a, b = collided()
    plant.run(12)
    assert [m.why for m in plant.moves] == ["steer"], "one canary, and then there is nothing left to do"
    effect = next(o for o in plant.outcomes if o["why"].startswith("effect:"))
    assert effect["host"] == "controller" and effect["state"] == "applied"
    assert effect["after"]["throughput_bps"] > 1.9 * effect["before"]["throughput_bps"]
    assert effect["after"]["slowest_bps"] > 1.9 * effect["before"]["slowest_bps"]
    assert effect["before"]["n"] >= 10 and effect["after"]["n"] >= 20
    assert effect["before"]["excess_ns"] > 1e6 > effect["after"]["excess_ns"]
    steer = plant.said("steer")
    moved = plant.find(steer[0]["target"]["id"])
    assert steer[0]["set"]["path"] == moved.path and steer[0]["set"]["watch"] and steer[0]["set"]["former_watch"]
    plant.run(30)
    assert len({c["id"] for c in plant.said("steer")}) == 1 and len(plant.said("steer")) >= 3, "its lease is renewed"
    plant.end("one")
    plant.end("two")
    plant.run(2)
    assert set(plant.rates()) == set() and a.qp != b.qp


def test_a_job_by_the_ports_of_one_long_ago_is_seen_to_collide() -> None:
    """The route of its flow is known of old, too long ago to count, and is found to be the same."""
    plant, a, b = collided(ActuateConfig(mode="enforce", route_max_age_s=30.0))
    plant.run(1)
    plant.end("one")
    plant.end("two")
    plant.run(45)
    plant.moves.clear()
    plant.job("three", [replace(a, qp="h00/r0#3")])
    plant.job("four", [replace(b, qp="h01/r0#4")])
    plant.run(5)
    assert [m.why for m in plant.moves] == ["steer"]


def test_a_finding_of_congestion_by_others_moves_the_queue_pair_away() -> None:
    plant, a = alone(ActuateConfig(mode="enforce", steer_collisions=False))
    plant.run(4)
    link = plant.route(a.flow())[1]
    plant.cross[link] = 80e6
    plant.run(1)
    assert not plant.said("steer")
    plant.finding("congestion", link, name="f77")
    plant.run(5)
    assert [m.why for m in plant.moves] == ["steer"]
    assert plant.said("steer")[0]["reason"] == ["f77"]
    assert link not in plant.route(plant.find(a.qp).flow())


@pytest.mark.parametrize("queue", [False, True])
def test_a_finding_of_congestion_moves_nothing_off_a_direction_without_a_queue(queue: bool) -> None:
    """A finding may suspect all directions of a switch; a queue stands in some of them."""
    plant, a = alone(ActuateConfig(mode="enforce", steer_collisions=False))
    plant.gain = lambda qp: 40e6
    plant.run(4)
    link = plant.route(a.flow())[1]
    if queue:
        plant.cross[link] = 80e6
    plant.finding("congestion", link)
    plant.run(5)
    assert bool(plant.moves) == queue


def test_the_worst_off_are_relieved_first() -> None:
    plant = Plant(Plan(hosts=8, probe_ports=tuple(range(50_000, 50_010))))
    four = [pair(plant, f"h0{i + 4}", f"h0{i}", i, "s2") for i in range(4)]
    two = [pair(plant, f"h0{i}", f"h0{i + 4}", 4 + i, "s1") for i in range(2)]
    plant.run(4)
    for i, one in enumerate([*four, *two]):
        plant.job(f"job{i}", [one])
    plant.run(12)
    steers = [m.qp for m in plant.moves if m.why == "steer"]
    assert steers[0] in {p.qp for p in four}, steers


def test_an_uncertain_finding_moves_nothing() -> None:
    plant, a = alone(ActuateConfig(mode="enforce", steer_collisions=False))
    plant.run(4)
    link = plant.route(a.flow())[1]
    plant.cross[link] = 80e6
    plant.finding("congestion", link, confidence=0.3)
    plant.run(5)
    assert not plant.moves


def test_a_move_without_gain_is_taken_back_and_not_tried_again_soon() -> None:
    plant, _, _ = collided()
    plant.gain = lambda qp: 45e6
    plant.run(40)
    whys = [m.why for m in plant.moves]
    assert whys[:2] == ["steer", "undo"]
    assert any(o["why"].startswith("no-gain:") and o["after"]["n"] >= 20 for o in plant.outcomes)
    tried = [(c["target"]["id"], c["set"]["path"]) for c in plant.said("steer") if c["issued_at_ns"] < plant.now]
    assert len(set(tried)) == len(tried), "no path twice within a minute"
    undo = plant.said("undo")[0]
    assert undo["set"]["command"] == plant.said("steer")[0]["id"] and undo["undo"]


def test_the_breaker_opens_says_so_and_is_reset_by_hand() -> None:
    plant, _, _ = collided(ActuateConfig(mode="enforce", breaker_bad=3, dwell_s=1.0))
    plant.gain = lambda qp: 45e6
    plant.run(60)
    assert len([o for o in plant.outcomes if o["command"] == "breaker"]) == 1
    moves = len(plant.moves)
    plant.run(30)
    assert len(plant.moves) == moves and plant.refused("breaker")
    plant.gain = None
    plant.override("mode", set={"mode": "enforce"})
    plant.run(70)
    assert len(plant.moves) > moves, "closed again by an operator"


def test_four_collisions_on_one_link_are_parted_one_after_the_other_onto_different_links() -> None:
    plant = Plant(Plan(hosts=8, probe_ports=tuple(range(50_000, 50_010))))
    pairs = [pair(plant, f"h0{i}", f"h0{i + 4}", i, "s2") for i in range(4)]
    plant.run(4)
    for i, one in enumerate(pairs):
        plant.job(f"job{i}", [one])
    plant.run(25)
    steers = [m.at_ns for m in plant.moves if m.why == "steer"]
    assert 2 <= len(steers) <= 6
    assert min(plant.rates().values()) == 100e6, plant.rates()
    assert all(b - a >= 2.5 * NS_PER_S for a, b in pairwise(steers)), "each after it was measured"


# --- what must not happen ------------------------------------------------------------------------------------------


def moves_nothing(plant: Plant) -> None:
    assert not plant.moves
    assert not [c for c in plant.commands if c["mode"] == "enforce"]


def test_a_hash_that_ignores_the_source_port_is_reported_and_nothing_is_steered() -> None:
    plant, _, _ = collided(hash="no-port")
    plant.run(15)
    moves_nothing(plant)
    why = [o["why"] for o in plant.refused("not-selectable")]
    assert any("path_selectable is no" in w and "all went one way" in w for w in why)
    assert {v.answer for v in plant.stage.selectable()} == {"no"}


@pytest.mark.parametrize("declared", [True, False])
def test_a_fabric_that_sprays_is_reported_and_nothing_is_steered(declared: bool) -> None:
    plant, _, _ = collided(hash="spray", declared=declared, trace_s=1.0)
    plant.run(15)
    moves_nothing(plant)
    assert any(v.answer == "no" and v.routes >= 2 for v in plant.stage.selectable()) or declared
    assert plant.refused("not-selectable")


def test_a_silent_agent_is_not_commanded() -> None:
    plant, a = alone()
    plant.run(4)
    plant.deaf.add("h00")
    plant.run(3)
    before = len(plant.commands)
    plant.run(40)
    assert len(plant.commands) == before
    assert plant.refused("stale-agent")
    assert not plant.leases, "its lease has lapsed"
    plant.deaf.clear()
    plant.run(6)
    assert plant.said("failover")[-1]["expected"] == {"path": a.path}, "armed again once it is back"


def test_wide_clocks_stop_what_rests_on_delays_but_not_failover() -> None:
    plant, _, _ = collided(err_us=5_000.0)
    plant.run(12)
    assert not plant.said("steer") and plant.refused("wide-clock")
    assert plant.said("failover")


def test_dry_run_says_it_once_and_changes_nothing() -> None:
    plant, _, _ = collided(ActuateConfig())
    plant.run(20)
    moves_nothing(plant)
    assert len(plant.said("failover", "dry-run")) <= 6
    assert 1 <= len(plant.said("steer", "dry-run")) <= 2


def test_observe_publishes_nothing_at_all() -> None:
    plant, _, _ = collided(ActuateConfig(mode="observe"))
    plant.run(15)
    assert not plant.outputs
    assert plant.stage.counters.get("observed", "failover")


def test_without_a_key_nothing_is_enforced() -> None:
    plant = Plant(authority=None)
    a = pair(plant, "h00", "h02", 1, "s1")
    plant.run(4)
    plant.job("one", [a])
    plant.run(6)
    plant.override("mode", set={"mode": "enforce"})
    plant.run(4)
    assert {c["mode"] for c in plant.commands} == {"dry-run"}


def test_a_job_that_opted_out_is_left_alone() -> None:
    plant, _, _ = collided(ActuateConfig(mode="enforce", opt_out=("one", "two")))
    plant.run(12)
    moves_nothing(plant)
    assert plant.refused("opt-out")


# --- persons -------------------------------------------------------------------------------------------------------


def test_approval_lets_a_waiting_command_go_out_anew() -> None:
    plant, _, _ = collided(ActuateConfig(mode="approve", failover=False))
    plant.run(6)
    waiting = plant.said("steer", "approve")
    assert len(waiting) == 1 and not plant.moves
    plant.override("approve", command=waiting[0]["id"])
    plant.run(6)
    assert [m.why for m in plant.moves] == ["steer"]
    sent = plant.said("steer")[0]
    assert sent["id"] == waiting[0]["id"] and sent["issued_at_ns"] > waiting[0]["issued_at_ns"]
    assert any(o["why"].startswith("effect:") for o in plant.outcomes)


def test_refusal_ends_a_waiting_command() -> None:
    plant, _ = alone(ActuateConfig(mode="approve"))
    plant.run(6)
    waiting = plant.said("failover", "approve")
    plant.override("refuse", target={"type": "job", "id": "one"})
    plant.run(2)
    plant.override("approve", command=waiting[0]["id"], id="late")
    plant.run(5)
    moves_nothing(plant)
    assert plant.refused("unknown-command")


def test_undo_and_hold_by_hand() -> None:
    plant, _, _ = collided()
    plant.run(8)
    steer = plant.said("steer")[0]
    plant.override("hold", target={"type": "all"}, for_s=20)
    plant.override("undo", command=steer["id"])
    plant.run(3)
    assert [m.why for m in plant.moves] == ["steer", "undo"]
    assert plant.said("undo")[0]["set"] == {"command": steer["id"]}
    plant.run(15)
    assert len(plant.moves) == 2 and plant.refused("hold")


def test_a_mode_override_arms_what_was_only_said_and_lets_go_again() -> None:
    plant, _ = alone(ActuateConfig())
    plant.run(6)
    assert not plant.said("failover")
    plant.override("mode", set={"mode": "enforce"})
    plant.run(13)
    assert plant.said("failover") and plant.leases
    plant.override("mode", set={"mode": "observe"})
    plant.run(1)
    before = len(plant.commands)
    plant.run(35)
    assert len(plant.commands) == before and not plant.leases


# --- kernel flows --------------------------------------------------------------------------------------------------


def test_a_kernel_flow_is_armed_only_once_the_far_host_translates_back() -> None:
    plant = Plant()
    a = replace(pair(plant, "h00", "h02", 1, "s1"), steering="kernel")
    plant.run(4)
    plant.job("iperf", [a])
    plant.run(3)
    peers = [c for c in plant.said("failover") if c["set"].get("part") == "peer"]
    assert peers[0]["target"]["host"] == "h02" and peers[0]["set"]["paths"] == list(PORTS)
    assert peers[0]["expected"] == peers[0]["undo"] == {"path": a.path}
    assert not [c for c in plant.said("failover") if c["target"]["host"] == "h00"]
    plant.answer(peers[0], "applied", "translates")
    plant.run(3)
    assert [c for c in plant.said("failover") if c["target"]["host"] == "h00"]


# --- incast --------------------------------------------------------------------------------------------------------


def converging(config: ActuateConfig) -> Plant:
    """Two jobs' queue pairs into one NIC, with a finding on its cable."""
    plant = Plant(config=config)
    plant.run(4)
    plant.job("one", [pair(plant, "h00", "h02", 1, "s1")])
    plant.job("two", [pair(plant, "h01", "h02", 2, "s2")])
    plant.run(4)
    plant.finding("congestion", "l1->h02/r0", name="f5")
    plant.run(2)
    return plant


def test_incast_is_left_alone_unless_asked_for() -> None:
    assert not converging(ActuateConfig(mode="enforce")).said("throttle")


def test_incast_limits_each_to_its_fair_share_and_lifts_it_when_the_finding_is_gone() -> None:
    plant = converging(ActuateConfig(mode="enforce", throttle_incast=True))
    limits = plant.said("throttle")
    assert {c["target"]["id"] for c in limits} == {"h00/r0#1", "h01/r0#2"}
    assert {c["set"]["rate_bps"] for c in limits} == {int(1e9 / 2 * 0.95)}
    assert all(c["undo"] == {"rate_bps": None} and c["reason"] == ["f5"] for c in limits)
    plant.run(12)
    assert len(plant.said("throttle")) == 4, "renewed"
    plant.finding("congestion", "l1->h02/r0", "resolved", name="f5")
    plant.run(7)
    lifted = {c["set"]["command"] for c in plant.said("undo")}
    assert lifted == {c["id"] for c in limits}


def test_a_limit_does_not_outlast_its_longest_time() -> None:
    plant = converging(ActuateConfig(mode="enforce", throttle_incast=True, throttle_max_s=10.0))
    plant.run(20)
    assert len(plant.said("undo")) == 2
