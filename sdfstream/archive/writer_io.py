"""The archive as the pipeline sees it: messages in, coalesced inserts out, in a thread of its own.

::

    add ──► Coalescer ──(worker thread)──► rows ──► insert with token ──► acknowledged
             full: add waits                          fails: again, then kept on disk with the reason

The event loop never waits for the engine, only (in `add`) for room. Every row added is inserted, kept on disk or
refused into the table ``reject``, and counted as such.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import pyarrow as pa

from sdfstream.archive.batching import Batch, Coalescer
from sdfstream.archive.config import ArchiveConfig
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.insert_io import Inserter
from sdfstream.archive.kept_io import Kept
from sdfstream.archive.migrate_io import migrate, set_retention
from sdfstream.errors import ArchiveError
from sdfstream.records.message import Message
from sdfstream.records.topics import ARCHIVED
from sdfstream.stats import Counters

_POLL_S = 0.005


class Archive:
    """Messages of every topic into their ClickHouse tables. `open`, `add`, `flush`, `close`.

    The methods ending in ``_blocking`` are the same for callers without an event loop (replay). All may be called
    from any one thread at a time; the engine is used by the worker only.
    """

    def __init__(self, config: ArchiveConfig, engine: Engine) -> None:
        self.config = config
        self.counters = Counters("archive")
        """``messages``, ``refused.no-table`` and those of `Inserter`."""
        self._engine = engine
        self._inserter = Inserter(config, engine, Kept.of(config), self.counters)
        self._coalescer = Coalescer(config.limits, config.bus_id)
        self._changed = threading.Condition()
        self._working_bytes = 0
        self._flushing = self._closing = False
        self._failure: BaseException | None = None
        self._worker = threading.Thread(target=self._work, name="archive", daemon=True)
        self._worker.start()

    @classmethod
    def open(cls, config: ArchiveConfig) -> Archive:
        """Connect, migrate, set the time to live and start the worker, which first inserts what an earlier run kept.

        Raises
        ------
        UnavailableError, ArchiveError, ConfigError
            No engine or no right; an archive newer than this program; a target that is none.
        """
        _import_what_arrow_wants()
        engine = Engine.open(config.target, create=True)
        try:
            migrate(engine)
            set_retention(engine, config.retention, replay=config.bus_id if config.replay else None)
            return cls(config, engine)
        except BaseException:
            engine.close()
            raise

    async def add(self, messages: Sequence[Message]) -> None:
        """Take `messages`; waits while more than `ArchiveConfig.pending_bytes` are not yet inserted.

        Raises
        ------
        ArchiveError
            The archive is closed, or its worker died of a defect.
        """
        while not self.offer(messages):  # noqa: ASYNC110 - a thread makes room, no task
            await asyncio.sleep(_POLL_S)

    def add_blocking(self, messages: Sequence[Message]) -> None:
        """`add` without an event loop."""
        while not self.offer(messages):
            self._wait()

    def offer(self, messages: Sequence[Message]) -> bool:
        """Take `messages` if there is room; False leaves all of them with the caller."""
        known = [m for m in messages if m.topic in ARCHIVED]
        with self._changed:
            self._check()
            if self.pending_bytes > self.config.pending_bytes:
                return False
            self.counters.add("messages", n=len(known))
            self.counters.add("refused", "no-table", sum(m.rows for m in messages if m.topic not in ARCHIVED))
            self._coalescer.add(known, time.monotonic_ns())
            self._changed.notify_all()
        return True

    @property
    def pending_bytes(self) -> int:
        """Bytes of messages taken and not yet inserted, kept or refused; at most the limit and one call's messages."""
        return self._coalescer.bytes + self._working_bytes

    async def flush(self) -> None:
        """Insert everything taken so far, whatever its age; returns when it is acknowledged, kept or refused."""
        self._begin_flush()
        while not self._flushed():  # noqa: ASYNC110 - a thread flushes, no task
            await asyncio.sleep(_POLL_S)

    def flush_blocking(self) -> None:
        """`flush` without an event loop."""
        self._begin_flush()
        while not self._flushed():
            self._wait()

    async def close(self) -> None:
        """Insert what is left, stop the worker, give the engine back."""
        await asyncio.to_thread(self.close_blocking)

    def close_blocking(self) -> None:
        """`close` without an event loop."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._worker.join()
        self._engine.close()
        self._check_worker()

    def _begin_flush(self) -> None:
        with self._changed:
            self._check()
            self._flushing = True
            self._changed.notify_all()

    def _flushed(self) -> bool:
        with self._changed:
            self._check()
            return not self._flushing

    def _wait(self) -> None:
        with self._changed:
            self._changed.wait(_POLL_S)

    def _check(self) -> None:
        self._check_worker()
        if self._closing:
            raise ArchiveError("the archive is closed")

    def _check_worker(self) -> None:
        if self._failure is not None:
            raise ArchiveError(f"the archive's worker died: {self._failure!r}") from self._failure

    def _work(self) -> None:
        try:
            self._inserter.restore()
            while (batch := self._next()) is not None:
                self._inserter.archive(batch)
                with self._changed:
                    self._working_bytes = 0
                    self._changed.notify_all()
        except BaseException as error:  # handed to whoever calls next: a thread that died in silence would lose data
            self._failure = error

    def _next(self) -> Batch | None:
        """The next batch that is due; None when the archive closes and nothing is left."""
        with self._changed:
            while True:
                now_ns = time.monotonic_ns()
                batch = self._coalescer.take(now_ns, force=self._flushing or self._closing)
                if batch is not None:
                    self._working_bytes = batch.bytes
                    return batch
                self._flushing = False
                if self._closing:
                    return None
                self._changed.notify_all()
                wait_ns = self._coalescer.wait_ns(now_ns)
                self._changed.wait(None if wait_ns is None else wait_ns / 1e9)


def _import_what_arrow_wants() -> None:
    """Let pyarrow import pandas now: on the first live insert it would hold up the process for most of a second."""
    pa.array([0])
