from __future__ import annotations

import polars as pl
import pytest

from sdfstream.client.choice import Choice
from sdfstream.errors import ConfigError
from sdfstream.records.message import Event, Message


def event(**data: object) -> Event:
    return Event("sdf.event.finding.v1", "detect", "1", 1, data)


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        (["rail=0"], "--where rail=0: write nic=HOST/NIC or job=NAME"),
        (["nic="], "write nic="),
        (["h00/r0"], "write nic="),
    ],
)
def test_a_condition_that_means_nothing_is_refused(conditions: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Choice.where(None, None, conditions)


def test_a_span_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ConfigError, match="not later"):
        Choice.where(10, 10, [])


def test_a_span_has_its_first_instant_and_not_its_last() -> None:
    choice = Choice(10, 20)
    assert [choice.spans(Message("t", "", event(), at, 0)) for at in (9, 10, 19, 20)] == [False, True, True, False]


def test_a_row_names_a_nic_by_itself_its_port_or_its_queue_pair() -> None:
    frame = pl.DataFrame({"src": ["h00/r0", "h00/r01", None, "x"], "port": ["x", "x", "h00/r0:1", "h00/r01:1"]})
    rows = Choice(nics=("h00/r0",)).rows("t", frame.columns)
    assert rows is not None
    assert frame.select(rows).to_series().to_list() == [True, False, True, False]


def test_several_nics_mean_any_and_a_job_besides_means_both() -> None:
    frame = pl.DataFrame({"src": ["a/0", "b/0", "c/0"], "job": ["t", "u", "t"]})
    rows = Choice(nics=("a/0", "b/0"), jobs=("t",)).rows("t", frame.columns)
    assert rows is not None
    assert frame.filter(rows)["src"].to_list() == ["a/0"]


def test_what_has_no_such_column_is_refused_and_not_left_out() -> None:
    with pytest.raises(ConfigError, match=r"sdf\.state\.clock\.v1 has no column that names a NIC"):
        Choice(nics=("a/0",)).rows("sdf.state.clock.v1", ["clock", "offset_ns"])
    with pytest.raises(ConfigError, match="migration has no column of time"):
        Choice(since_ns=1).sql("migration", {"version": "UInt32"})


def test_an_event_names_what_its_payload_names_anywhere() -> None:
    finding = event(subject={"type": "link", "id": "l0--s0"}, suspects=[{"id": "h00/r0:1"}], jobs=["train-7"])
    assert Choice(nics=("h00/r0",)).names(finding)
    assert not Choice(nics=("h00/r01",)).names(finding)
    assert Choice(jobs=("train-7",)).names(finding)
    assert not Choice(jobs=("l0--s0",)).names(finding), "a link is no job"
    assert Choice(jobs=("j",)).names(event(subject={"type": "job", "id": "j"}))
    assert not Choice(nics=("h00/r0",), jobs=("j",)).names(finding)


def test_sql_quotes_what_people_type() -> None:
    condition = Choice(nics=("a'b\\",)).sql("t", {"src": "String", "nics": "Array(String)"})
    assert condition.count("'a\\'b\\\\'") == 2
    assert "has(`nics`, " in condition
