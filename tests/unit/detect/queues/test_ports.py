"""What hosts' ports moved, on reference time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.detect.queues.ports import PortBytes
from sdfstream.records import columns
from sdfstream.records.topics import PORT
from sdfstream.records.units import NS_PER_S

OFFSET_NS = 5_000_000.0


def reading(at_s: float, rx: int, tx: int) -> pa.RecordBatch:
    row: dict[str, Any] = {
        "at_ns": np.array([round(at_s * NS_PER_S) + round(OFFSET_NS)]), "host": ["h0"], "nic": ["h0/r0"],
        "port": ["h0/r0:1"], "state": ["up"], "speed_mbps": np.array([10_000], np.uint32),
        "rx_bytes": np.array([rx], np.uint64), "tx_bytes": np.array([tx], np.uint64),
    }  # fmt: skip
    return columns.build(PORT.columns, row)


def known(host: str) -> float | None:
    return OFFSET_NS if host == "h0" else None


def test_rates_are_those_of_the_two_readings_about_an_instant() -> None:
    ports = PortBytes()
    for second, moved in enumerate((0, 100, 300, 600)):
        ports.take(reading(10 + second, moved, 2 * moved), known)
    rate = ports.rates(round(11.5 * NS_PER_S))["h0/r0"]
    assert (rate.from_ns, rate.until_ns) == (11 * NS_PER_S, 12 * NS_PER_S)
    assert (rate.rx_bps, rate.tx_bps, rate.speed_bps) == pytest.approx((1600, 3200, 10e9))
    assert ports.rates(14 * NS_PER_S) == {}


def test_counters_that_began_anew_and_clocks_that_are_not_known_give_no_rate() -> None:
    ports = PortBytes()
    ports.take(reading(10, 500, 500), known)
    ports.take(reading(11, 100, 100), known)
    assert ports.rates(round(10.5 * NS_PER_S)) == {}
    other = PortBytes()
    for second in range(3):
        other.take(reading(10 + second, second, second), lambda _: None)
    assert other.rates(11 * NS_PER_S) == {}


def test_goes_on_from_a_snapshot() -> None:
    ports, other = PortBytes(), PortBytes()
    ports.take(reading(10, 0, 0), known)
    other.restore(ports.snapshot())
    for each in (ports, other):
        each.take(reading(11, 100, 100), known)
    assert ports.rates(round(10.5 * NS_PER_S)) == other.rates(round(10.5 * NS_PER_S)) != {}
