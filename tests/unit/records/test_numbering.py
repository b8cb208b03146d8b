"""One number that is far off mutes nobody; a run that truly jumped is followed."""

from __future__ import annotations

import pytest

from sdfstream.bus.sequences import SequenceWatch
from sdfstream.records.message import Event, Message
from sdfstream.records.numbering import MOST_JUMP
from sdfstream.stats import Counters
from sdfstream.workload.repeats import Repeats

FAR = 2**63 - 1


def seen(numbers: list[int]) -> tuple[list[bool], dict[str, int]]:
    """Whether each is fresh, for a bus's reader; and its counters."""
    counters = Counters("bus")
    watch = SequenceWatch(counters, "g")
    return [watch.see("t", "h", "b", number) for number in numbers], counters.as_dict()


def fresh(numbers: list[int]) -> list[bool]:
    """The same for queue pairs' rows, which look a second time; snapshot and restore in between."""
    repeats, told = Repeats(), []
    for seq, number in enumerate(numbers):
        told.append(not repeats.is_repeat(Message("t", "h", Event("e", "s", "i", 0, {}), 0, seq, "b", number)))
        state = repeats.snapshot()
        repeats = Repeats()
        repeats.restore(state)
        assert repeats.snapshot() == state
    return told


@pytest.mark.parametrize("far", [FAR, MOST_JUMP + 3])
def test_a_host_does_not_mute_itself_by_a_number_that_is_far_off(far: int) -> None:
    numbers = [1, 2, far, 3, 4, 4, 5]
    told, counters = seen(numbers)
    assert told == fresh(numbers) == [True, True, True, True, True, False, True]
    assert counters == {"bus.jump.g:t": 1, "bus.repeat.g:t": 1}, "no gap of nine million million million"


def test_nor_by_several_nor_by_the_first() -> None:
    for numbers in ([1, 2, FAR - 1, FAR, 3, 4, 5], [FAR, 3, 4, 5]):
        told, _ = seen(numbers)
        assert all(told) and all(fresh(numbers))


def test_a_run_that_jumped_is_followed_and_its_repeats_are_known() -> None:
    numbers = [1, 2, 2 * MOST_JUMP, 2 * MOST_JUMP + 1, 2 * MOST_JUMP + 1, 2 * MOST_JUMP + 4]
    told, counters = seen(numbers)
    assert told == fresh(numbers) == [True, True, True, True, False, True]
    assert counters == {"bus.jump.g:t": 1, "bus.repeat.g:t": 1, "bus.gap.g:t": 2}


def test_a_jump_that_is_sent_again_is_a_repeat() -> None:
    told, _ = seen([1, FAR, FAR, 2])
    assert told == fresh([1, FAR, FAR, 2]) == [True, True, False, True]


def test_a_state_of_before_is_taken_up() -> None:
    repeats = Repeats()
    repeats.restore([["h", "b", 7, 3]])
    assert repeats.is_repeat(Message("t", "h", Event("e", "s", "i", 0, {}), 0, 9, "b", 7))
