"""An element that loses: its share beside others', when it has healed, and whether its paths lose alike."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sdfstream.detect.gray.known import Course, KnownLosses, LossCounts
from sdfstream.detect.gray.lossy import LossySubject, clearest, unlikeness
from sdfstream.detect.localise import Location
from sdfstream.detect.runs import LossRuns
from sdfstream.detect.sessions import Sessions
from sdfstream.records.finding import Subject

S = 1_000_000_000
T0 = 1_800_000_000 * S


def lossy(since_ns: int = T0) -> LossySubject:
    where = Location(Subject("link", "l0--s0"), ["l0->s0"], True, 0.05, np.array([0]), [("l0->s0", 1.0)], 1.0, ["both"])
    return LossySubject(where, since_ns)


def play(shares: list[float], seed: int) -> tuple[LossySubject, KnownLosses]:
    """40 paths at 10/s, one share for each second; the element stands with 5 % since the beginning."""
    sessions, rng = Sessions(100), np.random.default_rng(seed)
    slots = sessions.of_names([(f"a{i}/0", "b/0", "udp", 50000, 0) for i in range(40)], T0)
    runs = LossRuns(sessions)
    runs.ensure()
    for step in range(10 * len(shares)):
        ok = rng.random(40) >= shares[step // 10]
        at = np.full(40, T0 + step * S // 10)
        runs.take_rows(slots, np.full(40, step), ok, at, np.zeros(40, np.int64))
    standing = lossy()
    seen = KnownLosses(runs, np.full(40, S // 1000), np.zeros(40, bool))
    counts = seen.newest(*standing.window(seen.rings))
    standing.measure(counts, counts.used, np.ones(counts.used.size), 0.05, np.full(counts.used.size, 5e-4))
    return standing, seen


@pytest.mark.parametrize("seed", range(10))
def test_loss_that_goes_on_has_not_healed_and_loss_that_ended_has_within_two_seconds(seed: int) -> None:
    assert not (lambda x: x[0].healed(x[1]))(play([0.05] * 30, seed))
    assert not (lambda x: x[0].healed(x[1]))(play([0.03] * 30, seed))
    assert (lambda x: x[0].healed(x[1]))(play([0.05] * 28 + [0.0005] * 2, seed))


def test_what_passed_before_the_beginning_is_no_healing() -> None:
    standing, seen = play([0.0005] * 20 + [0.05] * 5, 1)
    standing.since_ns = T0 + 20 * S
    assert not standing.healed(seen)


def test_shares_leave_out_what_others_cost_and_are_never_zero() -> None:
    standing = lossy()
    counts, used = LossCounts(np.array([30, 30]), np.array([1000, 1000])), np.array([0, 1])
    standing.measure(counts, used, np.array([1.0, 1.0]), 0.01, np.array([0.02, 0.02]))
    share, low, high = standing.shares()
    assert share == pytest.approx(0.0101, rel=0.01) and low < share < high
    assert (standing.events, standing.probes, standing.harmed.tolist()) == (60, 2000, [0, 1])
    standing.measure(LossCounts(np.array([1, 0]), np.array([1000, 1000])), used, np.array([1.0, 1.0]), 0.0, np.zeros(2))
    assert min(standing.shares()) > 0


def test_paths_of_which_two_lose_all_are_unlike_and_those_that_lose_faintly_are_alike() -> None:
    probes, others = np.full(12, 400), np.full(12, 5e-4)
    assert unlikeness(np.array([20, 20] + [0] * 10), probes, others, in_whole=True) > 2.5
    rng = np.random.default_rng(1)
    assert unlikeness(rng.poisson(400 * 0.003, 12), probes, others, in_whole=True) < 1.0


@pytest.mark.parametrize("seed", range(20))
def test_paths_of_which_half_lose_a_tenth_prove_unlike_and_those_that_all_do_hardly_ever(seed: int) -> None:
    """A NIC behind whose leaf one of several links loses, and a NIC that loses; seven seconds at 10 Hz."""
    rng, probes, others = np.random.default_rng(seed), np.full(30, 70), np.full(30, 5e-4)
    crossing = np.arange(30) % 2
    assert unlikeness(rng.binomial(probes, 0.1 * crossing), probes, others, in_whole=True) > 2.5
    assert unlikeness(rng.binomial(probes, np.full(30, 0.01)), probes, others, in_whole=True) < 2.5


def test_a_link_that_loses_in_one_direction_is_no_less_one_for_paths_that_cross_the_other() -> None:
    """As they come back; a NIC is crossed there and back."""
    lost, probes, others = np.array([1, 1, 8, 1, 1, 1, 1, 0, 0, 0, 0, 0]), np.full(12, 70), np.full(12, 5e-4)
    assert unlikeness(lost, probes, others, in_whole=False) < 2.5 < unlikeness(lost, probes, others, in_whole=True)


def test_a_nic_whose_paths_prove_unlike_stands_no_longer() -> None:
    nic = lossy()
    nic.location.subject = Subject("nic", "h0/r0")
    used, ones, events = np.arange(30), np.ones(30), np.where(np.arange(30) % 2, 14, 0)
    nic.measure(LossCounts(events, np.full(30, 140)), used, ones, 0.05, np.zeros(30))
    assert nic.unlike > 2.5 and not nic.shows(T0 + 10 * S, -10.0)
    nic.measure(LossCounts(np.full(30, 7), np.full(30, 140)), used, ones, 0.05, np.zeros(30))
    assert nic.shows(T0 + 10 * S, -10.0)


@pytest.mark.parametrize("seed", range(5))
def test_what_passed_since_does_not_thin_the_share_that_is_over(seed: int) -> None:
    """Little was lost, for three seconds; it is over ten seconds later, not a minute."""
    assert (lambda x: x[0].healed(x[1]))(play([0.03] * 3 + [0.0] * 10, seed))


@pytest.mark.parametrize("seed", range(5))
def test_loss_that_became_less_is_not_over(seed: int) -> None:
    assert not (lambda x: x[0].healed(x[1]))(play([0.1] * 8 + [0.01] * 20, seed))


def test_a_run_of_luck_after_a_run_of_losses_heals_nothing() -> None:
    """Of 0.8 % seven were lost in 111 probes, then four in 1,340: 3 %, as the seven say, would be over, 1 % not."""
    standing, events = lossy(), [4, 3, 0, 0, 0, 0, 0, 0, 1, 0, 0, 2, *[0] * 10, 1, 0, 0, 0, 0]
    standing.slots, standing.share, standing.others = np.arange(10), 0.0073, 7.9e-4
    standing.events, standing.probes = 44, 5346

    class Seen:
        rings = (KnownLosses(LossRuns(Sessions(1)), np.zeros(0, np.int64), np.zeros(0, np.bool_)).rings[0],)

        def over(self, *_: object) -> Course:
            return Course(np.array(events), np.full(27, 54), 0, S // 5)

    seen: Any = Seen()
    assert not standing.healed(seen)
    standing.share, standing.events = 0.03, 160  # as many as the seven say
    assert standing.healed(seen)


@pytest.mark.parametrize(("worse", "shown"), [(0.0008, 20), (0.05, 8)])
def test_paths_that_lose_far_more_over_others_show_nothing_of_an_element(worse: float, shown: int) -> None:
    others = np.where(np.arange(20) % 5 < 2, 0.0008, worse)
    probes = np.full(20, 600)
    events = np.round(probes * (others + 0.005)).astype(np.int64)
    assert sorted(clearest(events, probes, others).tolist()) == np.flatnonzero(others < 0.01).tolist()
    assert clearest(events, probes, others).size == shown


def test_an_element_is_measured_anew_once_enough_was_seen_since_its_agents_were_late() -> None:
    standing, used, all_of_it = lossy(), np.array([0]), np.ones(1)
    standing.measure(LossCounts(np.array([50]), np.array([1000])), used, all_of_it, 0.05, np.zeros(1))
    standing.resumed_ns = T0 + 10 * S
    for events, probes in ((0, 70), (3, 500), (5, 5)):
        standing.measure(LossCounts(np.array([events]), np.array([probes])), used, all_of_it, 0.9, np.zeros(1))
        assert (standing.events, standing.probes, standing.share) == (50, 1000, 0.05)
    assert standing.shows(T0 + 60 * S, -10.0) and not standing.shows(T0 + 80 * S, -10.0)
    standing.measure(LossCounts(np.array([9]), np.array([100])), used, all_of_it, 0.09, np.zeros(1))
    assert (standing.events, standing.probes, standing.share) == (9, 100, 0.09)


def test_an_element_that_loses_no_more_than_others_bring_shows_nothing() -> None:
    standing, used = lossy(), np.array([0])
    standing.measure(LossCounts(np.array([14]), np.array([9000])), used, np.ones(1), 0.0006, np.full(1, 0.001))
    assert not standing.shows(T0, -10.0)
    standing.measure(LossCounts(np.array([60]), np.array([9000])), used, np.ones(1), 0.006, np.full(1, 0.001))
    assert standing.shows(T0, -10.0)


@pytest.mark.parametrize(
    ("whole", "likely", "taken"),
    [(True, 0.5, True), (True, 0.95, False), (False, 0.5, False)],
    ids=("the whole window doubts it", "it does not", "a short window alone"),
)
def test_a_direction_that_a_short_window_was_sure_of_is_doubted_by_the_whole_one(
    whole: bool, likely: float, taken: bool
) -> None:
    standing = lossy()
    both = [("l0->s0", likely), ("s0->l0", 1 - likely)]
    newer = Location(standing.location.subject, [d for d, _ in both], False, 0.05, np.array([0]), both, 1.0, ["both"])
    standing.heed(newer, whole=whole)
    assert standing.location.direction_known is not taken


def test_of_an_inferred_link_paths_that_lost_by_chance_are_not_listed() -> None:
    events, probes = np.array([6, 1, 0, 4]), np.array([300, 300, 300, 300])
    standing = lossy()
    standing.location = replace(standing.location, beside=("h00/r0", "h01/r0"))
    standing.measure(LossCounts(events, probes), np.arange(4), np.ones(4), 0.02, np.full(4, 0.0005))
    assert standing.harmed.tolist() == [0, 3]
    standing.measure(LossCounts(events // 6, probes), np.arange(4), np.ones(4), 0.02, np.full(4, 0.0005))
    assert standing.harmed.tolist() == [0], "where none is likely, what lost something"


@pytest.mark.parametrize(("unlike", "stands"), [(2.4, True), (3.0, True), (4.0, False)])
def test_a_nic_that_stands_is_dropped_only_once_its_paths_are_surely_unlike(unlike: float, stands: bool) -> None:
    """Who looks ten times a second meets 2.5 sigmas by chance: a finding ended in mid-fault and came back."""
    standing = lossy()
    standing.location = replace(standing.location, subject=Subject("nic", "h0/r0"))
    standing.events, standing.probes, standing.others, standing.unlike = 16, 1489, 7e-4, unlike
    assert standing.shows(T0 + 20 * S, -10.4) is stands


def test_what_was_found_at_once_is_measured_by_the_time_that_is_known_in_full() -> None:
    """Its window is short: the losses that are known of the newest probes would count, and their answers would not."""
    standing, seen = play([0.0] * 3 + [0.3], 1)
    standing.since_ns = T0 + 3 * S
    _, bins = standing.window(seen.rings)
    assert (standing.counts(seen).events == seen.newest(0, bins).events).all()
    standing.evenly = True
    assert standing.counts(seen).events.sum() == seen.closed(bins).events.sum() < seen.newest(0, bins).events.sum()


def test_a_path_that_crosses_a_switch_twice_loses_twice_its_share() -> None:
    counts = LossCounts(np.array([4, 0, 5]), np.array([20, 20, 20]))
    where = lossy().location
    found = LossySubject.lost_evenly(where, T0, np.array([0, 1]), counts, np.array([2.0, 2.0, 0.0]), (30, 100))
    assert (found.share, found.events, found.probes, found.harmed.tolist()) == (0.15, 30, 100, [0])
