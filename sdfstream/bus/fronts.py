"""What stands before the record batch in an Arrow stream, written once for many batches that have it in common.

An agent's batches hold the same dictionaries for hours: writing schema and dictionaries anew is two thirds of what
encoding a message of some twenty rows costs. Who makes such batches says so (`share`); the encoder writes the first of
them whole, remembers what stood before its rows, and writes of the others the rows alone. The octets are the same.
"""

from __future__ import annotations

from typing import Final
from weakref import ref

import pyarrow as pa

_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""Ends a stream."""


class SharedFront:
    """The front of all batches that share it: one topic, the very same dictionaries."""

    __slots__ = ("octets",)

    def __init__(self) -> None:
        self.octets = b""
        """Empty: no batch has been written yet."""


class _Sharing(ref):  # type: ignore[type-arg]  # weakref.ref is generic to the type checker only
    """A batch that may go at any time, and its front."""

    __slots__ = ("front", "key")
    front: SharedFront
    key: int


_SHARING: Final[dict[int, _Sharing]] = {}


def share(batch: pa.RecordBatch, front: SharedFront) -> None:
    """`batch` has exactly the columns of its topic, and the dictionaries of all others that share `front`."""
    sharing = _Sharing(batch, _forget)
    sharing.front, sharing.key = front, id(batch)
    _SHARING[id(batch)] = sharing


def encoded(batch: pa.RecordBatch) -> bytes | None:
    """The uncompressed stream of `batch`; None: its front is not known."""
    sharing = _SHARING.get(id(batch))
    if sharing is None or not sharing.front.octets:
        return None
    octets: bytes = b"".join((sharing.front.octets, batch.serialize(), _END))
    return octets


def learn(batch: pa.RecordBatch, stream: bytes) -> None:
    """`stream` is the uncompressed stream of `batch`: its front is that of all batches that share it."""
    sharing = _SHARING.get(id(batch))
    if sharing is None:
        return
    rows: bytes = batch.serialize().to_pybytes() + _END
    if stream.endswith(rows):
        sharing.front.octets = stream[: -len(rows)]


def _forget(sharing: _Sharing) -> None:
    _SHARING.pop(sharing.key, None)
