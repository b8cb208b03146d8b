"""Stages killed before and after everything they do with the bus say what they say when nobody kills them."""

from __future__ import annotations

import pytest

from tests.crashes import Story, kill_stages, stories

STORIES = {story.name: story for story in stories()}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_killed_stages_lose_nothing_and_double_nothing(story: Story) -> None:
    tally = kill_stages(20261121, 12, [story])
    assert tally.placed >= 12
    assert not tally.failures, (tally.failures, tally.by_step)
    assert tally.lost == tally.doubled == 0
