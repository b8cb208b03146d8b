"""Three tiers, of which nothing is known: a lossy link is one finding, at its leaf or above all leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import sdfstream.twin
from sdfstream.score.detect.facts import RunFacts
from sdfstream.score.detect.run import run
from sdfstream.settings import Settings

SCENARIO: Final = Path(sdfstream.twin.__file__).parent / "scenarios" / "gray-3-three-tier-blind.yaml"


def scored(seed: int) -> RunFacts:
    made = run(SCENARIO, seed, Settings())
    assert made.false_alarms == [], made.faults
    return made


@pytest.mark.parametrize("seed", [191, 194, 195])
def test_a_lossy_link_of_a_leaf_is_placed_where_few_pairs_are_probed(seed: int) -> None:
    """Leaves fell apart, or pods were taken for leaves: both NICs of the leaf were told, and paths beside them."""
    (fact,) = scored(seed).faults
    assert (fact.exact, fact.inferred, fact.cause, fact.findings) == (True, True, True, 1), fact
    assert fact.delay_s is not None
    assert fact.delay_s < 4


def test_a_lossy_link_above_the_leaves_is_no_leafs() -> None:
    """Three leaves had a link told. With two pods all paths over either link of a core switch cross both."""
    (fact,) = scored(198).faults
    assert fact.target == "p1a1--c3"
    assert fact.reported == ("loss switch c3",), fact
    assert fact.cause


@pytest.mark.parametrize(("seed", "target"), [(218, "l2--p1a0"), (221, "l0--p0a0")])
def test_a_lossy_link_is_placed_where_of_two_leaves_no_two_nics_probe_each_other(seed: int, target: str) -> None:
    """Nobody knew who shares a leaf, or each pod was taken for one: both NICs of the leaf were told."""
    (fact,) = scored(seed).faults
    assert fact.target == target
    assert (fact.exact, fact.inferred, fact.cause, fact.findings) == (True, True, True, 1), fact
    assert fact.delay_s is not None
    assert fact.delay_s < 4
