"""A switch is not blamed where one of its cables explains the same silence."""

from __future__ import annotations

import numpy as np

from sdfstream.detect.one_cable import cable_instead
from sdfstream.detect.problem import Observations, pose
from sdfstream.records.finding import Subject
from tests.unit.detect.test_routes import World, hops

S = 1_000_000_000
ENDS = (
    ("h0/r0", "l0", "s0", "h2/r0", "l1"),
    ("h1/r0", "l0", "s0", "h2/r0", "l1"),
    ("h2/r0", "l1", "s1", "h0/r0", "l0"),
    ("h0/r0", "l0", "s1", "h3/r0", "l2"),
)
"""Sender, its leaf, spine, receiver and its leaf of each session, by number."""


def instead(switch: str, silent: dict[int, str], healthy: dict[int, str]) -> tuple[Subject, list[str]] | None:
    """What is blamed in place of `switch`; sessions by number with the direction seen."""
    w = World()
    for slot, (src, near, spine, dst, far) in enumerate(ENDS):
        w.cabling.trace(slot, 0, hops(src, near, spine, far), S)
        w.cabling.trace(slot, 1, hops(dst, far, spine, near), S)
    w.cabling.refresh()
    rows = [
        Observations.of(np.array([slot]), direction, failed, 8.0)
        for sessions, failed in ((silent, 8.0), (healthy, 0.0))
        for slot, direction in sessions.items()
    ]
    return cable_instead(w.cabling, pose(w.cabling, Observations.join(rows)), switch, np.array(list(silent)))


def test_the_nic_that_all_silent_paths_cross_whichever_direction_they_are_silent_in() -> None:
    assert instead("l0", {0: "fwd", 3: "fwd", 2: "fwd"}, {}) == (Subject("nic", "h0/r0"), ["h0/r0->l0", "l0->h0/r0"])
    assert instead("l1", {0: "fwd", 1: "fwd"}, {}) is None, "its NIC and its link to the spine fit as well"


def test_a_switch_whose_silent_paths_share_no_cable_stays() -> None:
    assert instead("l0", {1: "fwd", 3: "fwd"}, {}) is None


def test_a_cable_that_a_healthy_path_crosses_is_not_taken() -> None:
    assert instead("l0", {0: "fwd", 2: "fwd"}, {3: "fwd"}) is None
    assert instead("l1", {0: "fwd", 1: "fwd"}, {2: "rev"}) == (Subject("link", "l1--s0"), ["s0->l1"])
