"""Inserts as files: rows, their table and their deduplication token, in Arrow IPC that any Arrow reader can look at.

A file holds one Arrow stream per insert, one after the other. Every stream's schema metadata has ``sdf_table``,
``sdf_token`` and ``sdf_rows``; the first one's has ``sdf_sheets`` too, the number of streams, and further metadata of
the writer. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final

import pyarrow as pa

from sdfstream.errors import FormatError

_ONE_THREAD: Final = pa.ipc.IpcReadOptions(use_threads=False)
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)


@dataclass(frozen=True, slots=True)
class TableInsert:
    """Rows for one table, inserted by one statement."""

    table: str
    rows: pa.Table
    token: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    """All metadata of its stream in the file, without the prefix ``sdf_``."""


def encode(inserts: Sequence[TableInsert], metadata: Mapping[str, str], *, compressed: bool = True) -> pa.Buffer:
    """The bytes of a file of `inserts`; `metadata` goes into the first stream's."""
    sink = pa.BufferOutputStream()
    options = _COMPRESSED if compressed else None
    for number, insert in enumerate(inserts):
        given = {"table": insert.table, "token": insert.token, "rows": str(insert.rows.num_rows)}
        given |= {**metadata, "sheets": str(len(inserts))} if number == 0 else {}
        rows = insert.rows.replace_schema_metadata({f"sdf_{k}": v for k, v in given.items()})
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            writer.write_table(rows)
    return sink.getvalue()


def read_metadata(source: BinaryIO) -> dict[str, str]:
    """The metadata of a file's first stream; no row is read.

    Raises
    ------
    FormatError
        ``sheet``: not a file of inserts.
    """
    try:
        with pa.ipc.open_stream(source, options=_ONE_THREAD) as reader:
            return _metadata(reader.schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FormatError("sheet", str(error)) from error


def decode(source: BinaryIO) -> list[TableInsert]:
    """Every insert of a file.

    Raises
    ------
    FormatError
        ``sheet``: not a file of inserts, or not whole.
    """
    inserts = []
    try:
        data = pa.py_buffer(source.read())
        stream = pa.BufferReader(data)
        while stream.tell() < data.size:
            with pa.ipc.open_stream(stream, options=_ONE_THREAD) as reader:
                rows = reader.read_all()
            metadata = _metadata(rows.schema)
            if rows.num_rows != int(metadata.get("rows", rows.num_rows)):
                raise FormatError("sheet", f"{rows.num_rows} of {metadata['rows']} rows")
            inserts.append(
                TableInsert(metadata["table"], rows.replace_schema_metadata(None), metadata["token"], metadata)
            )
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise FormatError("sheet", f"{error!r}") from error
    if not inserts or len(inserts) != int(inserts[0].metadata.get("sheets", len(inserts))):
        raise FormatError("sheet", "the file is not whole")
    return inserts


def _metadata(schema: pa.Schema) -> dict[str, str]:
    found = {k.decode(): v.decode() for k, v in (schema.metadata or {}).items()}
    return {k.removeprefix("sdf_"): v for k, v in found.items() if k.startswith("sdf_")}
