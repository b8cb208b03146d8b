"""Inserts as files: rows, their table and their deduplication token, in Arrow IPC that any Arrow reader can look at.

A file holds one stream per insert, one after the other; each stream's schema metadata says ``sdf_table``,
``sdf_token`` and ``sdf_rows``, the first one's also ``sdf_sheets``, how many there are, and what else the writer had
to say. Pure.
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
class Sheet:
    """One insert: rows for a table."""

    table: str
    rows: pa.Table
    token: str
    said: Mapping[str, str] = field(default_factory=dict)
    """Further metadata in its file, without the prefix ``sdf_``."""


def encode(sheets: Sequence[Sheet], said: Mapping[str, str], *, compressed: bool = True) -> pa.Buffer:
    """A file of `sheets`; `said` goes into the first one's metadata."""
    sink = pa.BufferOutputStream()
    options = _COMPRESSED if compressed else None
    for number, sheet in enumerate(sheets):
        given = {"table": sheet.table, "token": sheet.token, "rows": str(sheet.rows.num_rows)}
        given |= {**said, "sheets": str(len(sheets))} if number == 0 else {}
        rows = sheet.rows.replace_schema_metadata({f"sdf_{k}": v for k, v in given.items()})
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            writer.write_table(rows)
    return sink.getvalue()


def head(source: BinaryIO) -> dict[str, str]:
    """The metadata of a file's first sheet, without reading its rows.

    Raises
    ------
    FormatError
        ``sheet``: the file is none of these.
    """
    try:
        with pa.ipc.open_stream(source, options=_ONE_THREAD) as reader:
            return _said(reader.schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FormatError("sheet", str(error)) from error


def decode(source: BinaryIO) -> list[Sheet]:
    """Every sheet of a file.

    Raises
    ------
    FormatError
        ``sheet``: the file is none of these, or not whole.
    """
    sheets = []
    try:
        data = pa.py_buffer(source.read())
        stream = pa.BufferReader(data)
        while stream.tell() < data.size:
            with pa.ipc.open_stream(stream, options=_ONE_THREAD) as reader:
                rows = reader.read_all()
            said = _said(rows.schema)
            if rows.num_rows != int(said.get("rows", rows.num_rows)):
                raise FormatError("sheet", f"{rows.num_rows} of {said['rows']} rows")
            sheets.append(Sheet(said["table"], rows.replace_schema_metadata(None), said["token"], said))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise FormatError("sheet", f"{error!r}") from error
    if not sheets or len(sheets) != int(sheets[0].said.get("sheets", len(sheets))):
        raise FormatError("sheet", "the file is not whole")
    return sheets


def _said(schema: pa.Schema) -> dict[str, str]:
    found = {k.decode(): v.decode() for k, v in (schema.metadata or {}).items()}
    return {k.removeprefix("sdf_"): v for k, v in found.items() if k.startswith("sdf_")}
