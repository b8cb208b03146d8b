"""A GID that is gone, moved, or away while the port is down."""

from __future__ import annotations

from sdfstream.records.units import NS_PER_S
from sdfstream.verbs.carried.gid_watch import GidWatch


def why(watch: GidWatch, gid: str, second: float, *, active: bool = True) -> str:
    return watch.why_lost(gid, active=active, now_ns=int(second * NS_PER_S))


def test_a_gid_that_stays_is_never_lost() -> None:
    watch = GidWatch("::ffff:10.0.0.1")
    assert not any(why(watch, "::ffff:10.0.0.1", s) for s in range(1, 20))


def test_another_address_at_its_place_is_lost_at_once() -> None:
    assert why(GidWatch("::ffff:10.0.0.1"), "::ffff:10.0.0.2", 1) == "is another address now"


def test_an_empty_place_is_lost_after_three_seconds_of_an_active_port() -> None:
    watch = GidWatch("::ffff:10.0.0.1")
    assert [why(watch, "", s) for s in (1, 3.9, 4)] == ["", "", "is absent"]


def test_a_port_that_is_down_and_a_gid_that_came_back_begin_the_three_seconds_anew() -> None:
    watch = GidWatch("::ffff:10.0.0.1")
    assert not why(watch, "", 1)
    assert not why(watch, "", 3, active=False)
    assert not why(watch, "", 5)
    assert not why(watch, "::ffff:10.0.0.1", 7)
    assert not why(watch, "", 9)
    assert not why(watch, "", 11)
    assert why(watch, "", 12) == "is absent"
