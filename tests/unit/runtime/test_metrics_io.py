"""What a process says of itself: signs of life, their judgement, and both over HTTP."""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from sdfstream import cli, pipeline
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.bus.task import Task, Work
from sdfstream.errors import BusError, ConfigError, FencedError, UnavailableError
from sdfstream.records.checkpoint import Checkpoint
from sdfstream.records.message import Message
from sdfstream.records.position import Partition
from sdfstream.runtime import disk_io
from sdfstream.runtime.control_io import RunControl
from sdfstream.runtime.health import STANDBY_S, problems
from sdfstream.runtime.metrics import MOST_REASONS, ProcessStatus, StatusCollector, families
from sdfstream.runtime.metrics_io import MetricsServer, parse_address, serving
from sdfstream.runtime.stage_io import run_stage
from sdfstream.serve.stages_io import serve
from sdfstream.settings import Settings
from sdfstream.stats import Counters
from tests.bus_samples import clock, finding

NOW_S = 1000.0


def readers(**progress_at_s: float) -> RunControl:
    status = RunControl()
    status.progress_at_s |= progress_at_s
    return status


def test_all_is_well_while_everything_gets_on() -> None:
    assert problems(readers(sync=NOW_S - 1, detect=NOW_S - 29), ["sync", "detect"], NOW_S) == []


def test_what_stopped_is_reported_with_how_far_it_is_behind() -> None:
    status = readers(sync=NOW_S - 40, detect=NOW_S)
    status.lag["sync"] = 7
    assert problems(status, ["sync", "detect"], NOW_S) == ["sync has not moved for 40 s and is 7 messages behind"]
    status.lag["sync"] = 0
    assert problems(status, ["sync", "detect"], NOW_S) == ["sync has not come round for 40 s"]


def test_what_has_not_begun_is_no_health() -> None:
    assert problems(RunControl(), ["sync"], NOW_S) == ["sync has not begun yet"]
    status = readers(sync=NOW_S)
    status.forget("sync")
    assert problems(status, ["sync"], NOW_S) == ["sync has not begun yet"]


def test_a_stage_is_its_units_and_who_has_none_of_them_stands_by() -> None:
    status = RunControl()
    status.progress_at_s |= {"sync-edge/0": NOW_S, "sync-edge/3": NOW_S - 31}
    assert problems(status, ["sync-edge"], NOW_S) == ["sync-edge/3 has not come round for 31 s"]
    standing_by = RunControl()
    standing_by.joined_at_s["sync"] = NOW_S - STANDBY_S + 1
    assert problems(standing_by, ["sync"], NOW_S) == ["sync has not begun yet"]
    assert problems(standing_by, ["sync"], NOW_S + 2) == []


def test_a_bus_that_does_not_answer_is_reported(status: ProcessStatus) -> None:
    status.bus_answered_at_s = time.monotonic() - 31
    assert status.problems(time.monotonic()) == ["the bus has not answered for 31 s"]


class Turning:
    """A task that gives what it is told to give."""

    def __init__(self, *rounds: int | Exception) -> None:
        self.work, self.unit, self.saved = Work("sync", ("t",)), 0, Checkpoint()
        self._rounds = list(rounds)
        self._lag = 0

    async def read(self, max_messages: int = 1000, timeout_s: float = 0.1, **_: object) -> list[Message]:
        await asyncio.sleep(0.02)
        now = self._rounds.pop(0) if self._rounds else 0
        if isinstance(now, Exception):
            raise now
        self._lag = now
        return []

    def lag(self) -> int:
        return self._lag

    def positions(self) -> dict[Partition, int]:
        return {}

    def known_until_ns(self) -> int | None:
        return None


@pytest.mark.parametrize(
    ("rounds", "moved"),
    [((0, 0, 0), True), ((0, 5, 5, 5, 5), False)],
)
async def test_a_loop_that_turns_and_gets_nothing_of_what_there_is_does_not_get_on(
    rounds: tuple[int, ...], moved: bool
) -> None:
    control = RunControl()
    maker = pipeline.makers(Settings())[0]
    running = asyncio.create_task(
        run_stage(maker, cast(Task, Turning(*rounds, *[rounds[-1]] * 100)), time.time_ns, control, None)
    )
    await asyncio.sleep(0.05)
    first_s = control.progress_at_s["sync"]
    await asyncio.sleep(0.2)
    assert (control.progress_at_s["sync"] - first_s > 0.1) == moved
    assert control.lag["sync"] == rounds[-1]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "sync" not in control.progress_at_s


@pytest.mark.parametrize(("error", "keeps_age"), [(BusError("connection lost"), True), (FencedError("zombie"), False)])
async def test_a_unit_that_fails_keeps_its_age_and_one_that_is_anothers_is_forgotten(
    error: BusError, keeps_age: bool
) -> None:
    control = RunControl()
    maker = pipeline.makers(Settings())[0]
    with pytest.raises(BusError):
        await run_stage(maker, cast(Task, Turning(0, error)), time.time_ns, control, None)
    assert ("sync" in control.progress_at_s) == keeps_age


class Counting:
    """Something that counts."""

    def __init__(self, name: str) -> None:
        self.counters = Counters(name)


@pytest.fixture
def status() -> ProcessStatus:
    return ProcessStatus(readers(sync=time.monotonic()), ["sync"], [Counting("sync"), Counting("bus")])


@pytest.fixture
def url(status: ProcessStatus) -> Iterator[str]:
    server = MetricsServer.start("127.0.0.1:0", status)
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


def test_metrics_are_what_prometheus_reads(status: ProcessStatus, url: str) -> None:
    status.counted[0].counters.add("refused", "mixed-clocks", 3)
    status.gauges = {"spill_bytes": lambda: 12.0, "unknown_now": lambda: None}
    now_s, now_ns = time.monotonic(), time.time_ns()
    status.readers.progress_at_s["sync"], status.readers.lag["sync"] = now_s - 2, 5
    status.readers.reached_at_ns["sync"] = now_ns - 3 * 10**9
    status.readers.oldest_at_ns["archive"] = now_ns - 10**9
    found = samples(url)
    assert found["sdfstream_sync_refused_total", "mixed-clocks"] == 3
    assert found["sdfstream_task_lag_messages", "sync"] == 5
    assert found["sdfstream_task_progress_age_seconds", "sync"] == pytest.approx(2, abs=1.5)
    assert found["sdfstream_task_bus_time_age_seconds", "sync"] == pytest.approx(3, abs=1.5)
    assert ("sdfstream_task_bus_time_age_seconds", "archive") not in found
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


@how(deadline=None)
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


def test_health_is_200_or_503_with_a_sentence(status: ProcessStatus, url: str) -> None:
    assert get(f"{url}/health") == "well\n"
    status.readers.progress_at_s["sync"] = time.monotonic() - 60
    assert asked(f"{url}/health") == (503, "sync has not come round for 60 s\n")
    assert asked(f"{url}/")[0] == 404


def test_the_verb_judges(status: ProcessStatus, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["health", url]) == 0
    assert cli.main(["health", f"{url}/health"]) == 0
    status.readers.progress_at_s["sync"] = time.monotonic() - 60
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


def test_an_address_that_is_taken_is_said(url: str, status: ProcessStatus) -> None:
    with pytest.raises(UnavailableError, match="cannot be served"):
        MetricsServer.start(url.removeprefix("http://"), status)


async def test_the_bus_is_asked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdfstream.runtime.metrics_io._POLL_S", 0.01)
    answers = iter([BusError("away"), None, None])
    asked = asyncio.Event()

    async def ask() -> None:
        answer = next(answers, None)
        if answer is not None:
            raise answer
        asked.set()

    status = ProcessStatus(readers(sync=time.monotonic()))
    async with serving("127.0.0.1:0", status, ask):
        began_s = status.bus_answered_at_s
        await asyncio.wait_for(asked.wait(), 5.0)
        await asyncio.sleep(0.05)
        assert began_s is not None
        assert status.bus_answered_at_s is not None
        assert status.bus_answered_at_s > began_s
    async with serving(None, status, ask):
        pass


async def test_stages_report_their_status_while_they_run(tmp_path: Path) -> None:
    bus, control = MemoryBus(time.time_ns), RunControl(drain=False)
    chosen = Settings(data=tmp_path)
    running = asyncio.create_task(serve(bus, chosen, ["sync", "archive"], control, bus_id="b"))
    await asyncio.sleep(0.3)
    await bus.publish([clock(1), finding(1)])
    for _ in range(100):
        if {"sync", "archive"} <= control.progress_at_s.keys() and "sync" in control.reached_at_ns:
            break
        await asyncio.sleep(0.1)
    assert problems(control, ["sync", "archive"], time.monotonic()) == []
    assert abs(time.time_ns() - control.reached_at_ns["sync"]) < 10 * 10**9
    control.stop.set()
    await asyncio.wait_for(running, 10.0)
    await bus.close()


def test_code_that_raised_is_told_behind_well(status: ProcessStatus, url: str) -> None:
    counters = Counters("detect")
    counters.add("set-aside", "OverflowError", 3)
    counters.add("begun-anew")
    status.counted = [SimpleNamespace(counters=counters)]
    assert get(f"{url}/health") == "well; detect.begun-anew 1; detect.set-aside.OverflowError 3\n"


def test_sums_of_what_was_refused_and_lost_are_there_from_the_start(tmp_path: Path) -> None:
    bus, detect = Counters("bus"), Counters("detect")
    counted = [SimpleNamespace(counters=bus), SimpleNamespace(counters=detect)]
    status = ProcessStatus(readers(), counted=counted, gauges=disk_io.gauges(tmp_path), troubles=lambda: ["a disk"])

    def said() -> dict[str, float]:
        collector = StatusCollector(status, lambda: NOW_S, lambda: 0)
        return {s.name: s.value for family in collector.collect() for s in family.samples if not s.labels}

    first = said()
    assert (first["sdfstream_refused_total"], first["sdfstream_lost_total"], first["sdfstream_troubles"]) == (0, 0, 1)
    assert 0 < first["sdfstream_data_disk_free_bytes"] <= first["sdfstream_data_disk_size_bytes"]
    bus.add("refused", "schema", 2)
    detect.add("set-aside", "KeyError")
    detect.add("shed", "open", 4)
    bus.add("lost", "t", 5)
    bus.add("published", "t", 99)
    assert (said()["sdfstream_refused_total"], said()["sdfstream_lost_total"]) == (3, 9)
    status.gauges = disk_io.gauges(tmp_path / "gone")
    assert "sdfstream_data_disk_free_bytes" not in said(), "not known is not nought"
