"""What ages and when, which rows a finding is about, which spans are over: pure parts of the archive's upkeep."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.archive import retention
from sdfstream.archive.retention import AGING, Retention, seconds
from sdfstream.archive.tables import table_of
from sdfstream.archive.upkeep import around_findings, rollups
from sdfstream.archive.upkeep.around_findings import FindingStatement, scope_of, window
from sdfstream.archive.upkeep.rollups import due
from sdfstream.errors import ConfigError
from sdfstream.records.fabric import PathId
from sdfstream.records.topics import ARCHIVED
from sdfstream.records.units import NS_PER_S
from sdfstream.settings import Settings, dump, load


@pytest.mark.parametrize("module", [retention, rollups, around_findings], ids=lambda m: m.__name__)
def test_examples_in_docstrings(module) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_every_raw_and_derived_table_ages_and_no_statement_does() -> None:
    names = {aging.table for aging in AGING}
    topics = {table_of(name) for name in ARCHIVED}
    assert {n for n in topics if n.startswith(("raw_", "derived_"))} <= names
    assert not names & {n for n in topics if n.startswith(("event_", "control_"))}
    assert {n for n in topics if n.startswith("state_")} & names == {"state_clock"}
    assert seconds(AGING[0], None) == seconds(AGING[0], Retention(raw_hours=None)) == 0


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"raw_hours": 0}, "retention.raw_hours must be above 0"),
        ({"second_days": -1}, "retention.second_days"),
        ({"raw_hours": 0.2}, "rows would go before"),
        ({"around_minutes": 30.0}, "at least 1.2"),
        ({"second_days": 0.05}, "hours are made from seconds"),
    ],
)
def test_what_would_lose_rows_is_refused(given_, words) -> None:
    with pytest.raises(ConfigError, match=words):
        Retention(**given_)


def test_every_setting_is_printed_and_read_back(tmp_path) -> None:
    text = dump(Settings())
    assert "retention:\n  raw_hours: 1.0\n" in text
    path = tmp_path / "c.yaml"
    path.write_text("retention:\n  raw_hours: null\n  second_days: 3\n")
    assert load(path).retention == Retention(raw_hours=None, second_days=3)
    path.write_text("retention:\n  raw_hours: 0.1\n")
    with pytest.raises(ConfigError, match="raw_hours"):
        load(path)


@given(st.sets(st.integers(0, 50)), st.integers(1, 7))
def test_what_is_due_is_every_span_but_the_newest_once_in_order(numbers: set[int], most: int) -> None:
    pending = {60 * n for n in numbers}
    out = due(pending, 60, most)
    done = [at for a, b in out for at in range(a, b, 60)]
    assert done == sorted(pending)[:-1]
    assert all(0 < b - a <= 60 * most for a, b in out)


def test_which_rows_a_finding_is_about() -> None:
    path = PathId("h00/r0", "h01/r0", "udp", 50001, 46, "rev")
    _, values = scope_of("path", str(path))
    assert values == {"src": "h00/r0", "dst": "h01/r0", "transport": "udp", "path": 50001, "dscp": 46}
    assert scope_of("port", "h00/r0:1")[1] == {"nic": "h00/r0"}
    assert scope_of("qp", "h00/r0#12")[1] == {"nic": "h00/r0"}
    assert scope_of("host", "h0")[1] == {"host": "h0/"}, "h00/r0 is not on h0"
    assert scope_of("link", "h00/r0--l0")[1] == {"part": "h00/r0--l0", "ends": ["h00/r0"]}
    assert scope_of("switch", "s1")[1] == {"part": "s1", "ends": []}
    assert scope_of("rail", "r0") is None
    assert scope_of("path", "what?") is None


def test_the_window_around_a_statement() -> None:
    minute, hour = 60 * NS_PER_S, 3600 * NS_PER_S
    keep = Retention(around_minutes=2)
    statement = FindingStatement("f", "open", "nic", "h00/r0", 100 * hour - minute, 100 * hour)
    found = window(statement, keep)
    assert (found.from_ns, found.to_ns) == (100 * hour - 3 * minute, 100 * hour + 2 * minute)
    odd_clock = FindingStatement("f", "open", "nic", "h00/r0", 0, 100 * hour)
    assert window(odd_clock, keep).from_ns == 99 * hour - 2 * minute
    ahead = FindingStatement("f", "open", "nic", "h00/r0", 200 * hour, 100 * hour)
    assert window(ahead, keep).from_ns == 100 * hour - 2 * minute
    end = FindingStatement("f", "resolved", "nic", "h00/r0", 0, 100 * hour)
    assert window(end, keep).from_ns == 100 * hour - 2 * minute
