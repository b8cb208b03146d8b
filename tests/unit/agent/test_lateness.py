"""What an agent gives up when it is late: in which order, not for one bad second, and back again."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from sdfstream.agent.lateness import (
    CALM_LOOKS,
    FULL,
    LATE_LOOKS,
    LATE_LOOP_NS,
    LATE_PROBES_NS,
    STEPS,
    RateGovernor,
    Rates,
    TurnLateness,
)
from sdfstream.agent.lateness_io import PaceKeeper
from sdfstream.stats import Counters

LATE, CALM, BETWEEN = TurnLateness(0, LATE_LOOP_NS + 1), TurnLateness(0, 0), TurnLateness(LATE_PROBES_NS, 0)


def after(*looks: tuple[TurnLateness, int]) -> Rates:
    governor = RateGovernor()
    for found, n in looks:
        for _ in range(n):
            governor.look(found)
    return governor.rates


def test_planned_sessions_go_first_and_quick_paths_last() -> None:
    steps = [after((LATE, LATE_LOOKS * n)) for n in range(8)]
    assert tuple(steps[:5]) == STEPS and set(steps[5:]) == {STEPS[-1]}
    assert [r.quick for r in STEPS] == [1, 1, 1, 1, 0.5] and STEPS[-1].planned > 0


def test_a_moment_is_no_reason() -> None:
    assert after((LATE, LATE_LOOKS - 1), (BETWEEN, 1), (LATE, LATE_LOOKS - 1)) == FULL
    assert after((TurnLateness(10**12, 10**12), 1)) == FULL, "a machine that was frozen"


def test_what_was_given_up_comes_back_when_it_is_calm() -> None:
    slow = (LATE, 2 * LATE_LOOKS)
    assert after(slow, (CALM, CALM_LOOKS - 1)) == STEPS[2]
    assert after(slow, (CALM, CALM_LOOKS)) == STEPS[1]
    assert after(slow, (CALM, 2 * CALM_LOOKS)) == FULL
    assert after(slow, (BETWEEN, 10 * CALM_LOOKS)) == STEPS[2], "in time, and with no room for more"


@given(st.lists(st.sampled_from([LATE, CALM, BETWEEN])))
def test_rates_change_by_one_step_at_a_time(looks: list[TurnLateness]) -> None:
    governor, before = RateGovernor(), 0
    for found in looks:
        now = STEPS.index(governor.look(found))
        assert abs(now - before) <= 1
        before = now


class Host:
    def __init__(self) -> None:
        self.rates: list[Rates] = []

    def slow_down(self, rates: Rates) -> None:
        self.rates.append(rates)


def test_hosts_are_slowed_once_a_step_and_the_agent_says_so() -> None:
    """By the packet engine's own lateness, of what came since the reading before."""
    late_ns, readings = [0], list[Mapping[int, int]]()

    def engine(before: Mapping[int, int]) -> tuple[int, dict[int, int]]:
        readings.append(before)
        return late_ns[0], {1: len(readings)}

    counters, host = Counters("agent"), Host()
    keeper = PaceKeeper(counters, engine)
    late_ns[0] = LATE_PROBES_NS + 1
    for _ in range(LATE_LOOKS + 1):
        keeper.note(0.001)
        keeper.look([host])
    assert host.rates == [STEPS[1]]
    assert counters.troubles.open["pace"].startswith("probes and rows come late: ")
    assert counters.troubles.open["pace"].endswith("planned sessions at 0.5 of their rate")
    assert counters.get("slowed") == 2
    assert readings == [{}, *({1: n} for n in range(1, LATE_LOOKS + 2))]
    late_ns[0] = 0
    for _ in range(CALM_LOOKS):
        keeper.look([host])
    assert host.rates == [STEPS[1], FULL] and not counters.troubles.open


def test_without_an_engine_the_loop_sends_and_nine_in_ten_turns_count() -> None:
    for late_turns, rates in ((5, []), (15, [STEPS[1]])):
        host = Host()
        keeper = PaceKeeper(Counters("agent"))
        for _ in range(LATE_LOOKS):
            for turn in range(100):
                keeper.note(0.5 if turn < late_turns else 0.0)
            keeper.look([host])
        assert host.rates == rates
