"""One process at a time migrates an archive, also where several share a server."""

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

_TURN: Final = "migration_turn"
_TURN_SQL: Final = f"""
CREATE TABLE {_TURN} (holder String, at DateTime64(3, 'UTC') DEFAULT now64(3))
ENGINE = MergeTree ORDER BY at COMMENT 'Which process migrates this archive now; gone when it has.'
"""
_BEAT_SQL: Final = f"INSERT INTO {_TURN} (holder) VALUES ('{{}}')"
_BEAT_S: Final = 2.0
_STALE_S: Final = 15.0
_POLL_S: Final = 0.2


@contextmanager
def turn(engine: Engine) -> Iterator[Callable[[], None]]:
    """Our turn to migrate; what it gives raises when the turn was taken from us.

    A folder is open in one process only. On a server the turn is a table: making it succeeds once, its holder adds a
    row every two seconds, and who finds the newest row older than `_STALE_S` takes it away.
    """
    if isinstance(engine.target, Folder):
        yield lambda: None
        return
    holder = uuid.uuid4().hex
    _take_turn(engine, holder)
    alive = threading.Event()
    beat = threading.Thread(target=_hold, args=(engine.target, holder, alive), name="migration-turn", daemon=True)
    beat.start()
    try:
        yield lambda: _still(engine, holder)
    finally:
        alive.set()
        beat.join()
        if _holder(engine)[0] == holder:
            engine.command(f"DROP TABLE IF EXISTS {_TURN}")


def _take_turn(engine: Engine, holder: str) -> None:
    """Wait until the turn is ours."""
    while True:
        try:
            engine.command(_TURN_SQL)
        except EngineError as error:
            if error.code != TABLE_ALREADY_EXISTS:
                raise
        else:
            engine.command(_BEAT_SQL.format(holder))
            return
        found, age_s = _holder(engine)
        if age_s > _STALE_S and found == _holder(engine)[0]:
            engine.command(f"DROP TABLE IF EXISTS {_TURN}")
        time.sleep(_POLL_S)


def _hold(target: Server, holder: str, ended: threading.Event) -> None:
    with contextlib.suppress(ArchiveError), Engine.open(target) as engine:
        while not ended.wait(_BEAT_S):
            with contextlib.suppress(EngineError):
                _still(engine, holder)
                engine.command(_BEAT_SQL.format(holder))


def _still(engine: Engine, holder: str) -> None:
    if _holder(engine)[0] != holder:
        raise ArchiveError("another process took over the migration of the archive; start again")


def _holder(engine: Engine) -> tuple[str, float]:
    """Whose turn it is and how long ago it was heard of; nobody's: an empty name, 0 seconds."""
    try:
        rows = engine.rows(
            "SELECT argMax(holder, at), if(count() = 0, (SELECT dateDiff('millisecond', metadata_modification_time,"
            f" now64(3)) FROM system.tables WHERE database = currentDatabase() AND name = '{_TURN}'),"
            f" dateDiff('millisecond', max(at), now64(3, 'UTC'))) / 1000 FROM {_TURN}"
        )
    except EngineError as error:
        if error.code == UNKNOWN_TABLE:
            return "", 0.0
        raise
    return str(rows[0][0]), float(rows[0][1] or 0)
