"""The lock that lets one process at a time migrate an archive, also where several share a server."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sdfstream.archive.engine_io import Engine
from sdfstream.archive.failures import TABLE_ALREADY_EXISTS, UNKNOWN_TABLE, EngineError
from sdfstream.archive.target import Folder, Server
from sdfstream.errors import ArchiveError

_LOCK: Final = "migration_turn"
_LOCK_SQL: Final = f"""
CREATE TABLE {_LOCK} (holder String, at DateTime64(3, 'UTC') DEFAULT now64(3))
ENGINE = MergeTree ORDER BY at COMMENT 'Which process migrates this archive now; gone when it has.'
"""
_HEARTBEAT_SQL: Final = f"INSERT INTO {_LOCK} (holder) VALUES ('{{}}')"
_HEARTBEAT_S: Final = 2.0
_STALE_S: Final = 15.0
_POLL_S: Final = 0.2


@contextmanager
def migration_lock(engine: Engine) -> Iterator[Callable[[], None]]:
    """Hold the lock; yields a check that raises when another process has taken the lock.

    A folder is open in one process only. On a server the lock is a table: creating it succeeds once, its holder adds a
    row every two seconds, and a process that finds the newest row older than `_STALE_S` drops it.
    """
    if isinstance(engine.target, Folder):
        yield lambda: None
        return
    holder = uuid.uuid4().hex
    _acquire(engine, holder)
    alive = threading.Event()
    heartbeat = threading.Thread(
        target=_send_heartbeats, args=(engine.target, holder, alive), name="migration-turn", daemon=True
    )
    heartbeat.start()
    try:
        yield lambda: _check_held(engine, holder)
    finally:
        alive.set()
        heartbeat.join()
        if _holder(engine)[0] == holder:
            engine.command(f"DROP TABLE IF EXISTS {_LOCK}")


def _acquire(engine: Engine, holder: str) -> None:
    """Wait until this process has created the table."""
    while True:
        try:
            engine.command(_LOCK_SQL)
        except EngineError as error:
            if error.code != TABLE_ALREADY_EXISTS:
                raise
        else:
            engine.command(_HEARTBEAT_SQL.format(holder))
            return
        found, age_s = _holder(engine)
        if age_s > _STALE_S and found == _holder(engine)[0]:
            engine.command(f"DROP TABLE IF EXISTS {_LOCK}")
        time.sleep(_POLL_S)


def _send_heartbeats(target: Server, holder: str, ended: threading.Event) -> None:
    with contextlib.suppress(ArchiveError), Engine.open(target) as engine:
        while not ended.wait(_HEARTBEAT_S):
            with contextlib.suppress(EngineError):
                _check_held(engine, holder)
                engine.command(_HEARTBEAT_SQL.format(holder))


def _check_held(engine: Engine, holder: str) -> None:
    if _holder(engine)[0] != holder:
        raise ArchiveError("another process took over the migration of the archive; start again")


def _holder(engine: Engine) -> tuple[str, float]:
    """The holder and the age of its last row, s; an empty name and 0 when there is no lock."""
    try:
        rows = engine.rows(
            "SELECT argMax(holder, at), if(count() = 0, (SELECT dateDiff('millisecond', metadata_modification_time,"
            f" now64(3)) FROM system.tables WHERE database = currentDatabase() AND name = '{_LOCK}'),"
            f" dateDiff('millisecond', max(at), now64(3, 'UTC'))) / 1000 FROM {_LOCK}"
        )
    except EngineError as error:
        if error.code == UNKNOWN_TABLE:
            return "", 0.0
        raise
    return str(rows[0][0]), float(rows[0][1] or 0)
