"""The agent's side: rows over a link into files, folders that cannot be used, and the verbs that read them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from sdfstream import cli
from sdfstream.agent.clockpage.task_io import clock_pages
from sdfstream.agent.clockpage.writer_io import PageFile, PageWriter
from sdfstream.bus.link.server_io import LinkServer
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.clock import ClockReader, clocks, folder_io
from sdfstream.errors import BusError, UnavailableError
from sdfstream.lab.wrong_clocks import true_offsets, wrong_clocks
from sdfstream.probes.config import AgentConfig, HostConfig, VirtualClock
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.message import Message, Output
from sdfstream.records.topics import CLOCK
from sdfstream.score.clock_errors import TrueClocks
from tests.fixtures.clock_pages import rows
from tests.unit.clock.test_reader_io import live

CONFIG = AgentConfig(hosts=(HostConfig("h00", ()), HostConfig("h01", (), virtual_clock=VirtualClock(offset_ns=5e6))))


def batch(*names: str) -> Output:
    at_ns = time.time_ns() - 50_000_000
    shown = [
        {"clock": n, "at_ns": at_ns + (n == "h01") * 5_000_000, "offset_ns": float(i)} for i, n in enumerate(names)
    ]
    return Output(CLOCK.name, "mesh", rows(shown))


async def test_rows_over_a_link_become_pages_that_go_with_the_agent(tmp_path: Path) -> None:
    config = AgentConfig(hosts=CONFIG.hosts, clock_pages=str(tmp_path / "pages"))
    bus = MemoryBus(time.time_ns, boot_id="bus")
    server = LinkServer(bus, tmp_path / "link")
    await server.start()
    try:
        async with clock_pages(config, [f"link:{tmp_path / 'link'}"], [object()], "run-1") as counters:
            for _ in range(60):
                await bus.publish([batch("h00", "h01", "h02")])
                await asyncio.sleep(0.1)
                if len(clocks(tmp_path / "pages")) == 2 and counters()["clock-page.written"] >= 4:
                    break
            found = {name: ClockReader(name, tmp_path / "pages").page for name in clocks(tmp_path / "pages")}
            assert list(found) == ["h00", "h01"]
            assert found["h00"].realtime and not found["h01"].realtime
            assert found["h01"].offset_ns == 1 and found["h01"].reference == "h00"
            assert found["h00"].writer.startswith(b"run-1") and found["h00"].boot == folder_io.boot_id()
            assert abs(found["h01"].raw_ns - found["h00"].raw_ns) < 1_000_000
        assert not clocks(tmp_path / "pages")
    finally:
        await server.close()
        await bus.close()


async def test_rows_of_a_bus_client_become_pages(tmp_path: Path) -> None:
    """As on Kafka: the agent's own client is read as a group of its own."""
    config = AgentConfig(hosts=CONFIG.hosts[:1], clock_pages=str(tmp_path))
    bus = MemoryBus(time.time_ns, boot_id="bus")
    async with clock_pages(config, ["kafka://broker:9092"], [bus], "run-1"):
        for _ in range(60):
            await bus.publish([batch("h00", "h02")])
            await asyncio.sleep(0.1)
            if clocks(tmp_path):
                break
        assert list(clocks(tmp_path)) == ["h00"]
    await bus.close()


def test_wrong_clocks_are_a_lab_s_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "--wrong-clocks", "1"]) == 2
    assert "--wrong-clocks needs --lab" in capsys.readouterr().err


def test_the_truth_of_wrong_clocks_is_what_their_agents_read() -> None:
    made = wrong_clocks(["h00", "h01", "h02"], 5, 1_000_000_000)
    truth = TrueClocks(true_offsets(made, 1_000_000_000, 4_000_000_000))
    at = np.arange(1_050_000_000, 3_950_000_000, 33_333_333, dtype=np.int64)
    for name, wrong in made.items():
        assert np.abs(Clock(wrong).reading(at) - at - truth.offset_ns(name, at)).max() <= 2.0


async def test_an_agent_that_only_records_or_may_not_writes_none(tmp_path: Path) -> None:
    async with clock_pages(CONFIG, [str(tmp_path)], [object()], "r") as counters:
        assert counters() == {}
    off = AgentConfig(hosts=CONFIG.hosts, clock_pages="off")
    async with clock_pages(off, ["link:/nowhere"], [object()], "r") as counters:
        assert counters() == {}


async def test_no_folder_is_logged_and_probing_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    config = AgentConfig(hosts=CONFIG.hosts, clock_pages=str(tmp_path / "file" / "pages"))
    async with clock_pages(config, [f"link:{tmp_path / 'link'}"], [object()], "r") as counters:
        assert counters() == {}
    assert "no clock pages: no folder" in caplog.text


def test_the_first_usual_folder_that_can_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    folders = [tmp_path / "file" / "a", tmp_path / "b" / "c"]
    monkeypatch.setattr(folder_io, "writable_folders", lambda: folders)
    assert PageWriter({"h00": None}, None, "r").folder == folders[1]
    monkeypatch.setattr(folder_io, "writable_folders", lambda: folders[:1])
    with pytest.raises(UnavailableError, match="no folder for clock pages"):
        PageWriter({"h00": None}, None, "r")


@dataclass
class Flaky:
    """A downlink that fails, then gives a message of another kind, then rows."""

    left: list[Sequence[Output] | None] = field(default_factory=list)

    async def read(self, timeout_s: float) -> list[Message]:
        await asyncio.sleep(0.01)
        if not self.left:
            return []
        given = self.left.pop(0)
        if given is None:
            raise BusError("away")
        return [Message(o.topic, o.key, o.body, 0, 0) for o in given]


async def test_a_bus_that_fails_is_counted_and_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdfstream.agent.clockpage.writer_io._PAUSE_S", 0.01)
    writer = PageWriter({"h00": None}, tmp_path, "r")
    flaky = Flaky([None, None])
    work = asyncio.create_task(writer.run(flaky))
    await asyncio.sleep(0.5)
    flaky.left.append([batch("h00")])
    await asyncio.sleep(0.2)
    work.cancel()
    assert writer.counters.get("failed", "bus") == 2 and writer.counters.get("written") == 1
    writer.close()
    assert not clocks(tmp_path)


def test_a_name_that_is_too_long_is_counted(tmp_path: Path) -> None:
    name = "x" * 200
    writer = PageWriter({name: None, "h00": None}, tmp_path, "r")
    for _ in range(4):
        writer.read_clocks()
        time.sleep(0.09)
    output = batch("h00", name)
    assert not isinstance(output.body, type(None))
    writer.take(output.body)  # type: ignore[arg-type]
    assert writer.counters.get("failed", "name") == 1 and list(clocks(tmp_path)) == ["h00"]
    writer.close()


def test_the_verbs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh_ns = 60_000_000_000  # however long the machine takes to get there
    pages = live("h00", reference="h00", fresh_ns=fresh_ns), live("h01", status="unsynced")
    files = [PageFile(tmp_path, page) for page in pages]
    there = ["--page-dir", str(tmp_path)]
    assert cli.main(["clock", "now", "--clock", "h00", *there, "--json"]) == 0
    out, _ = capsys.readouterr()
    answer = json.loads(out.splitlines()[-1])
    assert set(answer) == {
        "clock", "corrected_ns", "earliest_ns", "latest_ns", "err_ns", "status", "age_ms", "reference"
    }  # fmt: skip
    assert answer["earliest_ns"] <= answer["corrected_ns"] <= answer["latest_ns"] and answer["status"] == "synced"
    assert cli.main(["clock", "now", "--clock", "h00", *there]) == 0
    assert "synced, h00 against h00" in capsys.readouterr().out
    assert cli.main(["clock", "now", "--clock", "h01", *there]) == 2
    assert "not synchronised" in capsys.readouterr().err
    assert cli.main(["clock", "now", *there]) == 2
    assert "name one (which-clock, h00, h01)" in capsys.readouterr().err
    assert cli.main(["clock", "list", *there, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out.splitlines()[-1])["clocks"]
    assert [(c["clock"], c["status"]) for c in listed] == [("h00", "synced"), ("h01", "unsynced")]
    watch = ["clock", "watch", "--clock", "h00", *there, "--seconds", "0.3", "--interval", "0.1"]
    assert cli.main([*watch, "--json"]) == 0
    seen = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 2 <= seen["n"] <= 4 and seen["by_status"] == {"synced": seen["n"]} and seen["last"]["clock"] == "h00"
    assert cli.main(watch) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 2
    for file in files:
        file.close()
    assert cli.main(["clock", "list", *there]) == 2
    assert "no agent writes" in capsys.readouterr().err
