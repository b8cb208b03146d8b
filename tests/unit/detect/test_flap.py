"""Flap rules under a virtual clock: an hour passes in milliseconds."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.detections import TRANSPORT_SILENT, Detection
from sdfstream.detect.flap import FlapDetector
from sdfstream.detect.ledger import Ledger
from sdfstream.records import columns
from sdfstream.records.finding import Subject
from sdfstream.records.topics import PORT
from sdfstream.stats import Counters

S = 1_000_000_000
NIC = Subject("nic", "h03/r1")
T0 = 1_800_000_000 * S


def reading(state: str, changes: int | None = None, downed: int | None = None) -> pa.RecordBatch:
    values = {"carrier_changes": changes, "link_downed": downed}
    given = {k: pa.array([v], pa.uint64()) for k, v in values.items()}
    names = {"host": ["h03"], "nic": ["h03/r1"], "port": ["h03/r1:1"], "state": [state]}
    return columns.build(PORT.columns, {"at_ns": [0], **names, **given})


def play(flaps: FlapDetector, outages: list[tuple[float, float]], until_s: float) -> list[dict]:
    """Outages (from, to) in seconds seen by probes, at ticks of 100 ms around them; what the ledger says."""
    ledger, said = Ledger(flaps.config, Counters("detect")), []
    ticks = sorted({int(t * 10) for a, b in outages for t in [x / 10 for x in range(int(a * 10), int(b * 10) + 20)]})
    for tick in [*ticks, *range(int(until_s * 10) - 20, int(until_s * 10))]:
        now = T0 + tick * S // 10
        since = [T0 + int(a * S) for a, b in outages if a <= tick / 10 < b]
        down = {NIC: since[0]} if since else {}
        flaps.update(down, now)
        said += [dict(o.body.data) for o in ledger.take("flap", flaps.flapping(now), now)]
    return said


@pytest.mark.parametrize(("downs", "alarms"), [(8, 0), (9, 1), (14, 1)])
def test_nine_flaps_in_an_hour_fire_exactly_once_and_eight_do_not(downs: int, alarms: int) -> None:
    said = play(FlapDetector(DetectConfig()), [(60 + 300 * i, 61.2 + 300 * i) for i in range(downs)][:downs], 3500)
    opened = [f for f in said if f["status"] == "open"]
    assert len(opened) == alarms
    if opened:
        assert opened[0]["detail"] == "link has flapped more than 8 times within the past hour"
        assert opened[0]["severity"] == "urgent"
        assert next(e["value"] for e in opened[0]["evidence"] if e["what"] == "flaps") == 9


def test_flaps_older_than_an_hour_do_not_count_and_the_alarm_ends_with_them() -> None:
    assert play(FlapDetector(DetectConfig()), [(500 * i, 500 * i + 1) for i in range(12)], 6500) == []
    said = play(FlapDetector(DetectConfig()), [(60 * i, 60 * i + 1) for i in range(9)], 4300)
    assert [f["status"] for f in said] == ["open", "resolved"]


def test_each_rule_fires_alone_and_says_so() -> None:
    longest = play(FlapDetector(DetectConfig()), [(10, 11), (100, 108)], 130)
    total = play(FlapDetector(DetectConfig()), [(20 * i, 20 * i + 6) for i in range(1, 7)], 160)
    assert longest[0]["detail"] == "one outage lasted 7 s or longer"
    assert total[0]["detail"] == "outages of 30 s or more in sum within the past hour"
    assert play(FlapDetector(DetectConfig()), [(10, 30)], 60) == []  # one outage is no flapping
    assert play(FlapDetector(DetectConfig(flap_min_downs=1)), [(10, 30)], 60)[0]["detail"].startswith("one outage")


def test_a_link_that_is_still_down_is_not_flapping() -> None:
    flaps = FlapDetector(DetectConfig())
    flaps.update({NIC: T0}, T0 + S)
    flaps.update({}, T0 + 2 * S)
    for i in range(400):
        flaps.update({NIC: T0 + 10 * S}, T0 + 10 * S + i * S // 10)
        assert flaps.flapping(T0 + 10 * S + i * S // 10) == []


def count(flaps: FlapDetector, now_ns: int) -> dict[str, float]:
    (detection,) = flaps.flapping(now_ns)
    return {e.what: e.value for e in detection.evidence}


def test_carrier_changes_count_down_edges_whatever_lies_between_readings() -> None:
    flaps = FlapDetector(DetectConfig(flap_count=0))
    readings = [("up", 10), ("up", 12), ("down", 13), ("down", 15), ("up", 16), ("up", 16), ("up", 26)]
    for i, (state, changes) in enumerate(readings):
        flaps.take_ports(reading(state, changes), T0 + i * S)
    assert count(flaps, T0 + 10 * S)["flaps-by-carrier"] == 1 + 1 + 1 + 0 + 0 + 5


def test_a_counter_reset_a_new_boot_and_a_pinned_counter_are_no_flaps() -> None:
    flaps = FlapDetector(DetectConfig(flap_count=0))
    for i, (changes, downed) in enumerate([(50, 7), (3, 0), (3, None), (3, None), (3, 200)]):
        flaps.take_ports(reading("up", changes, downed), T0 + i * S)
    flaps.restarted("h03")
    flaps.take_ports(reading("up", 90, 250), T0 + 9 * S)
    assert flaps.flapping(T0 + 10 * S) == []
    flaps.take_ports(reading("up", 90, 252), T0 + 11 * S)
    assert count(flaps, T0 + 12 * S)["flaps-by-link-downed"] == 2


def test_witnesses_of_the_same_flaps_are_not_added_up() -> None:
    flaps = FlapDetector(DetectConfig(flap_count=3))
    for i in range(4):
        flaps.update({NIC: T0 + i * 10 * S}, T0 + i * 10 * S + S)
        flaps.update({}, T0 + i * 10 * S + 2 * S)
        flaps.take_ports(reading("up", 2 * i, i), T0 + i * 10 * S + 2 * S)
    got = count(flaps, T0 + 40 * S)
    assert got["flaps"] == 4 and got["flaps-by-probes"] == 4
    assert got["flaps-by-carrier"] == got["flaps-by-link-downed"] == 3  # the first reading only sets the mark


def test_a_pulse_within_an_outage_is_the_same_event() -> None:
    flaps = FlapDetector(DetectConfig(flap_count=0))
    flaps.update({NIC: T0}, T0 + S)
    flaps.update({}, T0 + 2 * S)
    flaps.pulse(NIC, T0 + S // 5, T0 + S)
    assert count(flaps, T0 + 3 * S)["flaps"] == 1
    flaps.pulse(NIC, T0 + 5 * S, T0 + 5 * S + S // 2)
    assert count(flaps, T0 + 6 * S)["flaps"] == 2


def at(now_ns: int, down: list[Detection]) -> Any:
    """An instant at which this is silent, and told."""
    return SimpleNamespace(
        now_ns=now_ns,
        reached_ns=now_ns,
        silence=SimpleNamespace(detections=down, hosts=frozenset(), recovering=frozenset()),
        findings=SimpleNamespace(is_open=lambda kind, subject: True),
    )


@pytest.mark.parametrize(("kind", "flaps_expected"), [("nic-down", True), (TRANSPORT_SILENT, False)])
def test_a_transport_that_comes_and_goes_is_no_flapping_cable(kind: str, flaps_expected: bool) -> None:
    flaps, found = FlapDetector(DetectConfig()), []
    silent = Detection(kind, NIC, 0, "unknown", 1.0, ())
    for second in range(60):
        now_ns = T0 + second * S
        down = [replace(silent, since_ns=now_ns)] if second % 30 in range(5, 18) else []
        found += flaps.detections(at(now_ns, down))
    assert bool(found) == flaps_expected


def test_a_link_that_no_map_names_is_told_with_what_its_outages_may_have_been() -> None:
    core, suspects = Subject("link", "~core"), (("~leaf(h00:r0)--~core", 0.5), ("~leaf(h01:r0)--~core", 0.5))
    flaps, found = FlapDetector(DetectConfig()), []
    silent = Detection("link-down", core, 0, "unknown", 1.0, (), suspects=suspects)
    for second in range(60):
        now_ns = T0 + second * S
        down = [replace(silent, since_ns=now_ns)] if second % 30 in range(5, 18) else []
        found += flaps.detections(at(now_ns, down))
        fresh = FlapDetector(DetectConfig())
        fresh.restore(flaps.snapshot())
        flaps = fresh
    assert {d.suspects for d in found} == {suspects}
