"""The short form of `make fuzz`: every decoder and all stages over a few inputs of a fixed seed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.fuzz import decoders, stages, target
from tests.fuzz.finds import Finds
from tests.fuzz.values import EVERYBODY, Draw

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, on numbers that are none
TARGETS = decoders.targets()


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_decoder_raises_nothing_but_its_own(name: str) -> None:
    finds = Finds()
    ran = target.run(TARGETS[name], Draw(random.Random(20_261_122), EVERYBODY), 40, finds)
    assert list(finds.lines(long=True)) == []
    assert ran.inputs >= 40


def test_all_stages_take_anything() -> None:
    run = stages.run(20_261_122, 300)
    assert list(run.chain.finds.lines(long=True)) == []
    assert all(times.steps for times in run.chain.times.values())


def test_whoever_speaks_under_many_names_moves_neither_the_watermark_nor_the_reference() -> None:
    long: dict[str, Any] = {"seconds": 22.0, "names": ("sync", "detect"), "damaged": 0.0}
    alone, beside = stages.untouched(8, 0, **long), stages.untouched(8, 900, **long)
    assert [line[1:] for line in beside] == [line[1:] for line in alone]
    # a watermark of four agents, of which a quarter is asked, comes a message later when others speak as well
    assert max(abs(one[0] - other[0]) for one, other in zip(alone, beside, strict=True)) <= 1


def test_strangers_change_no_finding_about_the_others() -> None:
    short: dict[str, Any] = {"seconds": 13.0, "names": ("detect",)}
    said = stages.untouched(1, 0, **short)
    assert ("nic-down", "h01/r0", "open") in {line[1:] for line in said}
    finds = Finds()
    assert stages.untouched(2, 100, finds=finds, **short) == said
    assert list(finds.lines(long=True)) == []
