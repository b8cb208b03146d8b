"""One acknowledgement for all frames of a moment."""

from __future__ import annotations

import asyncio

from sdfstream.bus.link.acknowledge_io import BULK_PAUSE_S, Acknowledgements


async def after(frames: list[bool]) -> tuple[list[int], float]:
    """What is acknowledged of these frames (whether each holds rows), and how long the first one takes."""
    answers: list[int] = []
    answered = asyncio.Event()

    async def answer(taken: int) -> None:
        answers.append(taken)
        answered.set()

    acknowledgements = Acknowledgements(answer)
    running = asyncio.create_task(acknowledgements.run())
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for bulk in frames:
        acknowledgements.take(bulk=bulk)
    assert acknowledgements.pending
    await answered.wait()
    waited_s = loop.time() - began_s
    assert not acknowledgements.pending
    acknowledgements.end()
    running.cancel()
    return answers, waited_s


async def test_frames_of_a_moment_are_acknowledged_together() -> None:
    answers, waited_s = await after([True, True, True])
    assert answers == [3]
    assert waited_s >= BULK_PAUSE_S * 0.9


async def test_an_event_behind_rows_does_not_wait_as_long_as_they_may() -> None:
    answers, waited_s = await after([True, False])
    assert answers == [2]
    assert waited_s < BULK_PAUSE_S


async def test_rows_behind_an_event_are_acknowledged_with_it() -> None:
    answers, _ = await after([False, True])
    assert answers == [2]


def test_a_timer_that_is_due_at_once_has_no_time_to_ask_for_in_uvloop() -> None:
    """A loop whose clock has run past the time asked for gives a handle without `when`: the link ended by it."""

    async def behind() -> int:
        answers: list[int] = []

        async def answer(taken: int) -> None:
            answers.append(taken)

        loop = asyncio.get_running_loop()
        acknowledgements = Acknowledgements(answer)
        acknowledgements._loop = type(
            "Starved", (), {"time": loop.time, "call_at": lambda _, at_s, f: loop.call_soon(f)}
        )()
        running = asyncio.create_task(acknowledgements.run())
        for bulk in (False, True, False):
            acknowledgements.take(bulk=bulk)
        await asyncio.sleep(0.01)
        running.cancel()
        return answers[-1]

    assert asyncio.run(behind()) == 3
