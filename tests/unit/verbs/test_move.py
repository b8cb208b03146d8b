"""A live move, step by step, against devices that refuse at every step."""

from __future__ import annotations

import errno

import pytest

from sdfstream.verbs.move import LiveMove, MoveStep


def run(move: LiveMove, answers: list[int]) -> list[MoveStep]:
    """The steps that were asked for, each answered by the next errno; 0 afterwards."""
    asked = []
    while not move.is_over:
        asked.append(move.step)
        move.did(answers[len(asked) - 1] if len(asked) <= len(answers) else 0)
    return asked


def test_an_idle_queue_pair() -> None:
    move = LiveMove(needs_prompt=True)
    assert run(move, []) == [MoveStep.HALT, MoveStep.ADDRESS, MoveStep.RESUME, MoveStep.PROMPT]
    assert (move.step, move.waited, move.error) == (MoveStep.DONE, 0, 0)


@pytest.mark.parametrize("needs_prompt", [False, True])
def test_a_queue_that_must_drain_first(needs_prompt: bool) -> None:
    move = LiveMove(needs_prompt)
    begun = [MoveStep.HALT, MoveStep.ADDRESS]
    if needs_prompt:
        asked = run(move, [0, 0, errno.EINVAL, errno.EINVAL, errno.EINVAL, errno.EINVAL, 0])
        again = [MoveStep.RESUME, MoveStep.REMIND]
        assert asked == [*begun, *again, *again, MoveStep.RESUME, MoveStep.PROMPT]
    else:
        asked = run(move, [0, 0, errno.EINVAL, errno.EINVAL, 0])
        assert asked == [*begun, *[MoveStep.RESUME] * 3]
    assert (move.step, move.waited) == (MoveStep.DONE, 2)


def test_a_prompt_is_refused_on_purpose() -> None:
    move = LiveMove(needs_prompt=True)
    run(move, [0, 0, errno.EINVAL, errno.EINVAL, 0, errno.EINVAL])
    assert move.step is MoveStep.DONE


def test_a_device_without_sqd_is_left_as_it_was() -> None:
    move = LiveMove(needs_prompt=False)
    assert run(move, [errno.EINVAL]) == [MoveStep.HALT]
    assert (move.step, move.error) == (MoveStep.FAILED, errno.EINVAL)


def test_a_refused_address_still_lets_the_queue_resume() -> None:
    move = LiveMove(needs_prompt=True)
    assert run(move, [0, errno.EOPNOTSUPP, errno.EINVAL, errno.EINVAL, 0]) == [
        MoveStep.HALT, MoveStep.ADDRESS, MoveStep.RESUME, MoveStep.REMIND, MoveStep.RESUME,
    ]  # fmt: skip
    assert (move.step, move.error) == (MoveStep.FAILED, errno.EOPNOTSUPP)


def test_a_device_that_is_gone() -> None:
    move = LiveMove(needs_prompt=True)
    run(move, [0, 0, errno.ENODEV])
    assert (move.step, move.error) == (MoveStep.FAILED, errno.ENODEV)
