"""A lossy link of a fabric that sprays packets: no path tells which uplink of its leaf it is; its leaf is named.

Nor which spine one is that loses: all of them are its suspects. Of what is dead traces tell which one it is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import sdfstream.twin
from sdfstream.score.detect.run import run
from sdfstream.settings import Settings
from tests.trials.spray import play

SCENARIOS = Path(sdfstream.twin.__file__).parent / "scenarios"


@pytest.mark.parametrize("seed", [911, 912])
def test_one_uplink_of_sixteen_that_loses_little_is_laid_to_its_leaf_within_ten_seconds(seed: int) -> None:
    found = play(seed, spines=16, share=0.015, seconds=11.0, at_s=20.0)
    assert found.as_leaf_s is not None
    assert found.as_leaf_s <= 10.0
    assert not found.others


def test_a_dead_link_of_a_fabric_that_sprays_is_laid_to_its_leaf_within_a_second_and_named_later() -> None:
    """All paths of the leaf lose alike from the first moment on: waiting tells nothing more, until traces do."""
    made = run(SCENARIOS / "link-spray.yaml", 222, Settings())
    (fault,) = made.faults
    assert fault.delay_s is not None
    assert fault.delay_s <= 1.0
    assert fault.exact
    assert fault.findings == 2
    assert made.false_alarms == []


def test_a_dead_spine_is_laid_to_the_spines_together_within_a_second_then_named_and_to_no_leaf_or_link() -> None:
    made = run(SCENARIOS / "spine-down-spray.yaml", 231, Settings())
    (fault,) = made.faults
    assert fault.delay_s is not None
    assert fault.delay_s <= 1.0
    assert fault.cause
    assert fault.exact
    assert fault.findings == 2
    assert made.false_alarms == []
