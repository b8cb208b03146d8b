"""The drop directory and the control sockets, read for the job map.

The folder is scanned every 50 ms: one ``stat`` a file, and the content only of changed files. Scanning takes a
twentieth of the time at most: with many files or a slow disk it comes less often. Every shard with a control socket has
one connection that asks ``list`` twice a second, and at once after `JobFolder.ask`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.agent.jobmap.drop_file import MOST_BYTES, Unreadable
from sdfstream.agent.jobmap.jobmap import JobMap
from sdfstream.errors import FormatError

_log = logging.getLogger("sdfstream.jobs")

SCAN_S: Final = 0.05
LIST_S: Final = 0.5
TIMEOUT_S: Final = 1.0
"""Limit of an answer; after two late ones in a row the process counts as silent."""
_SCAN_SHARE: Final = 20
_RETRY_S: Final = 0.2
"""Between two attempts to reach a process: it may just have been started."""
_FRESH_NS: Final = 50_000_000
"""A file this young may change again within the resolution of its time stamp: it is read once more."""
_MOST_FILES: Final = 4096
_MOST_ANSWER: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class _FileSeen:
    signature: tuple[int, ...]
    content: bytes | Unreadable


@dataclass(slots=True)
class DropFolder:
    """Reads a folder's files, each again only when it changed. Only plain files of trusted owners are opened."""

    folder: Path
    trusted: frozenset[int] = field(default_factory=lambda: frozenset({0, os.geteuid()}))
    """User ids whose files are read."""
    _seen: dict[str, _FileSeen] = field(default_factory=dict)

    def read(self) -> tuple[dict[str, bytes | Unreadable], bool]:
        """Content of every file, and whether anything differs from the last call (OSError: the folder cannot be read).

        A folder that does not exist holds no files.
        """
        try:
            with os.scandir(self.folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)[:_MOST_FILES]
        except FileNotFoundError:
            found = []
        seen, changed = {}, False
        for entry in found:
            name = entry.name
            was = self._seen.get(name)
            new = self._read_one(entry, was)
            if new is not None:
                seen[name] = new
                changed |= was is None or new.content != was.content
        changed |= seen.keys() != self._seen.keys()
        self._seen = seen
        return {name: each.content for name, each in seen.items()}, changed

    def _read_one(self, entry: os.DirEntry[str], was: _FileSeen | None) -> _FileSeen | None:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:  # gone since the folder was listed
            return None
        signature = (
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_uid,
            status.st_mode,
        )
        if was is not None and was.signature == signature:
            return was
        content = self._content(entry.path)
        fresh = time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < _FRESH_NS
        return None if content is None else _FileSeen(() if fresh else signature, content)

    def _content(self, path: str) -> bytes | Unreadable | None:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:  # a link, a socket, or not for us
            return Unreadable("unreadable", error.strerror or str(error))
        try:
            return _plain(handle, self.trusted)
        except OSError as error:
            return Unreadable("unreadable", error.strerror or str(error))
        finally:
            os.close(handle)


def _plain(handle: int, trusted: frozenset[int]) -> bytes | Unreadable:
    """Content of an open file, if it is a plain one of a trusted owner."""
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        return Unreadable("not-a-file", "only plain files are read")
    if status.st_uid not in trusted:
        return Unreadable("owner", f"belongs to user {status.st_uid}, who is not trusted to name jobs")
    if status.st_mode & stat.S_IWOTH:
        return Unreadable("owner", "everybody may write it")
    content = bytearray()
    while len(content) <= MOST_BYTES and (piece := os.read(handle, MOST_BYTES + 1 - len(content))):
        content += piece
    return bytes(content)


class JobFolder:
    """Keeps a `JobMap` in step with a drop directory and the processes that its files name.

    Parameters
    ----------
    folder : Path
        The drop directory, on a local disk; it is made if it can be.
    hosts : collection of str
        Hosts that this agent process serves.
    boot_id : str
        The agent's run.
    on_change : callable, optional
        Called on the event loop after the map's `version` grew.
    trusted : collection of int
        User ids, besides root and our own, whose files are read.
    """

    def __init__(
        self,
        folder: Path,
        hosts: Collection[str],
        *,
        boot_id: str = "",
        on_change: Callable[[], None] | None = None,
        trusted: Collection[int] = (),
    ) -> None:
        self.jobs = JobMap(hosts, boot_id, str(folder.absolute()))
        self._folder = DropFolder(folder, frozenset({0, os.geteuid(), *trusted}))
        self._on_change = on_change
        self._version = 0
        self._pollers: dict[tuple[str, str], tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._failing = ""

    async def run(self) -> None:
        """Scan the folder and poll the sockets until cancelled."""
        with suppress(OSError):
            self._folder.folder.mkdir(parents=True, exist_ok=True)
        try:
            while True:
                began_s = time.perf_counter()
                self._scan()
                took_s = time.perf_counter() - began_s
                await asyncio.sleep(max(SCAN_S, took_s * _SCAN_SHARE))
        finally:
            tasks = [task for task, _ in self._pollers.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._pollers.clear()

    def ask(self, job_host: str) -> None:
        """Ask the process of shard `job_host` for its queue pairs now, not only at the next poll."""
        for (key, _), (_, wake) in self._pollers.items():
            if key == job_host:
                wake.set()

    def _scan(self) -> None:
        try:
            files, changed = self._folder.read()
        except OSError as error:
            self._fail(str(error))
            return
        self._failing = ""
        if changed:
            self.jobs.take_files(files, time.monotonic_ns())
            self._update_pollers()
        self.jobs.tick(time.monotonic_ns())
        self._announce()

    def _fail(self, why: str) -> None:
        """The folder cannot be read: shards stay as they are; each cause is logged once."""
        self.jobs.counters.add("folder-failed")
        if why != self._failing:
            self._failing = why
            _log.warning("the drop directory cannot be read: %s", why)

    def _update_pollers(self) -> None:
        """One polling task for every shard with a control socket."""
        wanted = set(self.jobs.sockets.items())
        for gone in self._pollers.keys() - wanted:
            self._pollers.pop(gone)[0].cancel()
        for key, path in wanted - self._pollers.keys():
            wake = asyncio.Event()
            task = asyncio.get_running_loop().create_task(self._poll(key, path, wake), name=f"list {key}")
            self._pollers[key, path] = task, wake

    async def _poll(self, key: str, path: str, wake: asyncio.Event) -> None:
        late = 0
        while True:
            writer: asyncio.StreamWriter | None = None
            try:
                reader, writer = await _connect(path)
                while True:
                    answer = await _list(reader, writer)
                    late = 0
                    self._take_answer(key, answer)
                    await _sleep(wake, LIST_S)
            except TimeoutError:
                self.jobs.counters.add("late-answers")
                late += 1
                if late >= 2:
                    self._take_answer(key, None)
            except FormatError as error:
                self.jobs.counters.add("refused", error.reason)
                self._take_answer(key, None)
            except (OSError, EOFError):
                self._take_answer(key, None)
            finally:
                if writer is not None:
                    writer.close()
            await _sleep(wake, _RETRY_S)

    def _take_answer(self, key: str, answer: Any) -> None:
        self.jobs.take_answer(key, answer, time.monotonic_ns())
        self._announce()

    def _announce(self) -> None:
        for note in self.jobs.notes():
            _log.warning("%s", note)
        if self.jobs.version != self._version:
            self._version = self.jobs.version
            if self._on_change is not None:
                self._on_change()


async def _connect(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(TIMEOUT_S):
        return await asyncio.open_unix_connection(path, limit=_MOST_ANSWER)


async def _list(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any]:
    """Ask once (TimeoutError; OSError or EOFError: dead; FormatError: not an answer to ``list``)."""
    async with asyncio.timeout(TIMEOUT_S):
        writer.write(b'{"do":"list"}\n')
        await writer.drain()
        try:
            answer = strict_json.loads(await reader.readuntil(b"\n"), most_bytes=_MOST_ANSWER)
        except (FormatError, asyncio.LimitOverrunError) as error:
            raise FormatError("answer", str(error)[:200]) from error
    if not isinstance(answer, dict):
        raise FormatError("answer", "is no JSON object")
    return answer


async def _sleep(wake: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(wake.wait(), seconds)
    wake.clear()
