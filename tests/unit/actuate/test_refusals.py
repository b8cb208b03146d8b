"""Refusals as published."""

from __future__ import annotations

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.refusals import Doubt, Refusals
from sdfstream.records.units import NS_PER_S

S = NS_PER_S


def test_the_same_refusal_is_published_ever_more_seldom() -> None:
    refusals = Refusals(ActuateConfig())
    target, doubt = {"type": "qp", "id": "q"}, Doubt("dwell", "because")
    first = [second for second in range(300) if refusals.refuse("steer", target, doubt, (), second * S)]
    assert first == [0, 10, 30, 70, 150]
    assert refusals.refuse("steer", target, Doubt("hold", "because"), (), 300 * S), "another rule is news"
    assert refusals.refuse("steer", {"type": "qp", "id": "r"}, Doubt("dwell", "because"), (), 300 * S)
