"""Events of a device as changes of its ports."""

from __future__ import annotations

import pytest

from sdfstream.verbs.probing.device_events import PortChange, PortFacts, changes, is_about_ports

FATAL = PortChange("d", 1, False, "DEVICE_FATAL: active to gone, GID fd00::1 to none")
UP, DOWN, GONE = PortFacts(4, "fd00::1"), PortFacts(1, "fd00::1"), PortFacts(4, "")


@pytest.mark.parametrize(
    ("kind", "before", "now", "expected"),
    [
        ("PORT_ERR", {1: UP}, {1: DOWN}, [PortChange("d", 1, False, "PORT_ERR: active to down")]),
        ("PORT_ACTIVE", {1: DOWN}, {1: UP}, [PortChange("d", 1, True, "PORT_ACTIVE: down to active")]),
        ("GID_CHANGE", {1: UP}, {1: GONE}, [PortChange("d", 1, False, "GID_CHANGE: GID fd00::1 to none")]),
        ("PORT_ERR", {1: UP, 2: UP}, {1: UP, 2: DOWN}, [PortChange("d", 2, False, "PORT_ERR: active to down")]),
        ("DEVICE_FATAL", {1: UP}, {}, [FATAL]),
        ("SM_CHANGE", {1: UP}, {1: UP}, []),
    ],
)
def test_the_ports_that_differ_are_the_change(
    kind: str, before: dict[int, PortFacts], now: dict[int, PortFacts], expected: list[PortChange]
) -> None:
    assert changes("d", kind, before, now) == expected


def test_events_of_queue_pairs_are_not_about_ports() -> None:
    assert is_about_ports("PORT_ERR")
    assert is_about_ports("DEVICE_FATAL")
    assert not is_about_ports("QP_FATAL")
