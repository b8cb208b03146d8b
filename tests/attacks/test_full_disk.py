"""Row 12: a full disk, a dead and a starved helper thread are told by `status`, by ``/health`` and by a finding."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from sdfstream.archive.disk_io import RealDisk
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.failures import EngineError
from sdfstream.archive.work_io import ArchiveWork
from sdfstream.bus import Subscription
from sdfstream.cli import main
from sdfstream.errors import ArchiveError
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import FINDING
from sdfstream.serve.service_io import Service, service
from sdfstream.settings import Settings
from tests.fixtures import board_messages as bm

pytestmark = [pytest.mark.real, pytest.mark.timeout(100)]
LONG_S = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = await asyncio.to_thread(main, list(words))
    out, err = capsys.readouterr()
    return code, out + err


async def told(found: Subscription, status: str, within_s: float = LONG_S) -> dict[str, Any]:
    """The next finding about a process of this status."""
    async with asyncio.timeout(within_s):
        while True:
            for message in await found.read(timeout_s=0.5):
                assert isinstance(message.body, Event)
                data = message.body.data
                if data["kind"] == "pipeline-degraded" and data["status"] == status:
                    return dict(data)


async def feed(running: Service) -> None:
    """Rows for the archive, now and then."""
    while True:
        outputs = [Output(m.topic, m.key, m.body) for m in bm.small_fabric(time.time_ns()) if m.topic != FINDING.name]
        await running.bus.publish(outputs)
        await asyncio.sleep(0.2)


def no_space(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def engine_full(*_: Any, **__: Any) -> None:
    raise EngineError("Cannot reserve 6.48 MiB, not enough space. (NOT_ENOUGH_SPACE)", 243)


@pytest.mark.usefixtures("archive_folder")
async def test_a_full_disk_below_the_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"127.0.0.1:{free_port()}"
    data = ("--data", str(tmp_path))
    async with service(Settings(data=tmp_path), metrics=url) as running:
        found = await running.bus.subscribe("test", [FINDING.name])
        feeding = asyncio.create_task(feed(running))
        code, said = await call(capsys, "status", *data)
        assert code == 0 and "degraded" not in said
        with monkeypatch.context() as full:
            full.setattr(Engine, "insert", engine_full)
            full.setattr(RealDisk, "write", no_space)
            opened = await told(found, "open")
            assert opened["class"] == "telemetry" and opened["subject"]["type"] == "process"
            assert "archive.engine" in opened["subject"]["id"] and "not enough space" in opened["detail"]
            code, said = await call(capsys, "status", *data)
            assert "degraded   archive.engine: nothing can be inserted, rows wait: Cannot reserve" in said
            assert "nothing refused" not in said
            assert "what is read is not all written" in said
            _, shown = await call(capsys, "status", *data, "--json")
            troubles = json.loads(shown.splitlines()[0])["run"]["troubles"]
            assert troubles[0]["what"] == "archive.engine" and troubles[0]["since_at_ns"] <= time.time_ns()
            code, said = await call(capsys, "health", f"http://{url}")
            assert code == 1 and "archive.engine" in said
        resolved = await told(found, "resolved")
        assert resolved["id"] == opened["id"]
        code, said = await call(capsys, "status", *data)
        assert "degraded" not in said
        feeding.cancel()


async def test_a_full_disk_below_a_recording_does_not_end_the_pipeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    async with service(Settings(data=data), record=tmp_path / "recording") as running:
        found = await running.bus.subscribe("test", [FINDING.name])
        monkeypatch.setattr("sdfstream.bus.recording.writer_io._TopicWriter.write", no_space)
        feeding = asyncio.create_task(feed(running))
        opened = await told(found, "open")
        assert "recording.disk" in opened["subject"]["id"]
        _, said = await call(capsys, "status", "--data", str(data))
        assert "degraded   recording.disk" in said and "recording.lost" in said
        assert "No space left on device" in said
        feeding.cancel()


@pytest.mark.usefixtures("archive_folder")
async def test_a_dead_worker_of_the_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: Any, **__: Any) -> None:
        raise RuntimeError("defect")

    monkeypatch.setattr(ArchiveWork, "run", die)
    url = f"127.0.0.1:{free_port()}"
    finding, status, health = "", "", 0
    with pytest.raises(ArchiveError, match="worker died"):  # at the end of the block, whatever happened in it
        async with service(Settings(data=tmp_path), metrics=url) as running:
            async with asyncio.timeout(LONG_S):
                while not running.board.findings(open_only=True):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            finding = running.board.findings()[0]["detail"]
            _, status = await call(capsys, "status", "--data", str(tmp_path))
            health, _ = await call(capsys, "health", f"http://{url}")
    assert "thread archive ended by a defect" in finding
    assert "degraded   archive.thread archive: the thread archive ended by a defect: RuntimeError: defect" in status
    assert health == 1


@pytest.mark.usefixtures("archive_folder")
async def test_a_starved_worker_of_the_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    hangs = threading.Event()
    insert = Engine.insert

    def wait(*args: Any, **kwargs: Any) -> None:
        hangs.wait(LONG_S)
        insert(*args, **kwargs)

    async with service(Settings(data=tmp_path)) as running:
        found = await running.bus.subscribe("test", [FINDING.name])
        for one in running.counted:
            for helper in one.counters.troubles.helpers.values():
                helper.limit_s = 2.0
        monkeypatch.setattr(Engine, "insert", wait)
        feeding = asyncio.create_task(feed(running))
        assert "made no progress" in (await told(found, "open"))["detail"]
        _, said = await call(capsys, "status", "--data", str(tmp_path))
        assert "degraded   archive.thread archive" in said
        hangs.set()
        monkeypatch.undo()
        await told(found, "resolved")
        feeding.cancel()
