"""The reader for applications: a mapped page, two clock readings, a few multiplications."""

from __future__ import annotations

import mmap
import os
import sys
import time
from pathlib import Path
from typing import Final

from sdfstream.clock import folder_io
from sdfstream.clock import page as pages
from sdfstream.clock.reading import ClockError, Now, PreparedPage, evaluate, prepare
from sdfstream.errors import FormatError

_RAW: Final = time.CLOCK_MONOTONIC_RAW
_raw_ns = time.clock_gettime_ns
_realtime_ns = time.time_ns
_TRIES: Final = 64
_CLOSE_NS: Final = 2_000
"""Two readings this close together are one instant."""
_REOPEN_NS: Final = 200_000_000
"""Pause between two checks whether a stale page's file was replaced."""
_RETRY_S: Final = 62.5e-6


class ClockReader:
    """Reads one clock's page; keep it open.

    Parameters
    ----------
    clock : str, optional
        Clock id, by default the one clock that has a page (of several the one that CLOCK_REALTIME is).
    page_dir : path, optional
        Folder of the pages; by default where agents of this machine put them.

    Raises
    ------
    ClockError
        ``no-page``, ``which-clock``, ``unreadable`` or ``torn``.

    Notes
    -----
    A restarted agent makes a new file; a reader that finds its page stale looks for that by itself. Threads may share
    a reader. Nothing is ever written: the machine's clock stays as it is.
    """

    def __init__(self, clock: str | None = None, page_dir: str | os.PathLike[str] | None = None) -> None:
        if sys.byteorder != "little":
            raise ClockError("unreadable", "pages are little-endian")
        self.path = _find(clock, page_dir)
        self._boot = folder_io.boot_id()
        self._reopened_at_ns = 0
        self._inode = -1
        self._torn = -1
        self._words: memoryview
        self._map: mmap.mmap
        self._prepared: PreparedPage
        self._open()

    @property
    def page(self) -> pages.Page:
        """The current page; raises ClockError as `now` does when it cannot be read."""
        if self._words[pages.SEQUENCE_WORD] != self._prepared.sequence:
            self._load()
        return self._prepared.page

    def now(self) -> Now:
        """Corrected time now.

        Raises
        ------
        ClockError
            There is no honest answer; `reading` lists the reasons.
        """
        h = self._prepared
        if self._words[1] != h.sequence:
            h = self._load()
        raw_ns = _raw_ns(_RAW)
        try:
            found = evaluate(h, _realtime_ns(), raw_ns, self._boot)
        except ClockError as error:
            return self._check_refusal(error)
        if found[3] == "stale":
            return self._check_stale(found)
        return found

    def at(self, realtime_ns: int) -> Now:
        """Corrected time of an instant at which CLOCK_REALTIME read so: of a time stamp taken up to a second ago.

        Raises
        ------
        ClockError
            As `now`; a stamp much older than the page's estimate counts as of another boot.
        """
        h = self._prepared
        if self._words[1] != h.sequence:
            h = self._load()
        now_ns, raw_ns, width_ns = self._read_pair()
        apart_ns = (width_ns + 1) // 2
        found = evaluate(h, realtime_ns, raw_ns - (now_ns - realtime_ns), self._boot)
        return found._replace(earliest_ns=found.earliest_ns - apart_ns, latest_ns=found.latest_ns + apart_ns)

    def close(self) -> None:
        """Unmap the page."""
        self._words.release()
        self._map.close()

    def __enter__(self) -> ClockReader:
        """The reader itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _open(self) -> None:
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_size < pages.SIZE:
                    raise ClockError("unreadable", f"{self.path}: truncated")
                self._map = mmap.mmap(file.fileno(), pages.SIZE, mmap.MAP_SHARED, mmap.PROT_READ)
        except FileNotFoundError as error:
            raise ClockError("no-page", str(self.path)) from error
        except (OSError, ValueError) as error:
            raise ClockError("unreadable", f"{self.path}: {error}") from error
        self._inode = status.st_ino
        self._words = memoryview(self._map).cast("Q")
        self._prepared = self._read_whole()

    def _load(self) -> PreparedPage:
        """Read the changed page; while it stays half written, the last whole one is used on and grows old."""
        sequence = self._words[pages.SEQUENCE_WORD]
        if sequence != self._torn:
            try:
                self._prepared = self._read_whole()
            except ClockError as error:
                if error.reason != "torn":
                    raise
                self._torn = sequence
        return self._prepared

    def _read_whole(self) -> PreparedPage:
        """Read until the page is whole: a write takes some 10 µs; after a writer's death in a write it never is."""
        words, reason = self._words, "torn"
        for attempt in range(_TRIES):
            sequence = words[pages.SEQUENCE_WORD]
            raw = bytes(words)
            if words[pages.SEQUENCE_WORD] == sequence:
                try:
                    return prepare(pages.decode(raw), sequence, self._boot)
                except FormatError as error:
                    reason = "torn" if error.reason in ("torn", "checksum") else error.reason
                    if reason != "torn":
                        raise ClockError("unreadable", f"{self.path}: {error}") from error
            if attempt:
                time.sleep(_RETRY_S)
        raise ClockError(reason, str(self.path))

    @staticmethod
    def _read_pair() -> tuple[int, int, int]:
        """(CLOCK_REALTIME, CLOCK_MONOTONIC_RAW, ns by which they may be apart), of a few tries the closest."""
        best = 0, 0, 1 << 62
        for _ in range(_TRIES):
            before_ns = _raw_ns(_RAW)
            realtime_ns = _realtime_ns()
            after_ns = _raw_ns(_RAW)
            if after_ns - before_ns < best[2]:
                best = realtime_ns, (before_ns + after_ns) // 2, after_ns - before_ns
            if best[2] < _CLOSE_NS:
                break
        return best

    def _check_refusal(self, error: ClockError) -> Now:
        """Raise `error`, unless a closer reading of both clocks or a new file gives an answer."""
        if error.reason == "stepped" and self._prepared.page.status != "stepped":
            realtime_ns, raw_ns, width_ns = self._read_pair()
            if width_ns < _CLOSE_NS:
                return evaluate(self._prepared, realtime_ns, raw_ns, self._boot)
        if error.reason in ("void", "other-boot") and self._reopen_if_replaced():
            return self._of_new_file()
        raise error

    def _check_stale(self, found: Now) -> Now:
        """The stale answer `found`, or one from the file that replaced the page's."""
        return self._of_new_file() if self._reopen_if_replaced() else found

    def _of_new_file(self) -> Now:
        """By the clocks read close together: read apart, on a busy machine, they look like a clock that was moved."""
        realtime_ns, raw_ns, _ = self._read_pair()
        return evaluate(self._prepared, realtime_ns, raw_ns, self._boot)

    def _reopen_if_replaced(self) -> bool:
        """Open the file that replaced ours, if one did; checked at most five times a second."""
        now_ns = _raw_ns(_RAW)
        if now_ns - self._reopened_at_ns < _REOPEN_NS:
            return False
        self._reopened_at_ns = now_ns
        try:
            if self.path.stat().st_ino == self._inode:
                return False
            before = self._map, self._words, self._prepared, self._inode
            try:
                self._open()
            except ClockError:
                self._map, self._words, self._prepared, self._inode = before
                return False
        except OSError:
            return False
        return True  # the old map is freed with its last reference


_readers: dict[tuple[str | None, str | os.PathLike[str] | None], ClockReader] = {}


def now(clock: str | None = None, page_dir: str | os.PathLike[str] | None = None) -> Now:
    """Corrected time now, with [earliest, latest]; parameters and errors as `ClockReader`.

    >>> now("h00", "/nowhere")
    Traceback (most recent call last):
    sdfstream.clock.reading.ClockError: no agent writes a page of this clock here (no-page, /nowhere/h00.page)
    """
    reader = _readers.get((clock, page_dir))
    if reader is None:
        reader = _readers[clock, page_dir] = ClockReader(clock, page_dir)
    return reader.now()


def clocks(page_dir: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """Clock ids that have a page here, with its file, sorted."""
    found: dict[str, Path] = {}
    for folder in _folders(page_dir):
        if folder.is_dir():
            for file in sorted(folder.glob(f"[!.]*{folder_io.SUFFIX}")):
                found.setdefault(folder_io.clock_name(file.name), file)
    return dict(sorted(found.items()))


def _folders(page_dir: str | os.PathLike[str] | None) -> list[Path]:
    if page_dir is not None:
        return [Path(page_dir)]
    return [folder for folder in folder_io.readable_folders() if folder_io.is_trusted(folder)]


def _find(clock: str | None, page_dir: str | os.PathLike[str] | None) -> Path:
    folders = _folders(page_dir)
    if clock is not None:
        name = folder_io.file_name(clock)
        for folder in folders:
            if (folder / name).exists():
                return folder / name
        where = folders[-1] if folders else folder_io.SYSTEM
        raise ClockError("no-page", str(where / name))
    found = clocks(page_dir)
    if len(found) > 1:
        found = {name: file for name, file in found.items() if _is_realtime(file)} or found
    if len(found) > 1:
        raise ClockError("which-clock", ", ".join(found))
    if not found:
        where = folders[0] if folders else folder_io.SYSTEM
        raise ClockError("no-page", str(where))
    return next(iter(found.values()))


def _is_realtime(file: Path) -> bool:
    try:
        return pages.decode(file.read_bytes()).realtime
    except (OSError, FormatError):
        return False
