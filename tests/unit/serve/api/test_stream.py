"""The log of changes: numbered, bounded, resumed."""

from __future__ import annotations

from sdfstream.records import topics
from sdfstream.serve.api import stream
from sdfstream.serve.api.stream import ChangeLog
from tests.fixtures import board_messages as bm


def log_of(n: int) -> ChangeLog:
    log = ChangeLog("run")
    log.take(bm.event(topics.FINDING, bm.finding(f"f{i}")) for i in range(n))
    return log


def test_who_comes_back_gets_what_was_missed_once() -> None:
    log = log_of(10)
    n, missed = log.start("run-4")
    found, last = log.since(n, ("finding",), 100)
    assert ([c.n for c in found], last, missed) == ([5, 6, 7, 8, 9, 10], 10, False)
    assert log.since(last, ("finding",), 100) == ([], 10)
    assert log.start(None) == (10, False), "a new reader begins with what comes"


def test_who_cannot_be_served_is_told() -> None:
    log = log_of(10)
    for other in ("another-4", "run-11", "run-", "run-x", "run-²", "", "run-" + "9" * 40):
        assert log.start(other) == (10, True), other


def test_the_log_is_bounded_and_says_what_is_gone(monkeypatch: object) -> None:
    log = log_of(stream.MOST_EVENTS + 5)
    assert log.after(2) == (5, True), "the five oldest are gone"
    assert log.after(5) == (5, False)
    found, last = log.since(5, ("finding",), 3)
    assert ([c.n for c in found], last) == ([6, 7, 8], 8)


def test_names_choose_and_the_number_goes_on() -> None:
    log = ChangeLog("run")
    log.take(
        [bm.nic_state("h00/r0", "tx", "healthy"), bm.clocks({"h00": 1.0}), bm.nic_state("h00/r0", "rx", "healthy")]
    )
    assert log.newest == 2, "clocks are no change"
    assert log.since(0, ("finding",), 100) == ([], 2)


def test_an_event_cannot_forge_another() -> None:
    log = ChangeLog("run")
    log.take([bm.event(topics.FINDING, bm.finding("f1\n\nevent: command\ndata: {}"))])
    found, _ = log.since(0, ("finding",), 10)
    assert stream.framed("finding", found[0].data).count(b"\n") == 3
