"""The stages as a target: hostile traffic through all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.fuzz.chain import MAKERS, Chain
from tests.fuzz.finds import Finds
from tests.fuzz.traffic import Traffic
from tests.fuzz.values import EVERYBODY, Draw

GAPS_NS: Final = (0, 10**5, 10**6, 10**6, 5 * 10**6, 2 * 10**7)
"""Of bus time between messages."""


@dataclass(slots=True)
class StagesRun:
    """One run."""

    chain: Chain

    def lines(self) -> Iterator[str]:
        """What a person reads."""
        for name, times in self.chain.times.items():
            mean_us = times.total_s / max(times.steps, 1) * 1e6
            yield (
                f"  {name:10} {times.steps:8} steps, {mean_us:7.0f} us each, longest {times.message_s * 1e3:6.1f} ms "
                f"({times.of})"
            )
        yield f"  refused by the codec: {self.chain.refused.total('refused')}"


def run(seed: int, count: int, finds: Finds | None = None, names: tuple[str, ...] = tuple(MAKERS)) -> StagesRun:
    """`count` messages of any content through the stages `names`."""
    rng = random.Random(seed)
    traffic = Traffic(Draw(rng, EVERYBODY))
    chain = Chain(names, Finds() if finds is None else finds)
    for _ in range(count):
        chain.wire(traffic.one(), chain.now_ns + rng.choice(GAPS_NS))
    chain.finish()
    return StagesRun(chain)
