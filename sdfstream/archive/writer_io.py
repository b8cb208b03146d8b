"""The archive within one process: messages added from any thread, archived in a thread of its own.

::

    add ──► queue ──► `ArchiveWork`, on a task without a bus behind it: rows in the spill count as safe
             full: add waits

The caller never waits for the engine, only (in `add`) for room. Every row added is inserted,
spilled to disk until it can be, stored as a failed insert, or refused into the table ``reject``, and counted as such.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sdfstream.archive.batching import message_bytes
from sdfstream.archive.config import ArchiveConfig
from sdfstream.archive.insert_io import Store
from sdfstream.archive.run_io import Environment
from sdfstream.archive.work_io import ArchiveWork, open_engine
from sdfstream.errors import ArchiveError
from sdfstream.records.checkpoint import Checkpoint
from sdfstream.records.message import Message, Output
from sdfstream.records.position import Partition, Positions

_POLL_S = 0.005


class _QueueTask:
    """A task over the messages added: they end with the process, so a commit has nothing to save."""

    def __init__(self) -> None:
        self.saved = Checkpoint()
        self.changed = threading.Condition()
        self.bytes = 0
        """Added, and not yet in the archive's queues."""
        self.held_bytes = 0
        """In the archive's queues in memory, not yet safe."""
        self.woken = False
        self._messages: list[Message] = []
        self._taken_bytes = 0

    def put(self, messages: Sequence[Message]) -> None:
        """Add `messages`; the caller holds `changed`."""
        self._messages += messages
        self.bytes += sum(map(message_bytes, messages))
        self.wake()

    def wake(self) -> None:
        """Let `read` return; the caller holds `changed`."""
        self.woken = True
        self.changed.notify_all()

    def stepped(self, held_bytes: int) -> None:
        """The archive has queued what it read last, and holds `held_bytes` in memory."""
        with self.changed:
            self.bytes -= self._taken_bytes
            self._taken_bytes = 0
            self.held_bytes = held_bytes
            self.changed.notify_all()

    async def read(self, max_messages: int = 1000, timeout_s: float = 0.1) -> list[Message]:
        """The messages added. Blocks its thread, whose loop has nothing else to do."""
        with self.changed:
            if not self._messages and not self.woken:
                self.changed.wait(timeout_s)
            self.woken = False
            taken, self._messages = self._messages[:max_messages], self._messages[max_messages:]
            self._taken_bytes = sum(map(message_bytes, taken)) if self._messages else self.bytes
            return taken

    def positions(self) -> Mapping[Partition, int]:
        """None: nothing is read again."""
        return {}

    async def commit(
        self,
        outputs: Sequence[Output] = (),
        *,
        positions: Positions | None = None,
        notes: Mapping[str, bytes | None] | None = None,
    ) -> None:
        """Nothing outlives the process but the spill."""

    def known_until_ns(self) -> int | None:
        """None: no former owner left anything to recover."""
        return None


class Archive:
    """Messages of every topic into their ClickHouse tables. `open`, `add`, `flush`, `close`.

    The methods ending in ``_blocking`` are the same for callers without an event loop (replay). All may be called
    from any one thread at a time; the engine is used by the worker only.
    """

    def __init__(self, config: ArchiveConfig, engine: Store) -> None:
        self.config = config
        self._queue = _QueueTask()
        self._work = ArchiveWork(config, engine, only_copy=True, environment=Environment())
        self.counters = self._work.counters
        """Those of `ArchiveWork`."""
        self._helper = self.counters.troubles.helper("archive")
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        self._worker = threading.Thread(target=self._run, name="archive", daemon=True)
        self._worker.start()

    @classmethod
    def open(cls, config: ArchiveConfig) -> Archive:
        """Connect, migrate, set retention and start the worker, which first inserts the spill of an earlier run.

        Raises
        ------
        UnavailableError, ArchiveError, ConfigError
            No engine or no right; an archive newer than this program; a target that is none.
        """
        return cls(config, open_engine(config))

    async def add(self, messages: Sequence[Message]) -> None:
        """Take `messages`; waits while more than `ArchiveConfig.pending_bytes` are not yet safe.

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
        with self._queue.changed:
            self._check()
            if self.pending_bytes > self.config.pending_bytes:
                return False
            self._queue.put(messages)
            if self._helper.working_since_s is None:
                self._helper.begin(time.monotonic())
        return True

    @property
    def pending_bytes(self) -> int:
        """Bytes of messages taken and not yet inserted or on disk; at most the limit and one call's messages."""
        return self._queue.bytes + self._queue.held_bytes

    def figures(self) -> dict[str, float]:
        """See `ArchiveWork.figures`."""
        return self._work.figures() | {"pending_bytes": self.pending_bytes}

    async def flush(self) -> None:
        """Insert everything taken so far, whatever its age; returns when it is acknowledged, refused or on disk."""
        self._begin_flush()
        while not self._flushed():  # noqa: ASYNC110 - a thread flushes, no task
            await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        """Insert what is left, or leave it on disk for the next run; stop the worker, give the engine back."""
        await asyncio.to_thread(self.close_blocking)

    def close_blocking(self) -> None:
        """`close` without an event loop."""
        self._closing.set()
        with self._queue.changed:
            self._queue.wake()
        self._worker.join()
        self._work.close()
        self._check_worker()

    def _begin_flush(self) -> None:
        with self._queue.changed:
            self._check()
            self._work.hurry.set()
            self._queue.wake()

    def _flushed(self) -> bool:
        with self._queue.changed:
            self._check()
            if self.pending_bytes:
                return False
            self._work.hurry.clear()
            return True

    def _wait(self) -> None:
        with self._queue.changed:
            self._queue.changed.wait(_POLL_S)

    def _check(self) -> None:
        self._check_worker()
        if self._closing.is_set():
            raise ArchiveError("the archive is closed")

    def _check_worker(self) -> None:
        if self._failure is not None:
            raise ArchiveError(f"the archive's worker died: {self._failure!r}") from self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._work.run(self._queue, _Drained(self._closing, self._queue), self._stepped))
        except BaseException as error:  # raised in the next call: a thread that died in silence would lose data
            self._failure = error
            self._helper.end(error)

    def _stepped(self, held_bytes: int) -> None:
        self._queue.stepped(held_bytes)
        if self._queue.bytes or held_bytes:
            self._helper.begin(time.monotonic())
        else:
            self._helper.rest()


@dataclass(frozen=True, slots=True)
class _Drained:
    """Set once the archive closes and every message added is in its queues."""

    closing: threading.Event
    queue: _QueueTask

    def is_set(self) -> bool:
        """See `task.StopFlag`."""
        return self.closing.is_set() and self.queue.bytes == 0
