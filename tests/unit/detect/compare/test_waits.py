"""Waits of marked probes: what they are compared with, and what is not known of them."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.compare.waits import MarkedWaits, Waits
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.marks import MarkDetector
from sdfstream.detect.sessions import Sessions
from sdfstream.detect.stage import DetectStage
from sdfstream.records import columns
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters
from sdfstream.twin.rows import probe_batch

NORMAL_NS = 30_000


def fresh(ports: int = 3) -> MarkedWaits:
    """Sessions of one pair of NICs, all well known, none marked."""
    sessions = Sessions(100)
    sessions.of_names([("a/r0", "b/r0", "udp", 50_000 + i, 0) for i in range(ports)], 1)
    delays = DelayBaselines(DetectConfig(), sessions, Counters("detect"))
    waits = MarkedWaits(sessions, delays)
    delays.ensure()
    waits.ensure()
    delays.round_trip.table["n"][:ports] = 200
    delays.round_trip.table["mean"][:ports] = NORMAL_NS
    return waits


def take(
    waits: MarkedWaits, at_s: float, session: int, wait_us: float, probes: int = 30, answered: bool = True
) -> None:
    """Probes marked on the way there."""
    n, zeros = probes, np.zeros(probes, np.int64)
    sent = np.arange(n) * 1_000_000
    rows = {
        "path": zeros + 50_000 + session,
        "seq": np.arange(n),
        "t1_ns": sent,
        "t2_ns": sent + 7 * NS_PER_S,
        "t3_ns": sent + 7 * NS_PER_S + 20_000,
        "t4_ns": sent + 20_000 + NORMAL_NS + round(wait_us * 1e3),
        **dict.fromkeys(("dscp_sent", "dscp_fwd", "dscp_rev", "ce_rev"), zeros),
        "ce_fwd": zeros + 1,
    }
    names = {c: columns.name_column(zeros.astype(np.int32), [c]) for c in ("src", "dst", "clock_src", "clock_dst")}
    names["transport"] = columns.name_column(zeros.astype(np.int32), ["udp"])
    batch = probe_batch(names, rows, np.full(n, answered))
    waits.take(batch, zeros + session, (np.ones(n, bool), np.zeros(n, bool)), round(at_s * 1e9))


@pytest.mark.parametrize("wait_us", [0.0, 40.0, -5.0])
def test_a_wait_is_the_round_trip_less_the_one_before_the_marks(wait_us: float) -> None:
    waits = fresh()
    take(waits, 1.0, 0, wait_us)
    found = waits.of(np.array([0]), NS_PER_S)
    assert found == Waits(30, pytest.approx(wait_us), pytest.approx(0.0, abs=0.5), NORMAL_NS / 1e3)
    assert found.hardly == (abs(wait_us) < 10) and found.surely == (wait_us > 10)
    assert waits.of(np.array([1]), NS_PER_S) is None, "the way back was not marked"
    assert waits.of(np.array([0]), 4 * NS_PER_S) is None, "long ago"


def test_a_queue_does_not_become_normal_while_it_is_marked() -> None:
    waits = fresh()
    take(waits, 1.0, 0, 40.0)
    waits.delays.round_trip.table["mean"][0] += 40_000
    take(waits, 50.0, 0, 40.0)
    assert waits.of(np.array([0]), 50 * NS_PER_S).surely
    take(waits, 200.0, 0, 0.0)
    assert waits.of(np.array([0]), 200 * NS_PER_S).mean_us == pytest.approx(-40), "a new occasion"


def test_one_stamp_that_came_late_does_not_decide() -> None:
    waits = fresh()
    take(waits, 1.0, 0, 0.0, probes=100)
    take(waits, 1.0, 0, 1e5, probes=1)
    assert not waits.of(np.array([0]), NS_PER_S).surely
    assert waits.of(np.array([0]), NS_PER_S).mean_us < 3


def test_probes_without_an_answer_have_no_wait() -> None:
    waits = fresh()
    take(waits, 1.0, 0, 0.0, answered=False)
    assert waits.of(np.array([0]), NS_PER_S) is None


@pytest.mark.parametrize(("beside", "known"), [("unmarked", True), ("marked", False), ("young", False)])
def test_paths_marked_from_the_beginning_are_compared_with_unmarked_ones_of_their_nics(
    beside: str, known: bool
) -> None:
    waits = fresh(2)
    waits.delays.round_trip.table["n"][0] = 10
    if beside == "young":
        waits.delays.round_trip.table["n"][1] = 100
    if beside == "marked":
        take(waits, 1.0, 1, 40.0)
    take(waits, 1.0, 0, 40.0)
    assert waits.of(np.array([0]), NS_PER_S) is None
    waits.ask_neighbours(np.array([0]))
    take(waits, 1.5, 0, 40.0)
    found = waits.of(np.array([0]), round(1.5 * NS_PER_S))
    assert (found is not None and found.surely) == known
    assert known or found is None


def test_no_neighbours_are_asked_for_where_there_are_none() -> None:
    waits = fresh(1)
    waits.delays.round_trip.table["n"][0] = 10
    take(waits, 1.0, 0, 0.0)
    waits.ask_neighbours(np.array([0, 1]))
    assert np.isnan(waits.table["normal_ns"][0])


def test_a_mistuned_port_stays_one_until_its_marked_probes_surely_wait() -> None:
    marks: MarkDetector = DetectStage()._engines.marks
    doubtful, early, queue = (Waits(30, mean, 2.0, 30.0) for mean in (8.0, 0.0, 40.0))
    assert not marks._is_mistuned("l0--s0", doubtful, 30)
    assert marks._is_mistuned("l0--s0", early, 30)
    assert not marks._is_mistuned("l0--s0", early, 100), "of most marked probes the wait is not known"
    marks._mistuned = frozenset({"l0--s0"})
    assert marks._is_mistuned("l0--s0", doubtful, 30) and marks._is_mistuned("l0--s0", None, 30)
    assert not marks._is_mistuned("l0--s0", queue, 30)


def test_a_snapshot_of_a_version_that_timed_no_marks_is_taken_up() -> None:
    stage = DetectStage()
    state = stage._engines.marks.snapshot()
    for name in ("waits", "mistuned"):
        del state[name]
    marks: MarkDetector = DetectStage()._engines.marks
    marks.restore(state)
    assert marks._mistuned == frozenset()


def test_a_snapshot_holds_what_is_known_of_waits() -> None:
    waits, again = fresh(), fresh()
    take(waits, 1.0, 0, 40.0)
    again.restore(waits.snapshot())
    assert again.of(np.array([0]), NS_PER_S) == waits.of(np.array([0]), NS_PER_S)
    again.forget(np.array([0]))
    assert again.of(np.array([0]), NS_PER_S) is None
    assert again.table["marked_bin"][0] == -1
