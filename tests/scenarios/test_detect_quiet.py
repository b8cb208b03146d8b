"""Runs in which nothing may be found, or exactly one thing: noise, stalls, wrong clocks, silence of the bus itself."""

import os
from dataclasses import replace

import pytest

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.stage import DetectStage
from tests.fixtures.drive import run
from tests.fixtures.leafspine import Fabric, Fault, Shape

SMALL = Shape(hosts=4, leaves=4, ports=2)
LONG_S = float(os.environ.get("SDFSTREAM_QUIET_S", "15"))


@pytest.mark.parametrize("seed", range(10))
def test_a_healthy_fabric_with_bursts_and_stray_losses_has_no_finding(seed: int) -> None:
    stage = DetectStage()
    reported = run(stage, Fabric(seed, [], SMALL).messages(LONG_S))
    assert reported.findings() == []
    states = {(n, d): s for nic in Fabric(seed, [], SMALL).nics for _, d, s in reported.nic(nic) for n in [nic]}
    assert len(states) == 16 and set(states.values()) == {"healthy"}


def test_many_short_bursts_on_a_link_are_no_congestion() -> None:
    bursts = [Fault(("l0->s1", "s1->l2"), 5 + i, 5.1 + i, delay_us=3000) for i in range(10)]
    assert run(DetectStage(), Fabric(1, bursts, SMALL).messages(18)).opened() == []


def test_delay_below_the_given_threshold_is_none_and_above_it_is_one() -> None:
    for delay_us, expected in ((300, []), (900, ["congestion"])):
        fabric = Fabric(1, [Fault(tuple(f"s1->l{i}" for i in range(4)), 8, 13, delay_us=delay_us)], SMALL)
        reported = run(DetectStage(DetectConfig(excess_us=500)), fabric.messages(18))
        assert [k for _, k, _ in reported.opened()] == expected == [k for _, k, _ in reported.resolved()]


def test_a_wide_error_bar_hides_a_queue_and_never_makes_one() -> None:
    queue = [Fault(tuple(f"s1->l{i}" for i in range(4)), 8, 1e9, delay_us=2000)]
    for err_us in (900, 3000):
        stage = DetectStage()
        reported = run(stage, Fabric(1, queue, replace(SMALL, err_us=err_us)).messages(14))
        assert reported.opened() == []
    assert stage.counters.get("unjudged", "clock-error") > 1000


@pytest.mark.parametrize("step_us", [-3000, 3000])
def test_a_clock_that_moved_is_no_queue(step_us: float) -> None:
    stage = DetectStage()
    reported = run(stage, Fabric(2, [Fault(clock="h02", at_s=8, until_s=12, step_us=step_us)], SMALL).messages(16))
    assert reported.opened() == []
    assert stage.counters.get("unjudged", "clock-moved") > 100


def test_a_bus_that_stalls_for_two_seconds_delays_news_and_makes_none() -> None:
    messages = list(Fabric(3, [], SMALL).messages(16))
    start = messages[0].bus_at_ns
    held = [replace(m, bus_at_ns=start + 10_000_000_000) if 8e9 < m.bus_at_ns - start < 10e9 else m for m in messages]
    assert run(DetectStage(), held).opened() == []


def test_all_agents_silent_is_one_statement_about_the_bus() -> None:
    fabric = Fabric(4, [], SMALL)
    reported = run(DetectStage(), fabric.messages(8), until_s=20)
    assert [(k, s) for _, k, s in reported.opened()] == [("agent-stale", "bus")]
    assert reported.findings("open")[0][1]["subject"]["type"] == "process"
    assert {s for nic in fabric.nics for t, _, s in reported.nic(nic) if t > 10} == {"unknown"}


def test_a_nic_that_leaves_is_unknown_and_healthy_when_back() -> None:
    fabric = Fabric(5, [Fault(nic="h01/r1", at_s=6, until_s=10)], SMALL)
    reported = run(DetectStage(), fabric.messages(15))
    assert reported.opened() == []
    assert [s for _, d, s in reported.nic("h01/r1") if d == "tx"] == ["healthy", "unknown", "healthy"]


def test_nic_sides_turn_grey_and_green_as_injected() -> None:
    """M4: the state timeline of one NIC equals the injected schedule, side by side."""
    fabric = Fabric(6, [Fault(("h01/r1->l1",), 6, 9, drop=1), Fault(("l1->h01/r1",), 13, 16, drop=1)], SMALL)
    reported = run(DetectStage(), fabric.messages(20))
    timeline = [(t, d, s) for t, d, s in reported.nic("h01/r1") if t > 5]
    assert [(d, s) for _, d, s in timeline] == [
        ("tx", "unhealthy"),
        ("tx", "healthy"),
        ("rx", "unhealthy"),
        ("rx", "healthy"),
    ]
    for (t, _, _), true in zip(timeline, (6, 9, 13, 16), strict=True):
        assert true <= t <= true + 1.6
    assert [s for nic in fabric.nics if nic != "h01/r1" for t, _, s in reported.nic(nic) if t > 5] == []


def test_fifty_milliseconds_when_asked_for() -> None:
    shape = replace(SMALL, rate_hz=40.0, ports=1, liveness_ms=50, flush_ms=20, owd=False)
    fabric = Fabric(7, [Fault(("h01/r1->l1", "l1->h01/r1"), 6, 8, drop=1)], shape)
    ((at_s, kind, subject),) = run(DetectStage(DetectConfig(liveness_ms=50)), fabric.messages(9)).opened()
    assert (kind, subject) == ("nic-down", "h01/r1") and at_s < 6.4


def test_rows_alone_are_enough() -> None:
    """A recording may hold sdf.raw.probe.v1 and nothing else."""
    shape = replace(SMALL, liveness=False, declared=False, traced=False, owd=False, ports_read=False, clocks=False)
    fabric = Fabric(8, [Fault(("h01/r1->l1", "l1->h01/r1"), 6, 9, drop=1)], shape)
    reported = run(DetectStage(), fabric.messages(14))
    assert [(k, s) for _, k, s in reported.opened()] == [("nic-down", "h01/r1")]
    assert 6 < reported.opened()[0][0] < 7.8


def test_two_faults_at_once_are_two_findings() -> None:
    faults = [Fault(("h00/r0->l0", "l0->h00/r0"), 6, 12, drop=1), Fault(("h03/r1->l3",), 6.3, 12, drop=1)]
    reported = run(DetectStage(), Fabric(9, faults, SMALL).messages(12))
    assert sorted(s for _, k, s in reported.opened() if k == "nic-down") == ["h00/r0", "h03/r1"]
    assert len(reported.opened()) == 2
