"""Excess delays by span, and what of the normal delay is a queue that never left."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.queues.excess import WARM, AssessedWindows, ExcessSpans, PathExcess
from sdfstream.detect.queues.normals import PathFloors
from sdfstream.records.units import NS_PER_MS, NS_PER_S

S = NS_PER_S


def windows(start_ns: int, above_ns: list[float], learnt: int = 300) -> AssessedWindows:
    n = len(above_ns)
    return AssessedWindows(
        np.arange(n), np.full(n, start_ns), np.array(above_ns), np.full(n, 10e3), np.full(n, 1e6), np.full(n, learnt),
        np.full(n, 330.0),
    )  # fmt: skip


def test_a_span_is_closed_when_windows_come_that_are_well_past_it() -> None:
    spans = ExcessSpans(S)
    for tick in range(24):
        spans.take(windows(100 * S + tick * 100 * NS_PER_MS, [tick * 1e3, 0.0]))
    assert spans.due() is None
    for tick in range(24, 27):
        spans.take(windows(100 * S + tick * 100 * NS_PER_MS, [0.0, 0.0]))
    assert spans.due() == 100
    found = spans.close(100)
    assert found.excess_ns.tolist() == [4.5e3, 0.0]
    assert found.n.tolist() == [10, 10]
    assert spans.due() is None


def test_windows_of_new_paths_and_of_closed_spans_do_not_count() -> None:
    spans = ExcessSpans(S)
    spans.take(windows(100 * S, [5e3], learnt=WARM - 1))
    spans.take(windows(103 * S, [1e3]))
    assert spans.close(100).number.size == 0
    spans.take(windows(100 * S, [7e3]))
    assert spans.close(101).number.size == 0


def test_a_jump_of_reference_time_begins_afresh() -> None:
    spans = ExcessSpans(S)
    spans.take(windows(100 * S, [5e3]))
    spans.take(windows(5_000 * S, [5e3]))
    assert spans.due() is None
    assert spans.closed == 4_999


def test_goes_on_from_a_snapshot() -> None:
    spans, other = ExcessSpans(S), ExcessSpans(S)
    spans.take(windows(100 * S, [5e3, 1e3]))
    other.restore(spans.snapshot())
    for each in (spans, other):
        each.take(windows(103 * S, [0.0]))
    assert [a.tolist() for a in spans.close(100)] == [b.tolist() for b in other.close(100)]


def test_a_queue_that_never_left_shows_by_its_scatter() -> None:
    rng, n, floors = np.random.default_rng(3), 50, PathFloors()
    normal = np.full(n, 20e3)
    scatter = np.full(n, 2e3)
    normal[0], scatter[0] = 180e3, 60e3
    for tick in range(200):
        delay = np.maximum(normal + scatter * rng.standard_normal(n), normal - 2.5 * scatter)
        floors.take(np.arange(n), np.full(n, tick * 100 * NS_PER_MS), delay)
    excess = PathExcess(
        np.arange(n), np.zeros(n), np.full(n, 100.0), np.full(n, 10), np.zeros(n), normal, scatter, np.full(n, 200)
    )
    found = floors.without(excess)
    assert found.excess_ns[0] == pytest.approx(140e3, abs=10e3)
    assert (found.excess_ns[1:] == 0).all()
    assert found.err_ns[0] < 3e3
