"""A trouble lasts until it ends; a helper that hangs or ended is one."""

from __future__ import annotations

from sdfstream.runtime.own_troubles import Counted, OwnTroubles
from sdfstream.stats import Counters
from sdfstream.troubles import STARVED_S, Troubles


def test_a_helper_with_work_and_no_progress_is_starved() -> None:
    troubles = Troubles()
    helper = troubles.helper("ports")
    assert troubles.current(1e9) == {}, "it has nothing to do"
    helper.begin(100.0)
    assert troubles.current(100.0 + STARVED_S) == {}
    assert list(troubles.current(101.0 + STARVED_S)) == ["thread ports"]
    helper.begin(101.0 + STARVED_S)  # progress
    assert troubles.current(102.0 + STARVED_S) == {}
    helper.rest()
    assert troubles.current(1e9) == {}
    assert troubles.helper("ports") is helper


def test_a_helper_that_ended_is_told_for_ever() -> None:
    troubles = Troubles()
    troubles.helper("archive").end(ValueError("no"))
    assert troubles.current(1e9) == {"thread archive": "the thread archive ended by a defect: ValueError: no"}


def test_since_when_and_how_long_after() -> None:
    counters = Counters("archive")
    own = OwnTroubles([Counted(counters)])
    own.look(10.0, 1_000)
    assert own.sentences() == [] and own.as_data() == []
    counters.troubles.begin("spill", "full")
    own.look(11.0, 2_000)
    own.look(12.0, 3_000)
    assert own.as_data() == [{"what": "archive.spill", "why": "full", "since_at_ns": 2_000}]
    counters.troubles.end("spill")
    own.look(13.0, 4_000)
    assert own.sentences() == ["archive.spill: full"], "a disk on the brink takes one write and not the next"
    own.look(18.0, 5_000)
    assert own.sentences() == []
