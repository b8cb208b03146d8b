"""Chunks of a stream as rows that the workload stage takes."""

from __future__ import annotations

from sdfstream.records import columns
from sdfstream.records.topics import QP
from sdfstream.stats import Counters
from sdfstream.verbs.chunks import CarriedMessage
from sdfstream.verbs.description import Registration, queue_pair
from sdfstream.verbs.rows import output
from sdfstream.workload.chunks import read
from tests.unit.verbs.test_description import QP as LIVE

ABOUT = queue_pair(Registration("h00/r0", "h01/r0", 3, 4), LIVE, can_steer=True)


def test_rows_have_the_columns_of_the_topic() -> None:
    messages = [CarriedMessage(0, 4096, 100, 200, 1, 0xC001), CarriedMessage(1, 4097, 150, 900, 2, 0xF000)]
    made = output("train", ABOUT, messages, 4096)
    assert (made.topic, made.key) == ("sdf.raw.qp.v1", "h00")
    assert made.body.schema.equals(QP.columns)
    rows = made.body.to_pylist()
    assert [(r["packets"], r["retransmits"], r["path"], r["transport"]) for r in rows] == [
        (1, 0, 0xC001, "rocev2"),
        (2, 2, 0xF000, "rocev2"),
    ]
    assert [r["arrived_at_ns"] for r in rows] == [None, None]
    counters = Counters("workload")
    assert read(made.body, counters)[0].size == 2
    assert not counters.as_dict()
    assert columns.instants(made.body, "acknowledged_at_ns").tolist() == [200, 900]
