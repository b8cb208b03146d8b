"""Updates into rows of ports, and which positions may be committed."""

from typing import Any

import pyarrow as pa
import pytest

from sdfstream.bus import producers
from sdfstream.bus.conform import conform
from sdfstream.probes.switches import readings as module
from sdfstream.probes.switches.gnmic import updates
from sdfstream.probes.switches.readings import SwitchReadings
from sdfstream.records.topics import PORT
from sdfstream.stats import Counters
from tests.fixtures.gnmic_events import T0_NS, VENDORS, event, message, sample

S = 1_000_000_000
NOW = 5 * S


class World:
    """Readings, fed with messages in order."""

    def __init__(self) -> None:
        self.readings = SwitchReadings(Counters("s"))
        self.offset = 0

    def take(self, *raws: bytes, now_ns: int = NOW, partition: int = 0) -> None:
        for raw in raws:
            self.readings.take(updates(raw, self.readings.counters), partition, self.offset, now_ns)
            self.offset += 1

    def rows(self, now_ns: int = NOW, *, everything: bool = False) -> list[dict[str, Any]]:
        found = []
        for output in self.readings.outputs(now_ns, everything=everything):
            batch = output.body
            assert isinstance(batch, pa.RecordBatch)
            assert conform(PORT.columns, batch)[1] == 0
            producers.check(PORT.name, output.key, batch)
            found += batch.to_pylist()
        return [{name: value for name, value in row.items() if value is not None} for row in found]


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_sample_in_any_shape_is_one_row(vendor: str) -> None:
    world = World()
    world.take(*VENDORS[vendor]("l0", "Ethernet1/1", T0_NS, 1000, 3))
    assert world.rows() == [], "it may go on"
    (row,) = world.rows(NOW + S)
    assert T0_NS <= row.pop("at_ns") < T0_NS + S // 1000
    assert row == {
        "host": "l0",
        "nic": "l0/Ethernet1/1",
        "port": "l0/Ethernet1/1:1",
        "state": "up",
        "speed_mbps": 400_000,
        "rx_bytes": 1000,
        "tx_bytes": 2000,
        "rx_packets": 16,
        "rx_errors": 3,
    }


def test_the_next_sample_ends_the_one_before_at_once() -> None:
    world = World()
    world.take(*(sample("l0", "e1", T0_NS + i * S, in_octets=i) for i in range(3)))
    assert [(r["at_ns"] - T0_NS, r["rx_bytes"]) for r in world.rows()] == [(0, 0), (S, 1)]


def test_state_holds_until_it_changes_and_counters_do_not() -> None:
    world = World()
    world.take(sample("l0", "e1", T0_NS, oper="UP", in_octets=1, in_errors=0))
    world.take(message(event("l0", "e1", T0_NS + 2 * S, {"/interfaces/interface/state/counters/in-octets": 2})))
    first, second = world.rows(everything=True)
    assert (first["state"], first["rx_errors"]) == ("up", 0)
    assert second["state"] == "up" and "rx_errors" not in second


def test_a_change_of_state_is_a_row_and_the_same_state_again_is_none() -> None:
    world = World()
    world.take(sample("l0", "e1", T0_NS, in_octets=1))
    world.rows(everything=True)
    for at_s, oper in ((1, "UP"), (2, "DOWN"), (3, "DOWN")):
        world.take(sample("l0", "e1", T0_NS + at_s * S, oper=oper))
        rows = world.rows(everything=True)
        assert [r["state"] for r in rows] == (["down"] if at_s == 2 else [])


def test_a_state_that_is_told_late_counts_if_it_is_the_newest_state() -> None:
    world = World()
    world.take(sample("l0", "e1", T0_NS, oper="UP", in_octets=1))
    world.take(message(event("l0", "e1", T0_NS + 9 * S, {"/interfaces/interface/state/counters/in-octets": 2})))
    world.rows(everything=True)
    world.take(sample("l0", "e1", T0_NS + 8 * S, oper="DOWN"))
    (row,) = world.rows(everything=True)
    assert (row["state"], row["at_ns"]) == ("down", T0_NS + 9 * S)


def test_a_port_without_counters_goes_on_telling_its_state() -> None:
    world = World()
    for i in range(3):
        world.take(sample("l0", "e1", T0_NS + i * S))
        assert len(world.rows(everything=True)) == 1


def test_a_counter_that_goes_back_is_passed_on() -> None:
    world = World()
    for i, n in enumerate((100, 3)):
        world.take(sample("l0", "e1", T0_NS + i * S, in_errors=n))
    assert [r["rx_errors"] for r in world.rows(everything=True)] == [100, 3]


def test_repeats_and_late_counters_are_left_out_and_a_clock_that_was_set_is_followed() -> None:
    world = World()
    for at_s in (0, 10, 10, 5, -3600, -3599):
        world.take(sample("l0", "e1", T0_NS + at_s * S, in_octets=1))
        world.rows(everything=True)
    assert world.readings.counters.get("rows") == 4
    assert (world.readings.counters.get("late"), world.readings.counters.get("clock-set")) == (2, 1)


def test_a_better_source_of_a_column_is_never_taken_for_a_rise() -> None:
    world = World()
    for at_s, counters in ((0, {"in_fcs_errors": 7}), (1, {"in_errors": 900}), (2, {"in_errors": 901})):
        world.take(sample("l0", "e1", T0_NS + at_s * S, in_octets=at_s, **counters))
    assert [r.get("rx_errors") for r in world.rows(everything=True)] == [7, None, 901]


def test_positions_stay_before_what_is_not_out_yet() -> None:
    world = World()
    assert world.readings.positions() == {}
    world.take(sample("l0", "e1", T0_NS, in_octets=1))  # 0
    world.take(sample("l0", "e2", T0_NS, in_octets=1), now_ns=NOW + S // 2)  # 1
    world.take(b"junk", now_ns=NOW + S // 2)  # 2
    assert world.readings.positions() == {0: 0}
    assert [r["nic"] for r in world.rows(NOW + S)] == ["l0/e1"]
    assert world.readings.positions() == {0: 1}, "e2's sample may go on"
    assert [r["nic"] for r in world.rows(NOW + 2 * S)] == ["l0/e2"]
    assert world.readings.positions() == {0: 3}


def test_positions_are_by_partition_and_hold_what_is_not_out_when_one_goes() -> None:
    world = World()
    world.take(sample("l0", "e1", T0_NS, in_octets=1), partition=0)
    world.take(sample("l0", "e1", T0_NS, in_errors=1), partition=1)
    assert world.readings.positions() == {0: 0, 1: 1}
    world.readings.forget([0])
    world.take(sample("l0", "e2", T0_NS, in_errors=1), partition=0)  # fetched before the partition went
    assert world.readings.positions() == {0: 0, 1: 1}, "not beyond what is not out"
    world.readings.forget([0])
    row, _ = world.rows(everything=True)
    assert (row["rx_bytes"], row["rx_errors"]) == (1, 1), "leaves of a sample may come by several partitions"
    assert world.readings.positions() == {1: 2}, "the other is read at its commit, wherever that is"


def test_ports_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PORTS", 2)
    monkeypatch.setattr(module, "MOST_ROWS", 1)
    world = World()
    world.take(*(sample("l0", f"e{i}", T0_NS, in_octets=1) for i in range(5)))
    assert len(world.readings.outputs(NOW, everything=True)) == 2
    assert world.readings.counters.get("shed", "port") == 3
    assert world.readings.positions() == {0: 5}
