"""The pages' files, and the agent's task that fills them: rows in from the bus, pages out into shared memory."""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from sdfstream.agent.clockpage.maker import PageMaker, ReadingAt
from sdfstream.agent.downlink import Downlink
from sdfstream.clock import folder_io
from sdfstream.clock import page as pages
from sdfstream.clock.page import Page
from sdfstream.errors import BusError, FormatError, UnavailableError
from sdfstream.runtime.raised import is_of_message

_log = logging.getLogger("sdfstream.clock")

_READ_S: Final = 0.1
_PAUSE_S: Final = 1.0
_GOOD_WIDTH_NS: Final = 400
_TRIES: Final = 5


class PageFile:
    """One page's file: renamed into place whole, then changed in place, removed by `close`."""

    def __init__(self, folder: Path, page: Page) -> None:
        self.path = folder / folder_io.file_name(page.clock)
        self._sequence = 2
        draft = folder / f".{self.path.name[:200]}.{os.getpid()}"
        try:
            with draft.open("wb+") as file:
                file.write(pages.encode(page, self._sequence))
                file.flush()
                os.fchmod(file.fileno(), 0o644)
                self._map = mmap.mmap(file.fileno(), pages.SIZE)
                self._inode = os.fstat(file.fileno()).st_ino
            draft.replace(self.path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def write(self, page: Page) -> None:
        """Change the page."""
        for at, piece in pages.updates(pages.encode(page, 0), self._sequence):
            self._map[at : at + len(piece)] = piece
        self._sequence += 2

    def close(self) -> None:
        """Remove the file, unless another agent has replaced it."""
        self._map.close()
        try:
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        except OSError:
            pass


class PageWriter:
    """Writes the pages of some clocks of this machine.

    Parameters
    ----------
    clocks : mapping of clock id to callable or None
        As for `PageMaker`.
    folder : Path or None
        None: the first of `folder_io.writable_folders` that can be written to.
    run : str
        Names this run of the agent.

    Raises
    ------
    UnavailableError
        No folder can be written to.

    Notes
    -----
    Counters: those of `PageMaker`, ``written``, and ``failed`` (reason).
    """

    def __init__(self, clocks: Mapping[str, ReadingAt | None], folder: Path | None, run: str) -> None:
        self.maker = PageMaker(clocks, folder_io.boot_id(), run.encode()[:16].ljust(16, b"\0"))
        self.counters = self.maker.counters
        self.folder = _usable([folder] if folder is not None else folder_io.writable_folders())
        self._files: dict[str, PageFile] = {}
        self._logged: set[str] = set()

    def take(self, rows: pa.RecordBatch) -> None:
        """Write the pages of these rows."""
        for page in self.maker.pages(rows):
            try:
                file = self._files.get(page.clock)
                if file is None:
                    self._files[page.clock] = PageFile(self.folder, page)
                else:
                    file.write(page)
            except FormatError as error:
                self._failed(page.clock, error.reason, error)
            except OSError as error:
                self._failed(page.clock, "file", error)
                self.counters.troubles.begin("pages", f"{self.folder} takes none: {error.strerror or error}")
            else:
                self.counters.troubles.end("pages")
                self.counters.add("written")

    def read_clocks(self) -> None:
        """Read the machine's clocks."""
        self.maker.take_pair(*read_pair())

    async def run(self, downlink: Downlink) -> None:
        """Read rows from the bus and write their pages, for ever."""
        while True:
            try:
                messages = await downlink.read(_READ_S)
            except BusError as error:  # pages grow old meanwhile, as they are meant to
                self._failed("bus", "bus", error)
                await asyncio.sleep(_PAUSE_S)
                continue
            self.read_clocks()
            for message in messages:
                if isinstance(message.body, pa.RecordBatch):
                    try:
                        self.take(message.body)
                    except Exception as error:  # pages grow old meanwhile, as they are meant to
                        if not is_of_message(error):
                            raise
                        self.counters.add("set-aside", type(error).__name__)
                    await asyncio.sleep(0)  # probing goes first

    def close(self) -> None:
        """Remove the pages."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _failed(self, what: str, reason: str, error: Exception) -> None:
        self.counters.add("failed", reason)
        if what not in self._logged:
            self._logged.add(what)
            _log.warning("clock page of %s: %s; from now on this is only counted", what, error)


def read_pair() -> tuple[int, int, int]:
    """(CLOCK_REALTIME, CLOCK_MONOTONIC_RAW, ns within which both were read): the closest of a few tries."""
    best = (0, 0, 1 << 62)
    for _ in range(_TRIES):
        before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        system_ns = time.time_ns()
        after_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        if after_ns - before_ns < best[2]:
            best = system_ns, (before_ns + after_ns) // 2, after_ns - before_ns
        if best[2] <= _GOOD_WIDTH_NS:
            break
    return best


def _usable(folders: list[Path]) -> Path:
    """The first of `folders` that belongs to us or root and can be written to; made where missing."""
    why = []
    for folder in folders:
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            found = folder.stat()
        except OSError as error:
            why.append(f"{folder}: {error.strerror}")
            continue
        if found.st_uid not in (0, os.geteuid()) or not os.access(folder, os.W_OK | os.X_OK):
            why.append(f"{folder}: not ours")
        else:
            return folder
    raise UnavailableError(f"no folder for clock pages: {'; '.join(why)}")
