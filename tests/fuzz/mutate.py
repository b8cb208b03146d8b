"""Damage: bytes flipped, cut, spliced, repeated; JSON whose values are of another kind; Arrow streams that lie."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from tests.fuzz.values import Draw

TOKENS: Final = (
    b"1e400", b"-1e400", b"NaN", b"Infinity", b"9223372036854775808", b'"\\ud800"', b'"\\u0000"', b"[" * 600, b"{}",
    b"null", b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"1" * 5000, b"0x10", b"-0", b'{"a":' * 400, b"true", b'""',
    b"0001-01-01T00:00:00Z", b"9999-12-31T23:59:59.999999999+23:59", b"2026-02-30T00:00:00Z", b'"', b"\\", b",", b"}",
)  # fmt: skip


def flip(rng: random.Random, raw: bytes, other: bytes) -> bytes:
    """Some bits are flipped."""
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def overwrite(rng: random.Random, raw: bytes, other: bytes) -> bytes:
    """Some bytes are of an edge."""
    data = bytearray(raw)
    at = rng.randrange(len(data))
    word = rng.choice((b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff" * 4, b"\x00" * 8, b"\x7f" + b"\xff" * 7))
    data[at : at + len(word)] = word
    return bytes(data)


def cut(rng: random.Random, raw: bytes, other: bytes) -> bytes:
    """The end is missing."""
    return raw[: rng.randrange(len(raw))]


def drop(rng: random.Random, raw: bytes, other: bytes) -> bytes:
    """A piece is missing."""
    at = rng.randrange(len(raw))
    return raw[:at] + raw[at + rng.choice((1, 2, 8, 64)) :]


def repeat(rng: random.Random, raw: bytes, other: bytes) -> bytes:
    """A piece comes more than once."""
    at = rng.randrange(len(raw))
    piece = raw[at : at + rng.choice((1, 8, 64, 512))]
    return raw[:at] + piece * rng.choice((2, 3, 50)) + raw[at:]


def splice(rng: random.Random, raw: bytes, other: bytes) -> bytes:
    """The beginning of one, the end of another."""
    return raw[: rng.randrange(len(raw))] + other[rng.randrange(len(other) or 1) :]


def insert(rng: random.Random, raw: bytes, other: bytes) -> bytes:
    """A token stands where none belongs."""
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + rng.choice(TOKENS) + raw[at + rng.choice((0, 0, 1, 4)) :]


def noise(rng: random.Random, raw: bytes, other: bytes) -> bytes:
    """Nothing of it is left."""
    return rng.randbytes(rng.choice((0, 1, 7, 64, 700)))


_BYTES: Final[tuple[Callable[[random.Random, bytes, bytes], bytes], ...]] = (
    flip, flip, overwrite, cut, drop, repeat, splice, insert, insert, noise,
)  # fmt: skip


def damaged(rng: random.Random, raw: bytes, other: bytes = b"") -> bytes:
    """`raw` damaged once, sometimes again and again."""
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        raw = rng.choice(_BYTES)(rng, raw, other or raw) if raw else rng.randbytes(9)
    return raw[: 1 << 20]


# -- JSON ---------------------------------------------------------------------------------------------------------


def altered(draw: Draw, value: Any) -> Any:
    """A copy of a JSON value where a node or two is anything, gone, doubled, or deep."""
    root = [_copy(value)]
    for _ in range(draw.rng.choice((1, 1, 2, 3))):
        holder, key = _node(draw.rng, root)
        dice = draw.rng.random()
        if dice < 0.12 and holder is not root:
            del holder[key]
        elif dice < 0.2 and isinstance(holder, list) and holder is not root:
            holder.insert(key, holder[key])
        elif dice < 0.23:
            holder[key] = _deep(draw.rng)
        elif dice < 0.3 and isinstance(holder, dict):
            holder[draw.key()] = draw.anything()
        else:
            holder[key] = draw.anything()
    return root[0]


def _node(rng: random.Random, root: list[Any]) -> tuple[Any, Any]:
    """A container and the key of one of its values, somewhere below `root`."""
    holder: Any = root
    key: Any = 0
    while True:
        below = holder[key]
        if not isinstance(below, dict | list) or not below or rng.random() < 0.15:
            return holder, key
        holder = below
        key = rng.choice(list(below)) if isinstance(below, dict) else rng.randrange(len(below))


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    return [_copy(part) for part in value] if isinstance(value, list | tuple) else value


def _deep(rng: random.Random) -> Any:
    value: Any = 0
    for _ in range(rng.choice((8, 40, 120, 400))):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def dumped(value: Any, *, ascii_: bool = False) -> bytes:
    """JSON of a drawn value; a lone surrogate survives as an escape."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


# -- Arrow --------------------------------------------------------------------------------------------------------


def stream(batches: list[pa.RecordBatch], compression: str | None = None) -> bytes:
    """An Arrow IPC stream of `batches`, which are alike."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(use_threads=False, compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for one in batches:
            writer.write_batch(one)
    raw: bytes = sink.getvalue().to_pybytes()
    return raw


_TYPES: Final = (pa.int64(), pa.uint8(), pa.float32(), pa.utf8(), pa.large_utf8(), pa.null(), pa.bool_(), pa.binary())


def foreign(draw: Draw, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Batches of other columns: one gone, of another type, twice, unknown; more batches than one, or a bomb."""
    rng, rows = draw.rng, batch.num_rows
    columns = list(zip(batch.schema.names, batch.columns, strict=True))
    at = rng.randrange(len(columns))
    dice = rng.randrange(7)
    if dice == 0:
        del columns[at]
    elif dice == 1:
        columns[at] = (columns[at][0], pa.nulls(rows, rng.choice(_TYPES)))
    elif dice == 2:
        columns.append(columns[at])
    elif dice == 3:
        columns.append((draw.text(), pa.nulls(rows)))
    elif dice == 4:
        rng.shuffle(columns)
    elif dice == 5:
        return [batch, batch]
    else:
        return [_bomb(batch, rng.choice((2_000, 20_000) if rng.random() < 0.95 else (200_000,)))]
    made = pa.RecordBatch.from_arrays([array for _, array in columns], names=[name for name, _ in columns])
    return [made]


def _bomb(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    """Many rows that compress to nothing."""
    if not batch.num_rows:
        return batch
    return batch.take(pa.array([0] * rows, pa.int32()))
