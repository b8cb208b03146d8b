"""The archive's writing side: engine, spill and failed inserts, on one task after another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from sdfstream.archive.config import ArchiveConfig
from sdfstream.archive.disk_io import Disk, RealDisk
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.failed_inserts_io import FailedInserts, folder_beside
from sdfstream.archive.insert_io import Inserter, Store
from sdfstream.archive.migrate_io import migrate, set_retention
from sdfstream.archive.run_io import ArchiveContext, ArchiveRun, Environment
from sdfstream.archive.spill_io import Spill
from sdfstream.archive.task import ArchiveTask, StopFlag
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters


class ArchiveWork:
    """Messages of every topic into their ClickHouse tables, exactly once. `open`, `run` (any number of times), `close`.

    Parameters
    ----------
    only_copy : bool
        Whether the task's messages are nowhere else (the in-process bus). Then rows in the spill count as safe, and
        rows in memory when the task ends go there. With Kafka, which stores every message, neither is so.

    Notes
    -----
    Counters: those of `Inserter`, `InsertQueues` and `Spill`; ``messages``; ``refused.no-table``; ``redone.<topic>``
    (intents of a former owner inserted again); ``spilled.<topic>`` and ``caught-up.<topic>`` (rows);
    ``spill-overtaken`` (files another owner had inserted meanwhile).
    """

    def __init__(
        self,
        config: ArchiveConfig,
        engine: Store,
        *,
        only_copy: bool = False,
        disk: Disk | None = None,
        environment: Environment | None = None,
    ) -> None:
        self.config = config
        self.counters = Counters("archive")
        self.hurry = threading.Event()
        """Set: every insert is due now."""
        self._engine = engine
        self._run: ArchiveRun | None = None
        disk = disk or RealDisk()
        folder = Path(config.spill_dir) if config.spill_dir is not None else folder_beside(config, "spill")
        self._context = ArchiveContext(
            config,
            self.counters,
            Inserter(engine, FailedInserts.of(config, disk), self.counters),
            Spill(folder, config.spill_bytes, disk, self.counters),
            environment or Environment(executor=ThreadPoolExecutor(1, thread_name_prefix="archive")),
            only_copy,
            self.hurry,
        )

    @classmethod
    def open(cls, config: ArchiveConfig) -> ArchiveWork:
        """Connect, migrate and set retention.

        Raises
        ------
        UnavailableError, ArchiveError, ConfigError
            No engine or no right; an archive newer than this program; a target that is none.
        """
        return cls(config, open_engine(config))

    async def run(
        self, task: ArchiveTask, stop: StopFlag, on_step: Callable[[int], None] = lambda held_bytes: None
    ) -> None:
        """Archive the messages of `task` until `stop`; then insert what was read and return.

        `on_step` is called after every step with the bytes in memory and not yet safe.

        Raises
        ------
        BusError
            The task has another owner now, or its bus went away. Nothing is lost: the next owner goes on.
        """
        self._run = ArchiveRun(self._context, task, stop, on_step)
        await self._run.run()

    def close(self) -> None:
        """Wait for the insert in progress, then close the engine."""
        if self._context.environment.executor is not None:
            self._context.environment.executor.shutdown()
        if isinstance(self._engine, Engine):
            self._engine.close()

    @property
    def oldest_ns(self) -> int | None:
        """Bus time of the oldest row that was read and is not yet inserted; None when all are."""
        return self._run.queues.oldest_ns if self._run is not None else None

    def figures(self) -> dict[str, float]:
        """Gauges: ``pending_bytes``, ``spill_bytes``, ``spill_files``, and ``oldest_age_s``, time since the oldest row
        that is not yet inserted was read (0 when all are).
        """
        run = self._run
        since_ns = run.since_ns if run is not None else None
        return {
            "pending_bytes": run.held_bytes if run is not None else 0,
            "spill_bytes": self._context.spill.bytes,
            "spill_files": self._context.spill.files,
            "oldest_age_s": 0.0
            if since_ns is None
            else max(0.0, (self._context.environment.clock() - since_ns) / NS_PER_S),
        }


def open_engine(config: ArchiveConfig) -> Engine:
    """The engine of `config`, with every table; see `ArchiveWork.open`."""
    pa.array([0])  # pyarrow imports pandas now: on the first live insert it would hold up the process for a second
    engine = Engine.open(config.target, create=True)
    try:
        migrate(engine)
        set_retention(engine, config.retention, replay=config.bus_id if config.replay else None)
    except BaseException:
        engine.close()
        raise
    return engine
