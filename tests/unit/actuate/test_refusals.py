"""Refusals as published."""

from __future__ import annotations

import pytest

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.refusals import Doubt, Refusals
from sdfstream.bus import codec
from sdfstream.records.units import NS_PER_S

S = NS_PER_S


def test_the_same_refusal_is_published_ever_more_seldom() -> None:
    refusals = Refusals(ActuateConfig())
    target, doubt = {"type": "qp", "id": "q"}, Doubt("dwell", "because")
    first = [second for second in range(300) if refusals.refuse("steer", target, doubt, (), second * S)]
    assert first == [0, 10, 30, 70, 150]
    assert refusals.refuse("steer", target, Doubt("hold", "because"), (), 300 * S), "another rule is news"
    assert refusals.refuse("steer", {"type": "qp", "id": "r"}, Doubt("dwell", "because"), (), 300 * S)


@pytest.mark.parametrize("length", [1, 1000, 4096])
def test_a_refusal_can_be_published_whatever_the_id_that_an_override_names(length: int) -> None:
    refusals, target = Refusals(ActuateConfig()), {"type": "command", "id": "é" * length}
    (refused,) = refusals.refuse("override", target, Doubt("unknown-key", "because"), (), S)
    answered = refusals.publish("é" * length, "refused", Doubt("budget", "because"), "override", target, (), S)
    for output in (refused, answered):
        headers, value = codec.encode(output, "b", 0)
        assert codec.decode(output.topic, headers, value, output.key).body == output.body
