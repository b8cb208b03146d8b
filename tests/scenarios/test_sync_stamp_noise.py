"""Stamps that are off by ±10 ns, on paths where a fifth of the packets meets no queue (score card: `jitter-10`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from sdfstream.records.message import Message
from sdfstream.records.topics import CLOCK
from sdfstream.records.units import TICK_NS
from sdfstream.score.clock.sim import drive
from sdfstream.score.clock.tracks import figures, tracks
from sdfstream.score.clock.worlds import jittery
from sdfstream.sync import SyncStage

NOISY = jittery("L40", 64, 10.0)
Said = list[dict[str, Any]]


def clocks(outputs: Iterable[Any]) -> Said:
    return [row for output in outputs if output.topic == CLOCK.name for row in output.body.to_pylist()]


def stepped(messages: list[Message], restored_at: int = -1) -> tuple[Said, SyncStage]:
    """What sync says of one message at a time; after so many ticks another stage takes up its state."""
    stage, said, tick = SyncStage(), [], messages[0].bus_at_ns // TICK_NS * TICK_NS
    for message in messages:
        while tick <= message.bus_at_ns:
            said += clocks(stage.step([], tick))
            tick += TICK_NS
            restored_at -= 1
            if restored_at == 0:
                state, stage = stage.snapshot(), SyncStage()
                stage.restore(state)
        said += clocks(stage.step([message], message.bus_at_ns))
    return said, stage


def test_noise_is_learned_and_averaged_over() -> None:
    """With 3 ns for everybody's noise: 7.9 ns in the mean of these two, 98.3 % covered."""
    found = []
    for seed in (2, 3):
        world = NOISY(seed)
        found.append(figures(tracks(world, drive(SyncStage(), world.messages(50.0))), 30.0))
    print(f"stamps ±10 ns, seeds 2, 3: {found}")
    assert np.mean([f["rms"] for f in found]) <= 6.0
    assert np.mean([f["covered"] for f in found]) >= 0.999


def test_what_is_learned_does_not_depend_on_the_cut_and_outlives_a_restart() -> None:
    messages = NOISY(4).messages(28.0)
    whole = clocks(output for _, output in drive(SyncStage(), messages))
    one_by_one, stage = stepped(messages)
    sessions = stage._hosts._roster.sessions
    assert sessions["at_floor"].all() and sessions["stamp_noise_log"].min() > 0.5, "there is something to lose"
    assert one_by_one == whole[: len(one_by_one)]
    restored, again = stepped(messages, restored_at=230)
    assert restored == one_by_one
    assert again.snapshot() == stage.snapshot()
