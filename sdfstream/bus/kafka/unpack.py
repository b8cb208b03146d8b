"""Compressed batches of Kafka records, decompressed within a bound: 29 KB of Zstandard can be gigabytes.

The client decompresses whatever a broker hands out, and a broker takes from any producer what is small while it is
compressed. So a batch is decompressed here, piece by piece, and given to the client as one that is not compressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import cramjam
import pyarrow as pa

MOST_BYTES: Final = 128 << 20
"""Of a batch, decompressed: twice the largest message that may be configured."""
MOST_GROWTH: Final = 256
"""Batches of heartbeats of one host, which are nearly the same, shrink to a sixtieth."""
_SMALL_BYTES: Final = 8 << 20
"""What any batch may be: the largest message by default (`KafkaConfig.max_message_bytes`)."""
_PIECE_BYTES: Final = 1 << 20
_ATTRIBUTES_AT: Final = 21
_HEADER_BYTES: Final = 61
_MAGIC_AT: Final = 16
_CODEC_MASK: Final = 7
_SNAPPY: Final = 2
_STREAMS: Final = {1: "gzip", 3: "lz4", 4: "zstd"}
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_BYTES: Final = 16


def plain(raw: memoryview) -> memoryview:
    """A batch of records as it is, or decompressed where it is compressed.

    Raises
    ------
    ValueError
        It would be larger than the bound, or is compressed in a way of before Kafka 0.11, or by a codec not known.
    Exception
        What the decompressors raise at bytes that are none of theirs.
    """
    magic = raw[_MAGIC_AT]
    codec = raw[_ATTRIBUTES_AT + 1 if magic >= 2 else _MAGIC_AT + 1] & _CODEC_MASK
    if not codec:
        return raw
    if magic < 2:
        raise ValueError("a compressed batch of an old format")
    body = raw[_HEADER_BYTES:]
    most = min(MOST_BYTES, _SMALL_BYTES + MOST_GROWTH * len(body))
    if codec == _SNAPPY:
        pieces = _snappy(bytes(body), most)
    elif codec in _STREAMS:
        pieces = _stream(_STREAMS[codec], body)
    else:
        raise ValueError(f"codec {codec} is not known")
    made = bytearray(raw[:_HEADER_BYTES])
    made[_ATTRIBUTES_AT + 1] &= ~_CODEC_MASK
    for piece in pieces:
        made += piece
        if len(made) - _HEADER_BYTES > most:
            raise ValueError(f"{len(body)} bytes are more than {most} decompressed")
    return memoryview(bytes(made))


def _stream(codec: str, body: memoryview) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(body)), codec) as stream:
        while piece := stream.read(_PIECE_BYTES):
            yield piece


def _snappy(body: bytes, most: int) -> Iterator[bytes]:
    """Blocks say their size, and hold no more; the framing is that of the Java library, where there is any."""
    if not body.startswith(_XERIAL):
        yield _block(body, most)
        return
    at = _XERIAL_BYTES
    while at < len(body):
        (size,) = struct.unpack_from("!i", body, at)
        if not 0 < size <= len(body) - at - 4:
            raise ValueError(f"a block of {size} bytes with {len(body) - at - 4} left")
        yield _block(body[at + 4 : at + 4 + size], most)
        at += 4 + size


def _block(block: bytes, most: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > most:
        raise ValueError(f"a block of more than {most} bytes decompressed")
    return bytes(cramjam.snappy.decompress_raw(block))
