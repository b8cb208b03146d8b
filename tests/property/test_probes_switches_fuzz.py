"""Whatever a topic holds, the parser of gnmic's events never raises, and what it gives makes sound rows."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.bus import codec, producers
from sdfstream.bus.conform import conform
from sdfstream.probes.switches.gnmic import updates
from sdfstream.probes.switches.readings import SwitchReadings
from sdfstream.records.topics import PORT
from sdfstream.stats import Counters
from tests.fixtures.gnmic_events import T0_NS

LEAF = st.sampled_from(
    [
        "/interfaces/interface/state/counters/in-octets",
        "/openconfig-interfaces:interfaces/interface/state/counters/openconfig-interfaces:counters/in-errors",
        "/interfaces/interface/state/counters/in-unicast-pkts",
        "/interfaces/interface/state/counters/in-multicast-pkts",
        "/interfaces/interface/state/counters/in-broadcast-pkts",
        "/interfaces/interface/state/oper-status",
        "/interfaces/interface/ethernet/state/port-speed",
        "//:/[",
    ]
)
VALUE = st.one_of(
    st.integers(-2, 1 << 64),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["UP", "DOWN", "SPEED_400GB", "9223372036854775807", "99999999999999999999"]),
    st.none(),
    st.booleans(),
    st.lists(st.integers(), max_size=2),
)
NAME = st.one_of(st.sampled_from(["l0", "l1:57400", "Ethernet1/1", "et-0/0/1:0"]), st.text(max_size=6), st.integers())
EVENT = st.fixed_dictionaries(
    {},
    optional={
        "timestamp": st.one_of(st.integers(T0_NS, T0_NS + 10**11), st.integers(), VALUE),
        "tags": st.one_of(
            st.fixed_dictionaries({"source": NAME, "interface_name": NAME}), st.dictionaries(st.text(), NAME), st.none()
        ),
        "values": st.one_of(st.dictionaries(st.one_of(LEAF, st.text()), VALUE, max_size=4), st.none()),
    },
)


@given(st.binary())
def test_bytes(raw: bytes) -> None:
    assert updates(raw, Counters("s")) == []


@given(st.recursive(VALUE, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20))
def test_any_json(value: Any) -> None:
    updates(json.dumps(value).encode(), Counters("s"))


@given(st.lists(st.tuples(st.lists(EVENT, max_size=4), st.integers(0, 2), st.integers(0, 10**9)), max_size=8))
def test_events_make_rows_that_the_bus_takes(said: list[tuple[list[Any], int, int]]) -> None:
    readings, now_ns, taken = SwitchReadings(Counters("s")), 0, {}
    for offset, (events, partition, later_ns) in enumerate(said):
        now_ns += later_ns
        readings.take(updates(json.dumps(events).encode(), readings.counters), partition, offset, now_ns)
        taken[partition] = offset + 1
        check(readings, now_ns)
        held = readings.positions()
        assert held.keys() == taken.keys() and all(held[p] <= taken[p] for p in held)
    check(readings, now_ns, everything=True)
    assert readings.positions() == taken


def check(readings: SwitchReadings, now_ns: int, *, everything: bool = False) -> None:
    for output in readings.outputs(now_ns, everything=everything):
        assert isinstance(output.body, pa.RecordBatch)
        codec.check(output)
        producers.check(PORT.name, output.key, output.body)
        assert conform(PORT.columns, output.body)[1] == 0
