"""A lossy link of a fabric that sprays packets: no path tells which uplink of its leaf it is; its leaf is named."""

from __future__ import annotations

import pytest

from tests.trials.spray import play


@pytest.mark.parametrize("seed", [911, 912])
def test_one_uplink_of_sixteen_that_loses_little_is_laid_to_its_leaf_within_ten_seconds(seed: int) -> None:
    found = play(seed, spines=16, share=0.015, seconds=11.0, at_s=20.0)
    assert found.as_leaf_s is not None
    assert found.as_leaf_s <= 10.0
    assert not found.others
