"""What a process says of itself: signs of life, their judgement, and both over HTTP."""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from sdfstream import cli, pipeline
from sdfstream.bus.memory_io import MemoryBus
from sdfstream.cli import health
from sdfstream.cli.metrics import MOST_REASONS, Told, families
from sdfstream.cli.metrics_io import MetricsServer, parse_address, telling
from sdfstream.cli.run import serve
from sdfstream.errors import BusError, ConfigError, UnavailableError
from sdfstream.settings import Settings
from sdfstream.stats import Counters, Vitals
from tests.bus_samples import clock, finding

NOW_S = 1000.0


def vitals(**progress_s: float) -> Vitals:
    told = Vitals()
    for name, at_s in progress_s.items():
        told.turned(name, at_s, moved=True)
    return told


def test_all_is_well_while_everything_gets_on() -> None:
    assert health.problems(vitals(sync=NOW_S - 1, detect=NOW_S - 29), ["sync", "detect"], NOW_S) == []


def test_what_stopped_is_told_with_how_far_it_is_behind() -> None:
    told = vitals(sync=NOW_S - 40, detect=NOW_S)
    told.turned("sync", NOW_S, lag=7)  # it turns, and gets nothing although there is something
    assert health.problems(told, ["sync", "detect"], NOW_S) == ["sync has not moved for 40 s and is 7 messages behind"]
    told.turned("sync", NOW_S)
    assert health.problems(told, ["sync"], NOW_S) == []


def test_a_loop_that_hangs_is_told_although_it_was_level() -> None:
    assert health.problems(vitals(sync=NOW_S - 31), ["sync"], NOW_S) == ["sync has not come round for 31 s"]


def test_what_has_not_begun_is_no_health() -> None:
    assert health.problems(Vitals(), ["sync"], NOW_S) == ["sync has not begun yet"]
    told = vitals(sync=NOW_S)
    told.ended("sync")
    assert health.problems(told, ["sync"], NOW_S) == ["sync has not begun yet"]


def test_a_bus_that_does_not_answer_is_told() -> None:
    told = vitals(sync=NOW_S)
    told.bus_s = NOW_S - 31
    assert health.problems(told, ["sync"], NOW_S) == ["the bus has not answered for 31 s"]


class Part:
    """Something that counts."""

    def __init__(self, name: str) -> None:
        self.counters = Counters(name)


@pytest.fixture
def told() -> Told:
    return Told(vitals(sync=time.monotonic()), ["sync"], [Part("sync"), Part("bus")])


@pytest.fixture
def url(told: Told) -> Iterator[str]:
    server = MetricsServer.start("127.0.0.1:0", told)
    yield f"http://127.0.0.1:{server.port}"
    server.close()


def get(url: str) -> str:
    status, text = asked(url)
    assert status == 200, text
    return text


def asked(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


def samples(url: str) -> dict[tuple[str, str], float]:
    """Every sample by its name and its label's value."""
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(get(f"{url}/metrics"))
        for sample in family.samples
    }


def test_metrics_are_what_prometheus_reads(told: Told, url: str) -> None:
    told.parts[0].counters.add("refused", "mixed-clocks", 3)
    told.gauges = {"spill_bytes": lambda: 12.0, "unknown_now": lambda: None}
    now_s, now_ns = time.monotonic(), time.time_ns()
    told.vitals.turned("sync", now_s - 2, lag=5, moved=True, reached_at_ns=now_ns - 3 * 10**9)
    told.vitals.turned("archive", now_s, oldest_at_ns=now_ns - 10**9)
    found = samples(url)
    assert found["sdfstream_sync_refused_total", "mixed-clocks"] == 3
    assert found["sdfstream_task_lag_messages", "sync"] == 5
    assert found["sdfstream_task_progress_age_seconds", "sync"] == pytest.approx(2, abs=1.5)
    assert found["sdfstream_task_bus_time_age_seconds", "sync"] == pytest.approx(3, abs=1.5)
    assert ("sdfstream_task_bus_time_age_seconds", "archive") not in found
    assert found["sdfstream_task_oldest_age_seconds", "sync"] == 0
    assert found["sdfstream_task_oldest_age_seconds", "archive"] == pytest.approx(1, abs=1.5)
    assert found["sdfstream_healthy", ""] == 1
    assert found["sdfstream_spill_bytes", ""] == 12
    assert found["process_resident_memory_bytes", ""] > 1e6
    assert not any(name == "sdfstream_unknown_now" for name, _ in found)


def test_counters_of_replicas_are_added_and_reasons_are_bounded() -> None:
    one, other = Counters("sync-edge"), Counters("sync-edge")
    for n in range(MOST_REASONS + 50):
        one.add("gap", f"group:{n}", 10 if n < MOST_REASONS else 1)
    other.add("gap", "group:0", 5)
    (family,) = families([one, other])
    by_reason = {s.labels["reason"]: s.value for s in family.samples}
    assert family.name == "sdfstream_sync_edge_gap"
    assert len(by_reason) == MOST_REASONS + 1
    assert (by_reason["group:0"], by_reason["other"]) == (15, 50)


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8)), max_size=10))
def test_whatever_counters_are_called_prometheus_reads_them(named: list[tuple[str, str, str]]) -> None:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    counted = []
    for stage, what, reason in named:
        counted.append(Counters(stage))
        counted[-1].add(what, reason, 2)

    class Only(Collector):
        def collect(self):  # type: ignore[no-untyped-def]
            return families(counted)

    registry = CollectorRegistry()
    registry.register(Only())
    text = generate_latest(registry).decode()
    total = sum(s.value for f in text_string_to_metric_families(text) for s in f.samples)
    assert total == 2 * len(named)


def test_health_is_200_or_503_with_a_sentence(told: Told, url: str) -> None:
    assert get(f"{url}/health") == "well\n"
    told.vitals.turned("sync", time.monotonic() - 60, moved=True)
    assert asked(f"{url}/health") == (503, "sync has not come round for 60 s\n")
    assert asked(f"{url}/")[0] == 404


def test_the_verb_judges(told: Told, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["health", url]) == 0
    assert cli.main(["health", f"{url}/health"]) == 0
    told.vitals.turned("sync", time.monotonic() - 60, moved=True)
    assert cli.main(["health", url]) == 1
    assert cli.main(["health", "http://127.0.0.1:1"]) == 1
    assert cli.main(["health", "ftp://127.0.0.1"]) == 2
    said = capsys.readouterr()
    assert said.out.splitlines()[:3] == ["well", "well", "sync has not come round for 60 s"]
    assert "does not answer" in said.out
    assert "ftp" in said.err


@pytest.mark.parametrize("address", ["", "9464", "host", "host:", "host:x", "host:99999", "[::1"])
def test_an_address_that_is_none_is_said(address: str) -> None:
    with pytest.raises(ConfigError, match="must be HOST:PORT"):
        parse_address(address)


def test_an_address_that_is_taken_is_said(url: str, told: Told) -> None:
    with pytest.raises(UnavailableError, match="cannot be served"):
        MetricsServer.start(url.removeprefix("http://"), told)


async def test_the_bus_is_asked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdfstream.cli.metrics_io._ASK_S", 0.01)
    answers = iter([BusError("away"), None, None])
    asked = asyncio.Event()

    async def ask() -> None:
        answer = next(answers, None)
        if answer is not None:
            raise answer
        asked.set()

    told = Told(vitals(sync=time.monotonic()))
    async with telling("127.0.0.1:0", told, ask):
        began_s = told.vitals.bus_s
        await asyncio.wait_for(asked.wait(), 5.0)
        await asyncio.sleep(0.05)
        assert began_s is not None
        assert told.vitals.bus_s is not None
        assert told.vitals.bus_s > began_s
    async with telling(None, told, ask):
        pass


async def test_stages_tell_of_themselves_while_they_run(tmp_path: Path) -> None:
    bus, control = MemoryBus(time.time_ns), pipeline.Control(drain=False)
    chosen = Settings(data=tmp_path)
    running = asyncio.create_task(serve(bus, chosen, ["sync", "archive"], control, bus_id="b"))
    await asyncio.sleep(0.3)
    await bus.publish([clock(1), finding(1)])
    for _ in range(100):
        if {"sync", "archive"} <= control.vitals.tasks.keys():
            break
        await asyncio.sleep(0.1)
    assert health.problems(control.vitals, ["sync", "archive"], time.monotonic()) == []
    reached = control.vitals.tasks["sync"].reached_at_ns
    assert reached is not None
    assert abs(time.time_ns() - reached) < 10 * 10**9
    control.stop.set()
    await asyncio.wait_for(running, 10.0)
    await bus.close()
