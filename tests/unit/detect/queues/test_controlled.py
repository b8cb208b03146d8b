"""Which queues are as congestion control leaves them."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.marks import MARKS_NS
from sdfstream.detect.queues.controlled import is_controlled

RX, TX = ["l0->h1/r0"], ["h1/r0->l0"]


@pytest.mark.parametrize(
    ("us", "marked", "where", "age", "marking", "paused", "expected"),
    [
        (90.0, [0.03, 0.05], RX, 1.0, True, False, True),
        (90.0, [0.8, 0.9], RX, 1.0, True, False, False),
        (90.0, [0.2, 0.2], RX, 0.3, True, False, False),  # two thirds of those since it stands
        (90.0, [], RX, 1.0, True, False, True),  # it drains
        (90.0, [0.03], RX, 1.0, False, False, False),
        (400.0, [0.03], RX, 1.0, True, False, False),
        (90.0, [], TX, 1.0, False, False, True),
        (90.0, [], TX, 1.0, True, True, False),
        (400.0, [], TX, 1.0, True, False, False),
        (90.0, [0.03], ["h1/r0 rx"], 1.0, False, False, False),
    ],
)
def test_a_queue_within_the_thresholds_that_is_hardly_marked_is_controlled(
    us: float, marked: list[float], where: list[str], age: float, marking: bool, paused: bool, expected: bool
) -> None:
    age_ns = int(age * MARKS_NS)
    assert is_controlled(us, np.array(marked), where, age_ns, marking=marking, paused=paused) is expected
