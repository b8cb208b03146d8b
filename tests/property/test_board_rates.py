"""Sums per second against the plain way of keeping them, however the rows are cut into messages."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.board.job_facts import STRETCH_S
from sdfstream.board.jobs import throughput
from sdfstream.board.rates import SUMS, RowIndex, SecondRing, Series
from sdfstream.records.units import NS_PER_S

ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 9)), max_size=60)


@given(ROWS, st.integers(1, 60))
@settings(deadline=None)
def test_a_ring_holds_the_sums_of_its_newest_seconds(rows: list[tuple[int, int, int]], cut: int) -> None:
    ring = SecondRing(8)
    current: dict[tuple[int, int], float] = {}
    late = 0
    newest: dict[tuple[int, int], int] = {}
    for start in range(0, len(rows), cut):
        part = rows[start : start + cut]
        values = np.zeros((len(part), len(SUMS)))
        values[:, 0] = [value for _, _, value in part]
        late += ring.add(
            np.array([r for r, _, _ in part], np.int64), np.array([s for _, s, _ in part], np.int64), values
        )
        for row, second, _ in part:  # within one call the newest second of a slot wins, whatever the order
            newest[row, second % 8] = max(newest.get((row, second % 8), -1), second)
        for row, second, value in part:
            if newest[row, second % 8] == second:
                current[row, second] = current.get((row, second), 0.0) + value
        current = {(r, s): v for (r, s), v in current.items() if newest[r, s % 8] == s}
    for row in range(3):
        expected = {s: v for (r, s), v in current.items() if r == row}
        top = max(expected, default=0)
        series = ring.series(row)
        assert dict(zip(series.seconds.tolist(), series.column("bytes").tolist(), strict=True)) == {
            s: v for s, v in sorted(expected.items()) if s > top - 8
        }
    assert late <= len(rows)


@given(st.dictionaries(st.integers(0, 200), st.integers(0, 1000), max_size=80), st.none() | st.integers(0, 200))
def test_throughput_is_the_newest_stretch_against_the_median_of_those_before(
    sums: dict[int, int], trouble_s: int | None
) -> None:
    seconds = sorted(sums)
    values = np.zeros((len(seconds), len(SUMS)))
    values[:, 0] = [sums[s] for s in seconds]
    series = Series(np.array(seconds, np.int64), values)
    found = throughput(series, None if trouble_s is None else trouble_s * NS_PER_S, 7)
    assert found.age_ns == 7
    if not seconds:
        assert (found.now_bps, found.before_bps, found.before_n) == (None, None, 0)
        return
    end = seconds[-1]
    now = [sums[s] for s in seconds if end - STRETCH_S <= s < end]
    assert found.now_bps == (8 * sum(now) / STRETCH_S if now else None)
    edge = min(end - STRETCH_S, end if trouble_s is None else trouble_s)
    stretches: defaultdict[int, list[int]] = defaultdict(list)
    for s in seconds:
        if s < edge and edge - s <= 300:
            stretches[(edge - 1 - s) // STRETCH_S].append(sums[s])
    whole = [8 * sum(v) / STRETCH_S for i, v in stretches.items() if edge - (i + 1) * STRETCH_S >= seconds[0]]
    assert found.before_n == len(whole)
    assert found.before_bps == (float(np.median(whole)) if whole else None)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3)), max_size=60))
def test_places_are_never_more_than_allowed_and_nobody_loses_one_he_uses(uses: list[tuple[str, int]]) -> None:
    index, at_ns = RowIndex(3), 0
    for name, pause in uses:
        at_ns += pause * 400 * NS_PER_S
        before = dict(index.seen_at_ns)
        row, fresh = index.of(name, at_ns)
        assert len(index.row) <= 3
        assert len(set(index.row.values())) == len(index.row)
        if row < 0:
            assert len(before) == 3
            assert min(before.values()) > at_ns - 900 * NS_PER_S
        else:
            assert fresh == (name not in before)
