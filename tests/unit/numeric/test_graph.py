"""Components of a graph, and conjugate gradients against the dense solution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.numeric.graph import WeightedEdges, components, conjugate_gradient


@given(st.integers(1, 30), st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=60))
def test_a_label_is_the_smallest_node_that_can_be_reached(nodes: int, pairs: list[tuple[int, int]]) -> None:
    pairs = [(a % nodes, b % nodes) for a, b in pairs]
    a, b = (np.array([p[k] for p in pairs], dtype=np.int64) for k in (0, 1))
    wanted = list(range(nodes))
    for _ in range(nodes):
        for x, y in pairs:
            wanted[x] = wanted[y] = min(wanted[x], wanted[y])
    assert components(nodes, a, b).tolist() == wanted


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_conjugate_gradients_find_the_dense_solution(seed: int) -> None:
    g = np.random.default_rng(seed)
    nodes, edges = 50, 200
    a, b = g.integers(0, nodes, (2, edges))
    a, b = a[a != b], b[a != b]
    weight, loose = 1.0 / g.uniform(1.0, 900.0, a.size), 1e-4 * np.ones(nodes)
    matrix = np.diag(loose)
    for i, j, w in zip(a, b, weight, strict=True):
        matrix[[i, j], [i, j]] += w
        matrix[[i, j], [j, i]] -= w
    right = g.standard_normal(nodes)
    wanted = np.linalg.solve(matrix, right)
    e = WeightedEdges(a, b, weight, np.zeros(a.size))
    got = conjugate_gradient(e, loose, right, tolerance=1e-9, steps=500)
    np.testing.assert_allclose(got, wanted, atol=1e-5 * np.abs(wanted).max())
    # warm-started at the solution there is nothing left to do
    warm = conjugate_gradient(e, loose, right, start=wanted, steps=1)
    np.testing.assert_allclose(warm, wanted, atol=1e-6 * np.abs(wanted).max())


def test_nothing_asked_gives_nothing() -> None:
    nothing = np.empty(0, dtype=np.int64)
    got = conjugate_gradient(WeightedEdges(nothing, nothing, np.empty(0), np.empty(0)), np.ones(3), np.zeros(3))
    assert got.tolist() == [0.0, 0.0, 0.0]


def test_a_part_whose_numbers_are_wild_leaves_the_others_alone() -> None:
    a, b = np.array([0, 1, 0, 3, 4]), np.array([1, 2, 2, 4, 5])
    weight = np.array([1.0, 2.0, 0.5, 1e-18, 1e3])
    right = np.array([1.0, -3.0, 2.0, 1e18, -2e18, 1e18])
    label, loose = np.array([0, 0, 0, 3, 3, 3]), np.zeros(6)
    both = conjugate_gradient(WeightedEdges(a, b, weight, np.zeros(5)), loose, right, tolerance=1e-9, label=label)
    tame = WeightedEdges(a[:3], b[:3], weight[:3], np.zeros(3))
    alone = conjugate_gradient(tame, loose[:3], right[:3], tolerance=1e-9)
    np.testing.assert_allclose(np.diff(both[:3]), np.diff(alone), rtol=1e-6)
    right[3:] = np.nan
    both = conjugate_gradient(WeightedEdges(a, b, weight, np.zeros(5)), loose, right, tolerance=1e-9, label=label)
    np.testing.assert_allclose(np.diff(both[:3]), np.diff(alone), rtol=1e-6)
