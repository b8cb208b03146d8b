"""A decoder as a target: what goes in, what it may raise, and how a run of it is counted."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.errors import FormatError
from tests.fuzz import mutate
from tests.fuzz.finds import Finds
from tests.fuzz.values import Draw

SLOW_S: Final = 0.05
"""Processor time of one input, above which it is a find in a long run on a machine that has time for it."""

Inputs = Callable[[Draw], Iterator[Any]]
Feed = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Target:
    """One decoder."""

    name: str
    inputs: Inputs
    """Inputs without end."""
    make: Callable[[], Feed]
    """A fresh decoder; made anew after every `lasts` inputs, so that its tables stay small."""
    allowed: tuple[type[BaseException], ...] = (FormatError,)
    """What it may raise: what its caller handles."""
    each: int = 1
    """Inputs that one feed counts for (datagrams in a batch)."""
    lasts: int = 2_000


@dataclass(slots=True)
class Ran:
    """What became of a target's inputs."""

    name: str
    inputs: int = 0
    refused: int = 0
    took_s: float = 0.0
    longest_s: float = 0.0
    longest: Any = field(default=None, repr=False)

    def line(self) -> str:
        """For a person."""
        rate = self.inputs / max(self.took_s, 1e-9)
        return (
            f"  {self.name:24} {self.inputs:9} inputs, {self.refused:9} refused by exception, {rate:8.0f}/s, "
            f"longest {self.longest_s * 1e3:6.1f} ms"
        )


def run(target: Target, draw: Draw, count: int, finds: Finds, *, timed: bool = False) -> Ran:
    """`count` inputs; anything raised that is not allowed is a find, and with `timed` any input that takes long."""
    ran = Ran(target.name)
    feed: Feed | None = None
    inputs = target.inputs(draw)
    began_s = time.process_time()
    while ran.inputs < count:
        if feed is None or ran.inputs % (target.lasts * target.each) < target.each:
            feed = target.make()
        given = next(inputs)
        at_s = time.thread_time()
        try:
            feed(given)
        except target.allowed:
            ran.refused += target.each
        except Exception as error:
            finds.add(target.name, error, (), f"\ninput: {given!r:.3000}")
        took_s = time.thread_time() - at_s
        if took_s > ran.longest_s:
            ran.longest_s, ran.longest = took_s, given
            if timed and took_s > SLOW_S and _again_s(target, given) > SLOW_S:
                finds.note(target.name, f"an input of more than {SLOW_S} s: {given!r:.300}")
        ran.inputs += target.each
    ran.took_s = time.process_time() - began_s
    return ran


def _again_s(target: Target, given: Any) -> float:
    """How long the input takes when nothing else happens to be due: the least of three."""
    gc.collect()
    best_s = float("inf")
    for _ in range(3):
        feed = target.make()
        at_s = time.thread_time()
        with suppress(Exception):  # counted the first time
            feed(given)
        best_s = min(best_s, time.thread_time() - at_s)
    return best_s


# -- inputs that several targets share ----------------------------------------------------------------------------


def damaged_bytes(*seeds: bytes, sound: float = 0.03) -> Inputs:
    """Damaged copies of `seeds`, now and then one as it was."""

    def inputs(draw: Draw) -> Iterator[bytes]:
        while True:
            one = draw.rng.choice(seeds)
            yield one if draw.chance(sound) else mutate.damaged(draw.rng, one, draw.rng.choice(seeds))

    return inputs


def altered_json(*seeds: Any, raw: float = 0.3) -> Inputs:
    """JSON bytes of `seeds` with nodes of another kind; a share of `raw` is damaged as bytes."""
    as_bytes = tuple(json.dumps(seed).encode() for seed in seeds)

    def inputs(draw: Draw) -> Iterator[bytes]:
        while True:
            if draw.chance(raw):
                yield mutate.damaged(draw.rng, draw.rng.choice(as_bytes), draw.rng.choice(as_bytes))
            else:
                value = mutate.altered(draw, draw.rng.choice(seeds))
                yield mutate.dumped(value, ascii_=draw.chance(0.3))

    return inputs


def altered_values(*seeds: Any) -> Inputs:
    """Plain JSON values, as a decoder behind the reader of JSON gets them."""

    def inputs(draw: Draw) -> Iterator[Any]:
        while True:
            yield mutate.altered(draw, draw.rng.choice(seeds))

    return inputs
