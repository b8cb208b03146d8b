"""The job map's shell: a real folder, real unix sockets."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sdfstream.agent.jobmap import folder_io
from sdfstream.agent.jobmap.folder_io import DropFolder, JobFolder
from tests.fixtures.jobs import KERNEL, PAIR, answer, file, pair

KEY = "train-7@h00"


@asynccontextmanager
async def _running(folder: Path, **given: Any) -> AsyncIterator[JobFolder]:
    jobs = JobFolder(folder, {"h00"}, **given)
    task = asyncio.create_task(jobs.run())
    try:
        yield jobs
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _until(true: Callable[[], bool], seconds: float = 10.0) -> float:
    """Wait until `true`; how long it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not true():
        assert loop.time() - began < seconds, "it did not happen"
        await asyncio.sleep(0.005)
    return loop.time() - began


def _put(folder: Path, content: bytes, name: str = f"{KEY}.json") -> None:
    (folder / f".{name}.tmp").write_bytes(content)
    (folder / f".{name}.tmp").rename(folder / name)


@asynccontextmanager
async def _process(path: Path, reply: Callable[[], bytes | None]) -> AsyncIterator[list[bytes]]:
    """A control socket; a reply of None is none."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            asked.append(line)
            answer = reply()
            if answer is not None:
                writer.write(answer + b"\n")
        writer.close()

    server = await asyncio.start_unix_server(serve, str(path))
    try:
        yield asked
    finally:
        server.close()
        os.unlink(path)  # noqa: PTH108


async def test_files_come_change_and_go(tmp_path: Path) -> None:
    changes: list[int] = []
    async with _running(tmp_path / "drop", on_change=lambda: changes.append(1)) as folder:
        await _until((tmp_path / "drop").is_dir)
        _put(tmp_path / "drop", file())
        await _until(lambda: len(folder.jobs.shards) == 1)
        _put(tmp_path / "drop", file(qps=[pair(KERNEL)]))
        await _until(lambda: folder.jobs.shards[0].qps == (KERNEL,))
        (tmp_path / "drop" / f"{KEY}.json").write_bytes(b"{")
        await _until(lambda: folder.jobs.counters.get("refused", "not-json") == 1)
        (tmp_path / "drop" / f"{KEY}.json").unlink()
        await _until(lambda: not folder.jobs.shards)
    assert len(changes) == 3


async def test_a_file_rewritten_at_once_to_the_same_size_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / f"{KEY}.json"
    path.write_bytes(file(name="a"))
    reader = DropFolder(tmp_path)
    assert reader.read()[1]
    path.write_bytes(file(name="b"))
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    files, changed = reader.read()
    assert changed and files[f"{KEY}.json"] == file(name="b")


def test_what_lies_unchanged_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_io, "_FRESH_NS", 0)
    _put(tmp_path, file())
    reader = DropFolder(tmp_path)
    assert reader.read()[1]
    monkeypatch.setattr(folder_io.os, "open", None)
    assert reader.read() == ({f"{KEY}.json": file()}, False)


def test_only_plain_files_of_trusted_owners_are_opened(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(file())
    (tmp_path / "a@h00.json").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "b@h00.json")
    (tmp_path / "c@h00.json").mkdir()
    (tmp_path / "d@h00.json").write_bytes(file())
    (tmp_path / "d@h00.json").chmod(0o666)
    (tmp_path / "e@h00.json").write_bytes(file())
    files, _ = DropFolder(tmp_path).read()
    assert {name[0]: getattr(content, "reason", "") for name, content in files.items() if "@" in name} == {
        "a": "unreadable",
        "b": "not-a-file",
        "c": "not-a-file",
        "d": "owner",
        "e": "",
    }
    files, _ = DropFolder(tmp_path, frozenset({4_000_000})).read()
    assert files["e@h00.json"].reason == "owner"


def test_an_absent_folder_holds_nothing_and_a_file_instead_is_an_error(tmp_path: Path) -> None:
    assert DropFolder(tmp_path / "none").read() == ({}, False)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="Not a directory"):
        DropFolder(tmp_path / "file").read()


async def test_a_folder_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    drop = tmp_path / "drop"
    drop.mkdir()
    _put(drop, file())
    async with _running(drop) as folder:
        await _until(lambda: len(folder.jobs.shards) == 1)
        drop.rename(tmp_path / "aside")
        drop.write_bytes(b"")
        await _until(lambda: folder.jobs.counters.get("folder-failed") > 1)
        assert len(folder.jobs.shards) == 1


async def test_a_process_is_asked_dies_and_comes_back(tmp_path: Path) -> None:
    sock = tmp_path / "s"
    _put(tmp_path, file(control=str(sock)))
    async with _running(tmp_path) as folder:
        await _until(lambda: len(folder.jobs.shards) == 1)
        async with _process(sock, lambda: json.dumps(answer(PAIR)).encode()) as asked:
            await _until(lambda: folder.jobs.shards[0].qps == (PAIR,))
            seen = len(asked)
            folder.ask(KEY)
            await _until(lambda: len(asked) > seen)
            assert set(asked) == {b'{"do":"list"}\n'}
        # its connections outlive a closed server object; a process that is gone closes them
        assert folder.jobs.counters.get("answers") >= 2


async def test_a_connection_that_closes_means_dead(tmp_path: Path) -> None:
    sock, alive = tmp_path / "s", [True]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while alive[0] and await reader.readline() and alive[0]:
            writer.write(json.dumps(answer(PAIR)).encode() + b"\n")
        writer.close()

    server = await asyncio.start_unix_server(serve, str(sock))
    _put(tmp_path, file(control="s"))
    async with _running(tmp_path) as folder:
        await _until(lambda: bool(folder.jobs.shards) and folder.jobs.shards[0].qps == (PAIR,))
        alive[0] = False
        folder.ask(KEY)
        await _until(lambda: folder.jobs.shards[0].qps == ())
        alive[0] = True
        await _until(lambda: folder.jobs.shards[0].qps == (PAIR,))
    server.close()


@pytest.mark.parametrize("reply", [b"no json", b"[1]", b"[" * 100_000, b"x" * (5 << 20)], ids=lambda r: r[:8].decode())
async def test_a_process_that_talks_rubbish_counts_as_dead(tmp_path: Path, reply: bytes) -> None:
    replies = [json.dumps(answer(PAIR)).encode()]
    _put(tmp_path, file(control="s"))
    async with _process(tmp_path / "s", lambda: replies[-1]), _running(tmp_path) as folder:
        await _until(lambda: bool(folder.jobs.shards) and folder.jobs.shards[0].qps == (PAIR,))
        replies.append(reply)
        folder.ask(KEY)
        await _until(lambda: folder.jobs.shards[0].qps == ())
        assert folder.jobs.counters.get("refused", "answer") >= 1


async def test_one_late_answer_is_forgiven_two_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_io, "TIMEOUT_S", 0.1)
    good: list[bytes | None] = [json.dumps(answer(PAIR)).encode(), None]
    replies = [good[0], None, good[0]]
    _put(tmp_path, file(control="s"))
    async with _process(tmp_path / "s", lambda: replies.pop(0) if replies else None), _running(tmp_path) as folder:
        await _until(lambda: folder.jobs.counters.get("late-answers") == 1)
        assert folder.jobs.shards[0].qps == (PAIR,)
        await _until(lambda: folder.jobs.counters.get("late-answers") >= 3)
        await _until(lambda: folder.jobs.shards[0].qps == ())


async def test_asking_ends_with_the_file(tmp_path: Path) -> None:
    _put(tmp_path, file(control="s"))
    async with (
        _process(tmp_path / "s", lambda: json.dumps(answer(PAIR)).encode()) as asked,
        _running(tmp_path) as folder,
    ):
        await _until(lambda: len(asked) > 0)
        (tmp_path / f"{KEY}.json").unlink()
        await _until(lambda: not folder.jobs.shards)
        seen = len(asked)
        await asyncio.sleep(0.2)
        assert len(asked) == seen
