"""The judges of the clocks' score card on tracks made by hand: each figure right, and each limit can be missed."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.score.clock import judges as judge
from sdfstream.score.clock.laws import BY_NAME, CASES, Case, spread, summary
from sdfstream.score.clock.tracks import Delays, Seen, Track, figures, freshness

SECONDS = 100


def track(error: float = 10.0, bound: float = 40.0, status: str = "synced", age_ms: float = 5.0) -> Track:
    """A row every 100 ms, alternating in sign."""
    at = np.arange(0, SECONDS, 0.1) - age_ms / 1e3
    sign = np.where(np.arange(at.size) % 2, 1.0, -1.0)
    return Track(at, sign * error, np.full(at.size, bound), np.full(at.size, status), np.full(at.size, age_ms * 1e6))


def changed(t: Track, low: float, high: float, **columns: object) -> Track:
    """Some columns set to a value in a stretch of time."""
    during = (t.at_s >= low) & (t.at_s < high)
    parts = {}
    for name, value in columns.items():
        old = getattr(t, name)
        parts[name] = np.where(during, value, old)  # type: ignore[call-overload]
    return t._replace(**parts)


def test_figures_are_those_of_the_stretch_and_the_names() -> None:
    rows = {"b": changed(track(3.0), 0, 50, error=1000.0), "c": changed(track(4.0), 50, 100, bound=3.0)}
    found = figures(rows, 50.0, 90.0)
    assert found["rms"] == pytest.approx(np.sqrt((9 + 16) / 2), rel=1e-3)
    assert (found["p50"], found["max"]) == (pytest.approx(3.5, abs=0.5), 4.0)
    assert found["covered"] == pytest.approx(0.5, abs=0.01)
    assert figures(rows, 50.0, names={"b"})["covered"] == 1.0
    assert figures(rows, 50.0, names={"b"})["bound_per_rms"] == pytest.approx(40 / 3)


def test_a_clock_that_says_nothing_is_the_worst_there_is() -> None:
    silent = Track._make(column[:0] for column in track())
    for rows in ({}, {"b": silent}, {"b": track(), "c": silent}):
        found = figures(rows, 10.0)
        assert found["rms"] == np.inf and found["max"] == np.inf and found["covered"] == 0.0
        assert freshness(rows, 10.0) == {"age_ms": np.inf, "gap_ms": np.inf}


def test_an_error_that_is_no_number_keeps_no_limit() -> None:
    rows = {"b": changed(track(), 60, 61, error=np.nan)}
    card = summary(BY_NAME["pair-B-64"], [judge.steady(40.0)(Seen(rows, rows))])
    assert not card["met"]["rms"] and not card["met"]["p99"] and not card["met"]["max"]


def test_freshness_sees_old_rows_and_gaps() -> None:
    rows = {"b": track(age_ms=5.0), "c": track(age_ms=260.0)}
    assert freshness(rows, 5.0)["age_ms"] == pytest.approx(260.0)
    holed = Track._make(np.delete(column, slice(500, 507)) for column in track())
    assert freshness({"b": holed}, 5.0)["gap_ms"] == pytest.approx(800.0)


def test_cold_start() -> None:
    quick = judge.cold_start(Seen({"b": changed(track(), 0, 3.05, error=5000.0)}))
    assert quick["microsecond_s"] == pytest.approx(3.0, abs=0.11)
    assert quick["steady_ratio"] == pytest.approx(1.0)
    slow = judge.cold_start(Seen({"b": changed(track(), 15, 30, error=30.0)}))
    assert slow["steady_ratio"] == pytest.approx(3.0, rel=0.02)
    assert judge.cold_start(Seen({"b": changed(track(), 99, 100, error=5000.0)}))["microsecond_s"] > 99
    assert judge.cold_start(Seen({"b": changed(track(), 7, 8, error=45.0)}))["covered"] < 1.0


def delays(told: float = 60e3, reverse: float = 10e3) -> Delays:
    at = np.repeat(np.arange(50.0, 81.0, 0.1), 2)
    forward = np.arange(at.size) % 2 == 0
    true = np.where(forward, 60e3, 10e3)
    return Delays(at, forward, np.where(forward, told, reverse), true, np.full(at.size, 200.0))


@pytest.mark.parametrize(
    ("told", "reverse", "shown", "phantom", "covered"),
    [
        (60e3, 10e3, 1.0, 0.0, 1.0),
        (35e3, 10e3, 0.5, 0.0, 0.5),  # half of the queue booked as clock error …
        (35e3, 35e3, 0.5, 0.5, 0.0),  # … and shown the other way
        (70e3, 10e3, 1.0, 0.2, 0.5),  # more than there was does not count as better
        (60e3, 9.9e3, 1.0, 0.002, 1.0),
    ],
)
def test_how_much_of_a_queue_is_shown(
    told: float, reverse: float, shown: float, phantom: float, covered: float
) -> None:
    found = judge.shown(delays(told, reverse), 50.0, 81.0)
    assert found["least_shown"] == pytest.approx(shown)
    assert found["phantom"] == pytest.approx(phantom)
    assert found["owd_covered"] == pytest.approx(covered)


def test_too_much_in_one_window_does_not_make_up_for_too_little_in_another() -> None:
    d = delays()
    uneven = np.where(d.forward, np.where(d.at_s < 65, 35e3, 85e3), 10e3)
    found = judge.shown(d._replace(published=uneven), 50.0, 81.0)
    assert found["least_shown"] < 0.8 and found["phantom"] > 0.2


def test_delays_that_were_not_published_show_nothing() -> None:
    empty = Delays._make(column[:0] for column in delays())
    assert judge.shown(empty, 50.0, 81.0) == {"least_shown": 0.0, "phantom": np.inf, "owd_covered": 0.0}
    only_ahead = Delays._make(column[delays().forward] for column in delays())
    assert judge.shown(only_ahead, 50.0, 81.0)["phantom"] == np.inf


def lied(**troubled: Track) -> dict[str, float]:
    clean = Seen({name: track(10.0) for name in ("b", "c", "liar")})
    rows = {"b": track(11.0), "c": track(11.0), "liar": changed(track(5000.0), 4, 101, status="faulty"), **troubled}
    return judge.lied_to(15.0)(Seen(rows, troubled=frozenset({"liar"}), clean=clean))


def test_liars_are_told_and_nobody_else() -> None:
    found = lied()
    assert found["clean_ratio"] == pytest.approx(1.1)
    assert found["flagged_s"] == pytest.approx(4.0, abs=0.11)
    assert found["wrongly"] == 0.0
    assert found["max"] == pytest.approx(11.0)


def test_a_liar_that_is_not_told_a_good_clock_that_is_and_good_clocks_that_suffer() -> None:
    assert lied(liar=track(5000.0))["flagged_s"] == np.inf
    assert lied(b=changed(track(), 20, 20.2, status="faulty"))["wrongly"] == 1.0
    assert lied(b=track(30.0), c=track(30.0))["clean_ratio"] == pytest.approx(3.0)
    accused = Seen({"b": changed(track(), 3, 4, status="faulty"), "liar": track()})
    rows = {"b": track(), "liar": changed(track(), 4, 101, status="faulty")}
    seen = Seen(rows, troubled=frozenset({"liar"}), clean=accused)
    assert judge.lied_to(15.0)(seen)["wrongly"] == 1.0  # of the clean run


def step(mine: Track, other: float = 10.0) -> dict[str, float]:
    clean = Seen({"b": track(10.0), "s": track(10.0)})
    return judge.stepped(30.0)(Seen({"b": track(other), "s": mine}, troubled=frozenset({"s"}), clean=clean))


def test_a_step_told_and_over() -> None:
    wrong = changed(track(), 30, 34.05, error=250e3, bound=40.0)
    told = changed(wrong, 31.0, 34.05, status="unsynced", bound=1e6)
    found = step(told)
    assert found["told_s"] == pytest.approx(1.0, abs=0.11)
    assert found["inside_s"] == pytest.approx(4.0, abs=0.11)
    assert found["others_ratio"] == pytest.approx(1.0)
    assert step(wrong)["told_s"] == np.inf
    assert step(changed(track(), 30, 101, error=250e3))["inside_s"] == np.inf
    assert step(told, other=30.0)["others_ratio"] == pytest.approx(3.0)


def test_a_bound_of_an_hour_is_not_being_back() -> None:
    hidden = changed(track(), 30, 101, bound=3.6e12, status="holdover")
    assert step(hidden)["inside_s"] == np.inf


def test_a_slewed_clock() -> None:
    clean = Seen({"b": track(10.0), "s": track(10.0)})
    mine = changed(track(), 30, 52.05, error=900.0, bound=2000.0)
    found = judge.slewed(30.0, 49.0)(Seen({"b": track(), "s": mine}, troubled=frozenset({"s"}), clean=clean))
    assert found["inside_s"] == pytest.approx(3.0, abs=0.11)
    assert found["p99_slewing"] == pytest.approx(900.0)
    assert found["covered"] == 1.0


def test_islands() -> None:
    clean = Seen({"b": track(10.0), "s": track(10.0)})
    mine = changed(track(), 25, 47.05, error=900.0, bound=2000.0)
    found = judge.split(25.0, 45.0)(Seen({"b": track(20.0), "s": mine}, troubled=frozenset({"s"}), clean=clean))
    assert found["inside_s"] == pytest.approx(2.0, abs=0.11)
    assert (found["away_p99"], found["p99_later"]) == (pytest.approx(900.0), pytest.approx(20.0))
    assert found["others_ratio"] == pytest.approx(2.0)
    gone = Seen({"b": track(), "s": Track._make(c[:200] for c in track())}, troubled=frozenset({"s"}), clean=clean)
    assert judge.split(25.0, 45.0)(gone)["inside_s"] == np.inf


def good(case: Case) -> Seen:
    """A run that keeps every limit of a case."""
    names = ["b", "s"]
    troubled = frozenset({"s"}) if case.clean is not None else frozenset()
    rows = {n: track(0.5, 1.5) for n in names}
    if "flagged_s" in case.limits:
        rows["s"] = changed(rows["s"], 1, 101, status="faulty")
    if "told_s" in case.limits:
        at_s = case.stretch_s[0] - 15
        rows["s"] = changed(rows["s"], at_s + 0.2, at_s + 1, status="unsynced")
    shown = delays()
    if case.stretch_s[0] < 50:
        shown = shown._replace(at_s=shown.at_s - 25.0)
    clean = Seen({n: track(0.5, 1.5) for n in names}) if case.clean is not None else None
    return Seen(rows, rows, shown if case.delays else None, troubled, clean)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_can_be_passed_and_failed(case: Case) -> None:
    found = case.judge(good(case))
    assert {"rms", "p99", "max", "covered"} <= found.keys()
    card = summary(case, [found])
    assert set(card["met"]) == set(case.limits) and case.limits
    assert all(card["met"].values()), (case.name, card)
    seen = good(case)
    bad = {n: changed(track(1e7, 1.0, age_ms=400.0), 0, 101, status="synced") for n in seen.causal}
    if "wrongly" in case.limits:
        bad["b"] = changed(bad["b"], 0, 101, status="faulty")
    wrong = None if seen.delays is None else seen.delays._replace(published=np.full(seen.delays.at_s.size, 35e3))
    failed = summary(case, [case.judge(Seen(bad, bad, wrong, seen.troubled, seen.clean))])["met"]
    # a bound is narrow and rows come in time however wrong they are, and an even error is steady
    still = {"bound_per_rms", "gap_ms", "steady_ratio"}
    assert not any(met for limit, met in failed.items() if limit not in still), failed


def test_median_and_worst_over_seeds_and_coverage_of_all_rows() -> None:
    case = BY_NAME["pair-B-64"]
    seeds = [
        {**case.judge(good(case)), "rms": rms, "covered": share} for rms, share in ((1, 1.0), (2, 1.0), (30, 0.99))
    ]
    card = summary(case, seeds)
    assert (card["median"]["rms"], card["worst"]["rms"]) == (2.0, 30.0)
    assert card["met"]["rms"] and not card["met_worst"]["rms"]
    assert card["worst"]["covered"] == 0.99
    assert card["covered"] == pytest.approx(0.99667, abs=1e-5)
    assert not card["met"]["least_covered"], "the median seed is covered, all seeds together are not"
    assert spread([{"rms": 1.0}, {"rms": np.inf}])["worst"]["rms"] == np.inf
