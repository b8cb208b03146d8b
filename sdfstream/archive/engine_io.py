"""One handle on ClickHouse, embedded or a server, through clickhouse-connect; used by one thread at a time.

Both kinds run the same SQL. They differ in one place: how the bytes of an insert reach the engine. A server gets
them in the request; chDB reads them from an anonymous file in memory, so that a killed process leaves nothing.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sdfstream.archive.engine_options import ENGINE_OPTIONS
from sdfstream.archive.failures import EngineError, engine_error
from sdfstream.archive.memfile_io import Scratch
from sdfstream.archive.private_io import private_folder
from sdfstream.archive.sqltext import literal, quoted
from sdfstream.archive.target import Folder, Server, parse
from sdfstream.errors import UnavailableError

INSERT_SETTINGS: Final = {
    "async_insert": "0",
    "max_partitions_per_insert_block": "0",
    "insert_deduplicate": "1",
    "deduplicate_blocks_in_dependent_materialized_views": "1",
    "input_format_defaults_for_omitted_fields": "0",
    "max_insert_block_size": str(1 << 24),
    "min_insert_block_size_rows": str(1 << 24),
    "min_insert_block_size_bytes": "0",
}
"""Acknowledged means written; a replay of many days may go in by one insert; an insert is one block, whatever the
engine's defaults, so that it is in or not, and the same again when it is repeated, also in tables filled by views.
Every column that an insert names is in its rows: to look for values that a format left out costs 75 to 115 ns a row
(chDB). A column that it does not name has its default all the same."""


class Engine:
    """A handle: `open`, then statements, then `close`. Each thread needs its own."""

    def __init__(self, client: Any, target: Folder | Server) -> None:
        self._client = client
        self._scratch = Scratch()
        self.target = target

    @classmethod
    def open(cls, target: str | Folder | Server, *, create: bool = False, patience_s: int = 300) -> Engine:
        """Connect, with `create` making folder and database first.

        Parameters
        ----------
        target : str | Folder | Server
        create : bool
        patience_s : int
            How long a server may take over one statement.

        Raises
        ------
        UnavailableError
            The folder does not exist or another process has it open, or the server does not answer.
        EngineError
            The server refuses the user or knows no such database.
        """
        where = parse(target) if isinstance(target, str) else target
        client = _embedded(where, create) if isinstance(where, Folder) else _remote(where, patience_s)
        engine = cls(client, where)
        try:
            if create:
                engine.command(f"CREATE DATABASE IF NOT EXISTS {quoted(where.database)}")
            client.database = where.database
        except BaseException:
            engine.close()
            raise
        return engine

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Any:
        """Run a statement; what it returns is the engine's one-line answer."""
        return self._call(self._client.command, sql, parameters=parameters)

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Rows of a small query as Python values."""
        return list(self._call(self._client.query, sql, parameters=parameters).result_rows)

    def arrow(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Rows of a query as an Arrow table."""
        return self._call(self._client.query_arrow, sql, parameters=parameters)

    def raw(self, sql: str, fmt: str | None, settings: Mapping[str, Any] | None = None) -> bytes:
        """What a query prints in `fmt`; None when `sql` has its own FORMAT clause."""
        return bytes(self._call(self._client.raw_query, sql, fmt=fmt, settings=dict(settings or {})))

    def insert(self, table: str, rows: pa.Table, token: str) -> None:
        """Insert `rows`; a second insert with the same `token` is dropped, as far back as the table's window goes."""
        if rows.num_rows == 0:
            return
        settings = {"insert_deduplication_token": token, **INSERT_SETTINGS}
        if isinstance(self.target, Folder):
            self._insert_embedded(table, rows, settings)
        else:
            block = _ipc_stream(rows)
            names = rows.column_names
            self._call(self._client.raw_insert, table, names, block, settings=settings, fmt="ArrowStream")

    def _insert_embedded(self, table: str, rows: pa.Table, settings: Mapping[str, str]) -> None:
        columns = ", ".join(map(quoted, rows.column_names))
        clause = ", ".join(f"{k} = {literal(v)}" for k, v in settings.items())
        with self._scratch.holding(lambda file: _write_ipc(file, rows)) as path:
            source = f"FROM INFILE {literal(path)} SETTINGS {clause} FORMAT ArrowStream"
            self.command(f"INSERT INTO {table} ({columns}) {source}")

    def close(self) -> None:
        """Give the handle back; the engine stops with the last one."""
        self._client.close()
        self._scratch.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _call(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        from clickhouse_connect.driver.exceptions import ClickHouseError

        try:
            return method(*args, **kwargs)
        except ClickHouseError as error:
            raise _mapped(error) from error


def _mapped(error: Exception) -> EngineError:
    return engine_error(str(error), getattr(error, "code", None))


def _embedded(folder: Folder, create: bool) -> Any:
    from pathlib import Path

    path = Path(folder.path)
    if not create and not path.is_dir():
        raise UnavailableError(f"no archive in {folder.path}: the folder does not exist")
    if create:
        _make(path)
    try:
        import clickhouse_connect
        from clickhouse_connect.driver.exceptions import ClickHouseError
    except ImportError as error:
        raise UnavailableError(f"clickhouse-connect with chdb is needed for an embedded archive: {error}") from error
    try:
        return clickhouse_connect.get_client(interface="chdb", path=folder.path, chdb_options=ENGINE_OPTIONS)
    except ClickHouseError as error:
        raise UnavailableError(
            f"the archive in {folder.path} cannot be opened: {_why_closed(folder, str(error))}"
        ) from error


def _why_closed(folder: Folder, text: str) -> str:
    if "with different path" in text:
        return "this process already has another one open, and chDB holds one at a time"
    owner = _owner(folder)
    if owner is not None:
        return f"{owner} has it open and answers nobody, and chDB lets one process at a time open it"
    return f"it is damaged, or another release's ({engine_error(text)})"


def _owner(folder: Folder) -> str | None:
    """The process that holds the engine's lock on `folder`, as its file ``status`` names it; None: nobody does."""
    try:
        with (Path(folder.path) / "status").open(encoding="utf-8", errors="replace") as status:
            try:
                fcntl.flock(status, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found = re.search(r"^PID: (\d+)", status.read(4096), re.MULTILINE)
                return f"process {found.group(1)}" if found else "another process"
    except OSError:
        pass
    return None


def _make(path: Path) -> None:
    try:
        private_folder(path)
    except OSError as error:
        raise UnavailableError(f"the archive's folder cannot be made: {error}") from error


def _remote(server: Server, patience_s: int) -> Any:
    import clickhouse_connect
    from clickhouse_connect.driver.exceptions import ClickHouseError

    from sdfstream.archive.unix_pool_io import unix_pool

    pool = {} if server.socket is None else {"pool_mgr": unix_pool(server.socket)}
    try:
        return clickhouse_connect.get_client(
            **pool,
            interface="https" if server.secure else "http",
            host=server.host,
            port=server.port,
            username=server.user,
            password=server.password,
            autogenerate_session_id=False,
            connect_timeout=5,
            send_receive_timeout=patience_s,
        )
    except ClickHouseError as error:
        problem = _mapped(error)
        if problem.code is None:
            raise UnavailableError(f"no ClickHouse answers at {server}: {problem}") from error
        raise problem from error


def _write_ipc(sink: Any, rows: pa.Table) -> None:
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)


def _ipc_stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    _write_ipc(sink, rows)
    return bytes(sink.getvalue())
