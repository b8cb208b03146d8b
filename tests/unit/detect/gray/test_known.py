"""What is known of losses: the newest probes are left out until their time-out has passed; bursts count little."""

import numpy as np
import pytest

from sdfstream.detect.gray.known import Course, KnownLosses, Look, LossCounts, onset, scattered
from sdfstream.detect.runs import BINS, LossRuns
from sdfstream.detect.sessions import Sessions
from sdfstream.numeric.binomial import log_tail_bound

MS, S = 1_000_000, 1_000_000_000
T0 = 1_800_000_000 * S


def course(events: list[int], probes: int = 100, width_ns: int = 200 * MS) -> Course:
    return Course(np.array(events), np.full(len(events), probes), 0, width_ns)


def test_a_loss_counts_for_the_time_of_its_sending_and_answers_wait_until_losses_of_their_time_are_known() -> None:
    sessions = Sessions(10)
    slot = sessions.of_names([("a/0", "b/0", "udp", 50000, 0)], T0)
    runs = LossRuns(sessions)
    runs.ensure()
    probes = 100  # one in 100 ms; every tenth is lost, and its row comes after the time-out of 500 ms
    rows = [(T0 + i * 100 * MS + (i % 10 == 5) * 500 * MS, i, i % 10 != 5) for i in range(probes)]
    for at_ns, seq, ok in sorted(rows):
        if at_ns > T0 + probes * 100 * MS:
            continue
        age = np.array([0 if ok else 500 * MS])
        runs.take_rows(slot, np.array([seq]), np.array([ok]), np.array([at_ns]), age)
    known = KnownLosses(runs, np.array([100 * MS]), np.zeros(1, bool))
    counts = known.of(Look(0, 20))
    assert counts.events[0] / counts.probes[0] == pytest.approx(0.1, abs=0.03)
    events, end = known.over(slot, 0).events, known.over(slot, 0)
    assert events[-10:].sum() == 2  # of the newest two seconds that are known: the newest bins are not empty
    assert end.start_ns(end.events.size) <= T0 + probes * 100 * MS - 500 * MS


@pytest.mark.parametrize("burst_bins", [1, 2, 3])
def test_a_short_outage_counts_little_and_scattered_loss_in_full(burst_bins: int) -> None:
    outage = [0] * 20 + [12] * burst_bins + [0] * 9
    assert scattered(course(outage)) <= 2 * burst_bins
    assert scattered(course([0] * 20 + [4, 6, 5, 3, 4, 6, 5, 4, 3, 5, 6, 4])) == 55


def test_faint_loss_counts_from_its_first_bin_on_however_empty_the_window_was_before() -> None:
    faint = [0] * 20 + [1, 2, 0, 3, 1, 2, 1, 2, 1, 1, 2, 2]
    assert scattered(course(faint, width_ns=2 * S)) == 18


def test_an_onset_goes_by_shares_not_by_counts() -> None:
    """Probing began with the window half over: nothing changed then."""
    began = Course(np.array([0] * 8 + [1] * 8), np.array([0] * 8 + [100] * 8), 0, S)
    assert onset(began) == 8
    changed = Course(np.array([0] * 4 + [1] * 6 + [9] * 6), np.full(16, 100), 0, S)
    assert onset(changed) == 10
    assert onset(Course(np.array([], np.int64), np.array([], np.int64), 0, S)) == 0


def test_a_faint_loss_is_not_taken_to_have_begun_with_its_last_two_events() -> None:
    """Chance makes one moment or another the likeliest; what came before would not be told."""
    events = np.array([0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 0, 1, 0, 1, 1, 1])
    assert onset(Course(events, np.full(16, 100), 0, S)) <= 3


def test_a_look_reaches_back_over_what_is_not_known_yet_and_never_beyond_the_ring() -> None:
    sessions = Sessions(10)
    slot = sessions.of_names([("a/0", "b/0", "udp", 50000, 0)], T0)
    runs = LossRuns(sessions)
    runs.ensure()
    runs.take_rows(slot, np.array([1]), np.array([True]), np.array([T0]), np.array([0]))
    known = KnownLosses(runs, np.array([100 * MS]), np.zeros(1, bool))
    assert known.bins(Look(0, 8)) == 8 + 5 and known.bins(Look(0, BINS)) == BINS and known.bins(Look(1, BINS)) == BINS
    assert known.of(Look(0, 8)).probes.tolist() == [0]  # one answer: what was lost at its time is not known yet


def test_of_an_agent_that_reports_nothing_probes_before_its_last_report_are_not_known_yet_either() -> None:
    sessions = Sessions(10)
    slot = sessions.of_names([("a/0", "b/0", "udp", 50000, 0)], T0)
    runs = LossRuns(sessions)
    runs.ensure()
    for i in range(40):  # answers of four seconds, then nothing for 0.8 s
        runs.take_rows(slot, np.array([i]), np.array([True]), np.array([T0 + i * 100 * MS]), np.zeros(1, np.int64))
    for window in runs.windows:
        window.advance(T0 + 4 * S + 800 * MS)
    interval, nobody = np.array([100 * MS]), np.zeros(1, bool)
    heard = KnownLosses(runs, interval, nobody).of(Look(0, 32)).probes[0]
    unheard = KnownLosses(runs, interval, nobody, np.array([800 * MS])).of(Look(0, 32)).probes[0]
    assert heard - unheard == 6


def test_what_is_known_in_part_counts_in_neither_losses_nor_answers_where_it_is_asked_for() -> None:
    """The newest bins hold few of their losses, so that answers without them, and losses without answers, mislead."""
    sessions = Sessions(10)
    slot = sessions.of_names([("a/0", "b/0", "udp", 50000, 0)], T0)
    runs = LossRuns(sessions)
    runs.ensure()
    rows = [(T0 + i * 20 * MS + (i % 4 == 1) * 100 * MS, i, i % 4 != 1) for i in range(150)]
    for at_ns, seq, ok in sorted(row for row in rows if row[0] <= T0 + 3 * S):
        runs.take_rows(slot, np.array([seq]), np.array([ok]), np.array([at_ns]), np.array([0 if ok else 100 * MS]))
    known = KnownLosses(runs, np.array([20 * MS]), np.zeros(1, bool))
    closed, newest = known.closed(6), known.newest(0, 6)
    assert closed.events[0] / closed.probes[0] == pytest.approx(0.25, abs=0.03)
    assert newest.events[0] / newest.probes[0] > 0.33
    assert known.closed(1).probes[0] == known.newest(0, 1).probes[0], "nothing else is known"
    assert T0 <= known.began_ns(slot, 20) < T0 + 400 * MS


def test_what_sessions_lose_by_chance_goes_by_what_else_costs_each() -> None:
    counts = LossCounts(np.array([3, 3, 0, 0]), np.array([1000, 10, 500, 0]))
    others = np.array([1e-3, 0.2, 1e-3, 0.5])
    assert counts.by_chance(np.array([2, 3]), others) == 0.0 == counts.by_chance(np.array([], np.int64), others)
    alone = counts.by_chance(np.array([0]), others)
    assert alone == pytest.approx(float(log_tail_bound(3, 1000, 1e-3)))
    assert counts.by_chance(np.array([1]), others) > alone, "of ten with a fifth lost three are nothing"
    assert counts.by_chance(np.array([0, 2]), others) > alone, "others that lost none"
