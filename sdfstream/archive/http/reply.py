"""HTTP status and content type as ClickHouse's own server chooses them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_TYPES: Final = {
    "TabSeparated": "text/tab-separated-values; charset=UTF-8",
    "TSV": "text/tab-separated-values; charset=UTF-8",
    "CSV": "text/csv; charset=UTF-8",
    "JSON": "application/json; charset=UTF-8",
    "XML": "application/xml; charset=UTF-8",
    "Markdown": "text/markdown; charset=UTF-8",
    "Prometheus": "text/plain; version=0.0.4; charset=UTF-8",
}
_BINARY: Final = (
    "Native",
    "RowBinary",
    "Arrow",
    "Parquet",
    "ORC",
    "Avro",
    "Protobuf",
    "MsgPack",
    "Npy",
    "BSON",
    "CapnP",
)

_STATUS: Final = {
    **dict.fromkeys((6, 8, 16, 20, 26, 27, 36, 38, 41, 42, 43, 44, 53, 62, 69, 70, 72, 117, 130, 386, 456, 457), 400),
    **dict.fromkeys((46, 47, 50, 56, 60, 63, 73, 78, 81, 115), 404),
    **dict.fromkeys((164, 194, 497, 516), 403),
    159: 408,
    307: 413,
    48: 501,
    **dict.fromkeys((202, 203, 236), 503),
}
"""ClickHouse error code → HTTP status; anything else is 500. 202 (too many queries) says "later" with 503."""


def http_status(code: int | None) -> int:
    """The status for an error code.

    >>> http_status(60), http_status(164), http_status(None)
    (404, 403, 500)
    """
    return _STATUS.get(code or 0, 500)


def content_type(fmt: str) -> str:
    """The content type of a format.

    >>> content_type("JSONCompact"), content_type("ArrowStream")
    ('application/json; charset=UTF-8', 'application/octet-stream')
    """
    if fmt in ("JSONEachRow", "JSONLines", "NDJSON", "JSONCompactEachRow"):
        return "application/x-ndjson; charset=UTF-8"
    if fmt.startswith(_BINARY):
        return "application/octet-stream"
    known = next((kind for name, kind in _TYPES.items() if fmt.startswith(name)), None)
    return known or "text/plain; charset=UTF-8"


def empty_native(columns: Sequence[tuple[str, str]]) -> bytes:
    r"""A block of ClickHouse's Native format with `columns` (name, type) and no rows.

    >>> empty_native([("a", "UInt8")])
    b'\x01\x00\x01a\x05UInt8'
    """
    words = (word.encode() for column in columns for word in column)
    return _varuint(len(columns)) + b"\0" + b"".join(_varuint(len(word)) + word for word in words)


def _varuint(number: int) -> bytes:
    """An unsigned number in groups of 7 bits, lowest first (LEB128)."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
