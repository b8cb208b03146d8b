"""The metrics of the clocks' score card on tracks made by hand: each figure right, and each limit can be missed."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.score.clock import metrics
from sdfstream.score.clock.cases import BY_NAME, CASES, Case, spread, summary
from sdfstream.score.clock.tracks import OwdWindows, RunTracks, Track, figures, freshness

SECONDS = 100


def track(error: float = 10.0, bound: float = 40.0, status: str = "synced", age_ms: float = 5.0) -> Track:
    """A row every 100 ms, alternating in sign."""
    at = np.arange(0, SECONDS, 0.1) - age_ms / 1e3
    sign = np.where(np.arange(at.size) % 2, 1.0, -1.0)
    return Track(at, sign * error, np.full(at.size, bound), np.full(at.size, status), np.full(at.size, age_ms * 1e6))


def changed(t: Track, low: float, high: float, **columns: object) -> Track:
    """Some columns set to a value in a stretch of time."""
    during = (t.at_s >= low) & (t.at_s < high)
    replaced = {}
    for name, value in columns.items():
        old = getattr(t, name)
        replaced[name] = np.where(during, value, old)  # type: ignore[call-overload]
    return t._replace(**replaced)


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
    card = summary(BY_NAME["pair-B-64"], [metrics.steady_state(40.0)(RunTracks(rows, rows))])
    assert not card["met"]["rms"] and not card["met"]["p99"] and not card["met"]["max"]


def test_freshness_sees_old_rows_and_gaps() -> None:
    rows = {"b": track(age_ms=5.0), "c": track(age_ms=260.0)}
    assert freshness(rows, 5.0)["age_ms"] == pytest.approx(260.0)
    holed = Track._make(np.delete(column, slice(500, 507)) for column in track())
    assert freshness({"b": holed}, 5.0)["gap_ms"] == pytest.approx(800.0)


def test_cold_start() -> None:
    quick = metrics.cold_start(RunTracks({"b": changed(track(), 0, 3.05, error=5000.0)}))
    assert quick["microsecond_s"] == pytest.approx(3.0, abs=0.11)
    assert quick["steady_ratio"] == pytest.approx(1.0)
    slow = metrics.cold_start(RunTracks({"b": changed(track(), 15, 30, error=30.0)}))
    assert slow["steady_ratio"] == pytest.approx(3.0, rel=0.02)
    assert metrics.cold_start(RunTracks({"b": changed(track(), 99, 100, error=5000.0)}))["microsecond_s"] > 99
    assert metrics.cold_start(RunTracks({"b": changed(track(), 7, 8, error=45.0)}))["covered"] < 1.0


def delays(published: float = 60e3, reverse: float = 10e3) -> OwdWindows:
    at = np.repeat(np.arange(50.0, 81.0, 0.1), 2)
    forward = np.arange(at.size) % 2 == 0
    true = np.where(forward, 60e3, 10e3)
    return OwdWindows(at, forward, np.where(forward, published, reverse), true, np.full(at.size, 200.0))


@pytest.mark.parametrize(
    ("published", "reverse", "shown", "phantom", "covered"),
    [
        (60e3, 10e3, 1.0, 0.0, 1.0),
        (35e3, 10e3, 0.5, 0.0, 0.5),  # half of the queue booked as clock error …
        (35e3, 35e3, 0.5, 0.5, 0.0),  # … and shown the other way
        (70e3, 10e3, 1.0, 0.2, 0.5),  # more than there was does not count as better
        (60e3, 9.9e3, 1.0, 0.002, 1.0),
    ],
)
def test_how_much_of_a_queue_is_shown(
    published: float, reverse: float, shown: float, phantom: float, covered: float
) -> None:
    found = metrics.queueing_shown(delays(published, reverse), 50.0, 81.0)
    assert found["least_shown"] == pytest.approx(shown)
    assert found["phantom"] == pytest.approx(phantom)
    assert found["owd_covered"] == pytest.approx(covered)


def test_too_much_in_one_window_does_not_make_up_for_too_little_in_another() -> None:
    d = delays()
    uneven = np.where(d.forward, np.where(d.at_s < 65, 35e3, 85e3), 10e3)
    found = metrics.queueing_shown(d._replace(published=uneven), 50.0, 81.0)
    assert found["least_shown"] < 0.8 and found["phantom"] > 0.2


def test_delays_that_were_not_published_show_nothing() -> None:
    empty = OwdWindows._make(column[:0] for column in delays())
    assert metrics.queueing_shown(empty, 50.0, 81.0) == {"least_shown": 0.0, "phantom": np.inf, "owd_covered": 0.0}
    only_ahead = OwdWindows._make(column[delays().forward] for column in delays())
    assert metrics.queueing_shown(only_ahead, 50.0, 81.0)["phantom"] == np.inf


def lied(**troubled: Track) -> dict[str, float]:
    clean = RunTracks({name: track(10.0) for name in ("b", "c", "liar")})
    rows = {"b": track(11.0), "c": track(11.0), "liar": changed(track(5000.0), 4, 101, status="faulty"), **troubled}
    return metrics.falsetickers(15.0)(RunTracks(rows, troubled=frozenset({"liar"}), clean=clean))


def test_liars_are_flagged_and_no_other_clock() -> None:
    found = lied()
    assert found["clean_ratio"] == pytest.approx(1.1)
    assert found["flagged_s"] == pytest.approx(4.0, abs=0.11)
    assert found["wrongly"] == 0.0
    assert found["max"] == pytest.approx(11.0)


def test_a_liar_that_is_not_flagged_a_good_clock_that_is_and_good_clocks_that_suffer() -> None:
    assert lied(liar=track(5000.0))["flagged_s"] == np.inf
    assert lied(b=changed(track(), 20, 20.2, status="faulty"))["wrongly"] == 1.0
    assert lied(b=track(30.0), c=track(30.0))["clean_ratio"] == pytest.approx(3.0)
    accused = RunTracks({"b": changed(track(), 3, 4, status="faulty"), "liar": track()})
    rows = {"b": track(), "liar": changed(track(), 4, 101, status="faulty")}
    run_tracks = RunTracks(rows, troubled=frozenset({"liar"}), clean=accused)
    assert metrics.falsetickers(15.0)(run_tracks)["wrongly"] == 1.0  # of the clean run


def step(mine: Track, other: float = 10.0) -> dict[str, float]:
    clean = RunTracks({"b": track(10.0), "s": track(10.0)})
    return metrics.clock_step(30.0)(RunTracks({"b": track(other), "s": mine}, troubled=frozenset({"s"}), clean=clean))


def test_a_step_seen_in_the_status_and_over() -> None:
    wrong = changed(track(), 30, 34.05, error=250e3, bound=40.0)
    published = changed(wrong, 31.0, 34.05, status="unsynced", bound=1e6)
    found = step(published)
    assert found["told_s"] == pytest.approx(1.0, abs=0.11)
    assert found["inside_s"] == pytest.approx(4.0, abs=0.11)
    assert found["others_ratio"] == pytest.approx(1.0)
    assert step(wrong)["told_s"] == np.inf
    assert step(changed(track(), 30, 101, error=250e3))["inside_s"] == np.inf
    assert step(published, other=30.0)["others_ratio"] == pytest.approx(3.0)


def test_a_bound_of_an_hour_is_not_being_back() -> None:
    hidden = changed(track(), 30, 101, bound=3.6e12, status="holdover")
    assert step(hidden)["inside_s"] == np.inf


def test_a_slewed_clock() -> None:
    clean = RunTracks({"b": track(10.0), "s": track(10.0)})
    mine = changed(track(), 30, 52.05, error=900.0, bound=2000.0)
    found = metrics.clock_slew(30.0, 49.0)(RunTracks({"b": track(), "s": mine}, troubled=frozenset({"s"}), clean=clean))
    assert found["inside_s"] == pytest.approx(3.0, abs=0.11)
    assert found["p99_slewing"] == pytest.approx(900.0)
    assert found["covered"] == 1.0


def test_islands() -> None:
    clean = RunTracks({"b": track(10.0), "s": track(10.0)})
    mine = changed(track(), 25, 47.05, error=900.0, bound=2000.0)
    found = metrics.partition(25.0, 45.0)(
        RunTracks({"b": track(20.0), "s": mine}, troubled=frozenset({"s"}), clean=clean)
    )
    assert found["inside_s"] == pytest.approx(2.0, abs=0.11)
    assert (found["away_p99"], found["p99_later"]) == (pytest.approx(900.0), pytest.approx(20.0))
    assert found["others_ratio"] == pytest.approx(2.0)
    gone = RunTracks({"b": track(), "s": Track._make(c[:200] for c in track())}, troubled=frozenset({"s"}), clean=clean)
    assert metrics.partition(25.0, 45.0)(gone)["inside_s"] == np.inf


def good(case: Case) -> RunTracks:
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
    clean = RunTracks({n: track(0.5, 1.5) for n in names}) if case.clean is not None else None
    return RunTracks(rows, rows, shown if case.delays else None, troubled, clean)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_can_be_passed_and_failed(case: Case) -> None:
    found = case.metric(good(case))
    assert {"rms", "p99", "max", "covered"} <= found.keys()
    card = summary(case, [found])
    assert set(card["met"]) == set(case.limits) and case.limits
    assert all(card["met"].values()), (case.name, card)
    run_tracks = good(case)
    bad = {n: changed(track(1e7, 1.0, age_ms=400.0), 0, 101, status="synced") for n in run_tracks.causal}
    if "wrongly" in case.limits:
        bad["b"] = changed(bad["b"], 0, 101, status="faulty")
    wrong = (
        None
        if run_tracks.delays is None
        else run_tracks.delays._replace(published=np.full(run_tracks.delays.at_s.size, 35e3))
    )
    failed = summary(case, [case.metric(RunTracks(bad, bad, wrong, run_tracks.troubled, run_tracks.clean))])["met"]
    # a bound is narrow and rows come in time however wrong they are, and an even error is steady
    still = {"bound_per_rms", "gap_ms", "steady_ratio"}
    assert not any(met for limit, met in failed.items() if limit not in still), failed


def test_median_and_worst_over_seeds_and_coverage_of_all_rows() -> None:
    case = BY_NAME["pair-B-64"]
    seeds = [
        {**case.metric(good(case)), "rms": rms, "covered": share} for rms, share in ((1, 1.0), (2, 1.0), (30, 0.99))
    ]
    card = summary(case, seeds)
    assert (card["median"]["rms"], card["worst"]["rms"]) == (2.0, 30.0)
    assert card["met"]["rms"] and not card["met_worst"]["rms"]
    assert card["worst"]["covered"] == 0.99
    assert card["covered"] == pytest.approx(0.99667, abs=1e-5)
    assert not card["met"]["least_covered"], "the median seed is covered, all seeds together are not"
    assert spread([{"rms": 1.0}, {"rms": np.inf}])["worst"]["rms"] == np.inf
