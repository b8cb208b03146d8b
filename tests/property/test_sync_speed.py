"""What was made fast says what the plain way says."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.numeric.group import group, ranked
from sdfstream.numeric.table import KeyIndex
from sdfstream.sync.blocks import blocks
from sdfstream.sync.delays import DelayWindows, WindowRows
from sdfstream.sync.intake import LATEST_NS, LONGEST_NS, _assess, _spotless
from sdfstream.sync.pairs import NamedEnds, PairKeys, SessionEnds

SEEDS = st.integers(0, 2**32 - 1)


def _draw(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


@settings(deadline=None)
@given(SEEDS, st.integers(1, 200), st.integers(1, 30), st.booleans())
def test_values_are_ranked_inside_each_group(seed: int, rows: int, groups: int, skewed: bool) -> None:
    g = _draw(seed)
    keys = g.integers(0, groups, rows)
    if skewed:
        keys[: rows // 2] = 0
    both = [np.where(g.uniform(size=rows) < 0.2, np.nan, g.standard_normal(rows)) for _ in range(2)]
    found = group(keys)
    ordered, start = ranked(found, both)
    for direction, values in zip(both, ordered, strict=True):
        for key, low, size in zip(found.key, start, found.size, strict=True):
            np.testing.assert_array_equal(values[low : low + size], np.sort(direction[keys == key]))


@settings(deadline=None)
@given(SEEDS, st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_slots_are_given_in_order_of_first_appearance(seed: int, cuts: list[int]) -> None:
    g, directory, known = _draw(seed), KeyIndex(), dict[int, int]()
    for size in cuts:
        keys = g.integers(0, 1 << 62, 25)[g.integers(0, 25, size)] if g.uniform() < 0.5 else g.integers(0, 60, size)
        slot, fresh = directory.add_new(keys)
        before = len(known)
        expected = [known.setdefault(k, len(known)) for k in keys.tolist()]
        assert slot.tolist() == expected
        assert [known[k] for k in keys[fresh].tolist()] == list(range(before, len(known)))


@settings(deadline=None)
@given(SEEDS, st.integers(1, 60), st.integers(1, 9), st.booleans(), st.booleans())
def test_pairs_are_numbered_in_order_of_first_appearance(
    seed: int, rows: int, names: int, own: bool, crowded: bool
) -> None:
    g = _draw(seed)
    codes: list[Any] = [g.integers(0, names, rows).astype(np.int32) for _ in range(5)]
    if own:  # every host has one clock
        codes[3], codes[4] = codes[0], codes[1]
    # a dictionary may hold a name twice
    dictionaries = tuple([f"n{i % 7}" for i in range(names)] for _ in range(5))
    keys, slot = PairKeys(), dict[SessionEnds, int]()
    if crowded:  # more names than one key has room for
        others = _one_row([f"other{i}" for i in range(5_000)])
        assert keys.of(others)[0].tolist() == [0]
        slot[others.row(0)] = 0
    for part in np.split(np.arange(rows), np.sort(g.integers(0, rows, 2))):
        ends = NamedEnds(tuple(c[part] for c in codes), dictionaries)
        number, fresh = keys.of(ends)
        before = len(slot)
        assert number.tolist() == [slot.setdefault(ends.row(row), len(slot)) for row in range(part.size)]
        assert [slot[ends.row(row)] for row in fresh.tolist()] == list(range(before, len(slot)))


def _one_row(names: list[str]) -> NamedEnds:
    return NamedEnds((np.zeros(1, np.int32),) * 5, (names,) * 5)


def test_pairs_are_told_anew_once_their_names_outgrow_one_key() -> None:
    keys, first, second = PairKeys(), _one_row(["a"]), _one_row(["b", *(f"other{i}" for i in range(5_000))])
    assert [x.tolist() for x in keys.of(first)] == [[0], [0]]
    assert [x.tolist() for x in keys.of(first)] == [[0], []]
    assert [x.tolist() for x in keys.of(second)] == [[0], [0]]
    assert [x.tolist() for x in keys.of(first)] == [[1], [0]]
    assert keys.number.size == 0  # the registry is asked for both again


def test_no_pair_passes_for_another_however_many_transports_a_message_names() -> None:
    transports = [f"t{i}" for i in range(2_048)]
    far = np.repeat(np.arange(8, dtype=np.int32), len(transports))
    transport, same = np.tile(np.arange(len(transports), dtype=np.int32), 8), np.zeros(far.size, np.int32)
    ends = NamedEnds(
        (same, far, transport, same, far),
        (["h0/r0"], [f"h{i}/r0" for i in range(8)], transports, ["h0"], [f"h{i}" for i in range(8)]),
    )
    number, fresh = PairKeys().of(ends)
    assert fresh.size == len(set(number.tolist())) == far.size


@settings(deadline=None)
@given(SEEDS, st.integers(1, 80), st.integers(1, 12))
def test_blocks_do_not_mind_whether_rows_came_sorted(seed: int, rows: int, sessions: int) -> None:
    g = _draw(seed)
    session = g.integers(0, sessions, rows)
    at, fwd, rev = g.uniform(0, 1e8, rows), g.exponential(1e3, rows), g.exponential(1e3, rows)
    centre_ns, third = g.uniform(0, 1e3, sessions), g.uniform(size=sessions) < 0.5
    order = np.argsort(session, kind="stable")
    plain = blocks(session, at, fwd, rev, centre_ns, third)
    ready = blocks(session[order], at[order], fwd[order], rev[order], centre_ns, third)
    for a, b in zip(plain, ready, strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 120), st.integers(1, 20), st.booleans())
def test_window_figures_are_the_plain_ones(seed: int, rows: int, paths: int, skewed: bool) -> None:
    g = _draw(seed)
    path = g.integers(0, paths, rows)
    if skewed:
        path[rows // 3 :] = 0
    lost = g.uniform(size=rows) < 0.2
    fwd, rev = (np.where(lost | (g.uniform(size=rows) < 0.2), np.nan, g.exponential(1e3, rows)) for _ in range(2))
    marks = [g.uniform(size=rows) < 0.2 for _ in range(2)]
    d = WindowRows(np.zeros(rows, np.int64), path, fwd, rev, g.uniform(1, 9, rows), lost, *marks)
    windows = DelayWindows()
    windows.put(d, np.zeros(rows, np.int64))
    closed = windows.close(0)[0]
    expected = {}
    for p in range(paths):
        for direction, delay in enumerate((fwd, rev)):
            mine, has = path == p, (path == p) & ~np.isnan(delay)
            counts = int(has.sum()), int((mine & lost).sum()) * (direction == 0), int((mine & marks[direction]).sum())
            values, none = delay[has], (np.nan,) * 5
            if any(counts):
                some = bool(values.size)
                figures = (*np.quantile(values, [0.0, 0.5, 0.99, 1.0]), d.err_ns[has].max()) if some else none
                expected[p, direction] = (*counts, *figures)
    assert list(zip(closed.path.tolist(), closed.dir.tolist(), strict=True)) == sorted(expected)
    columns = [
        closed.n,
        closed.lost,
        closed.ce,
        closed.min_ns,
        closed.p50_ns,
        closed.p99_ns,
        closed.max_ns,
        closed.err_ns,
    ]
    plain = np.array([expected[k] for k in sorted(expected)]).reshape(-1, 8)
    np.testing.assert_allclose(np.array(columns, dtype=np.float64).T, plain)


_EDGES = (-(1 << 63), -1, 0, 1, LATEST_NS - 1, LATEST_NS, LATEST_NS + 1, (1 << 63) - 1)


@settings(deadline=None, max_examples=300)
@given(SEEDS, st.integers(1, 12), st.integers(0, 2), st.sampled_from([0, 1, 2, 255]), st.booleans())
def test_what_looks_spotless_is_accepted_row_by_row(seed: int, rows: int, spoilt: int, kind: int, mixed: bool) -> None:
    g = _draw(seed)
    t1 = g.integers(1, LATEST_NS // 2, rows)
    t4 = t1 + g.integers(0, 3 * LONGEST_NS // 2 if mixed else 10**6, rows)
    t2 = t1 + g.integers(0, 10**9, rows)
    t3 = t2 + g.integers(-10 if mixed else 0, 10**6 + 2000, rows)
    stamps = [t1, t2, t3, t4]
    for _ in range(spoilt):
        stamps[g.integers(4)][g.integers(rows)] = _EDGES[g.integers(len(_EDGES))]
    kinds = [np.full(rows, kind, np.uint8) for _ in range(4)]
    if mixed and g.uniform() < 0.5:
        kinds[g.integers(4)][g.integers(rows)] = 1
    with np.errstate(over="ignore"):
        refused, lost, forward, reverse = _assess(np.zeros(rows, np.bool_), tuple(stamps), kinds)
        if _spotless(tuple(stamps), kinds):
            assert not refused.any() and not lost.any() and forward.all() and reverse.all()
        elif kind in (1, 2) and not spoilt and not mixed and (t4 - t1 >= t3 - t2).all():
            raise AssertionError("the usual batch goes the long way")
