"""Two producers of one host are found, whatever their clocks; restarts and what waited on disk are none."""

from __future__ import annotations

import pytest

from sdfstream.detect.producers import ProducerDetector
from sdfstream.records.finding import Subject
from sdfstream.records.mesh import HostHere, NicHere
from sdfstream.records.producer import RefusedProducer
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from tests.unit.detect.instants import at

T0 = 1_700_000_000 * NS_PER_S
HOUR = 3600 * NS_PER_S


def publish(engine: ProducerDetector, boot: str, first_s: float, last_s: float, *, ahead_ns: int = 0) -> None:
    """A run's message every 100 ms of bus time, read just before."""
    for tick in range(round(first_s * 10), round(last_s * 10)):
        now = T0 + tick * 100 * NS_PER_MS
        engine.take("h1", boot, now + ahead_ns - 50 * NS_PER_MS, now)


def kinds(engine: ProducerDetector, at_s: float) -> list[str]:
    return [d.kind for d in engine.detections(at(T0 + round(at_s * NS_PER_S)))]


@pytest.mark.parametrize("ahead_ns", [0, HOUR, -HOUR, 300 * NS_PER_MS])
def test_two_agents_of_one_name_are_found_whatever_their_clocks_say(ahead_ns: int) -> None:
    engine = ProducerDetector()
    for second in range(30):
        publish(engine, "first", second, second + 1)
        if second >= 10:
            publish(engine, "second", second, second + 1, ahead_ns=ahead_ns)
        if second == 9:
            assert kinds(engine, 10) == []
    (detection,) = engine.detections(at(T0 + 30 * NS_PER_S))
    assert detection.subject == Subject("host", "h1")
    assert "first" in detection.detail and "second" in detection.detail
    assert detection.since_ns >= T0 + 9 * NS_PER_S
    again = ProducerDetector()
    again.restore(engine.snapshot())
    assert again.detections(at(T0 + 30 * NS_PER_S)) == [detection]
    publish(engine, "first", 30, 50)
    assert kinds(engine, 50) == [], "the second one stopped"


def test_a_producer_with_a_new_run_in_every_message_is_found() -> None:
    engine = ProducerDetector()
    for second in range(20):
        publish(engine, "agent", second, second + 1)
        now = T0 + (second + 1) * NS_PER_S
        engine.take("h1", f"forged-{second}", now, now)
    assert kinds(engine, 20) == ["duplicate-host"]


def test_a_restart_and_what_the_former_run_left_on_disk_are_no_second_producer() -> None:
    engine = ProducerDetector()
    publish(engine, "before", 0, 20)
    publish(engine, "after", 22, 23)
    for tick in range(200):  # the new run's messages, between them the former's: 15 s of them within 10 s
        now = T0 + 23 * NS_PER_S + tick * 50 * NS_PER_MS
        engine.take("h1", "before", T0 + 5 * NS_PER_S + tick * 75 * NS_PER_MS, now)
        engine.take("h1", "after", now - 50 * NS_PER_MS, now)
        assert kinds(engine, 23 + tick * 0.05) == []


def test_an_agent_that_restarts_all_the_time_is_no_second_producer() -> None:
    engine = ProducerDetector()
    for n in range(40):
        publish(engine, f"run-{n}", 2 * n, 2 * n + 1.5)
        assert kinds(engine, 2 * n + 1.5) == []


def test_readings_from_any_century_harm_nothing() -> None:
    engine = ProducerDetector()
    for n, reading in enumerate((-(1 << 63), (1 << 63) - 1, 0) * 20):
        engine.take("h1", f"run-{n % 2}", reading, T0 + n * NS_PER_S)
    assert engine.detections(at(T0 + 60 * NS_PER_S)) == []


def test_what_the_link_refuses_is_told_as_long_as_it_lasts() -> None:
    engine = ProducerDetector()
    engine.take_refused(RefusedProducer("h1", "process 7 of user 0", "process 5 of user 0"), T0)
    (detection,) = engine.detections(at(T0 + NS_PER_S))
    assert (detection.kind, detection.since_ns) == ("duplicate-host", T0)
    assert "process 7" in detection.detail and "process 5" in detection.detail
    assert kinds(engine, 20) == []


def here(host: str, address: str, plane: str | None = None) -> HostHere:
    return HostHere(host, "b", 0, (NicHere(f"{host}/r0", address, host, plane),), 1000.0)


def test_one_address_of_two_hosts_is_found_and_ends_with_one_of_them() -> None:
    engine = ProducerDetector()
    for host in ("h1", "h2"):
        engine.take_host(here(host, "10.0.0.1"), T0)
    (detection,) = engine.detections(at(T0 + NS_PER_S))
    assert (detection.kind, detection.subject.id) == ("duplicate-address", "h1/r0")
    assert [name for name, _ in detection.suspects] == ["h1/r0", "h2/r0"]
    again = ProducerDetector()
    again.restore(engine.snapshot())
    assert again.detections(at(T0 + NS_PER_S)) == [detection]
    for second in range(20):  # h2 is gone: its address was given to h1
        engine.take("h1", "b", T0, T0 + second * NS_PER_S)
    assert kinds(engine, 20) == []


@pytest.mark.parametrize(
    ("first", "second"), [("10.0.0.1", "10.0.0.2"), ("127.0.0.1", "127.0.0.1"), ("fe80::1", "fe80::1")]
)
def test_addresses_that_may_be_alike_are_none(first: str, second: str) -> None:
    engine = ProducerDetector()
    engine.take_host(here("h1", first), T0)
    engine.take_host(here("h2", second), T0)
    assert kinds(engine, 1) == []


def test_two_planes_may_use_one_address() -> None:
    engine = ProducerDetector()
    engine.take_host(here("h1", "10.0.0.1", "backend"), T0)
    engine.take_host(here("h2", "10.0.0.1", "frontend"), T0)
    assert kinds(engine, 1) == []
