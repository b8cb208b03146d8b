"""Bodies of HTTP messages: chunks and codings. Pure, over anything that has ``read`` and ``readline``."""

from __future__ import annotations

import gzip
import zlib
from typing import Final, Protocol

import pyarrow as pa

_CODECS: Final = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd", "lz4": "lz4", "br": "brotli"}
_COMPRESS_FROM_BYTES: Final = 1400
"""Below one packet compression gains nothing."""


class Source(Protocol):
    """The connection that a body is read from."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes."""

    def readline(self, size: int, /) -> bytes:
        """One line with its end."""


class TooLargeError(Exception):
    """The body is larger than it may be."""


def read_body(source: Source, headers: dict[str, str], limit: int) -> bytes:
    """The body behind lower-case `headers`, whole and decoded.

    Raises
    ------
    TooLargeError
        It is larger than `limit` bytes, before or after decoding.
    ValueError, pyarrow.ArrowException, zlib.error
        It is not what the headers say.
    """
    if headers.get("transfer-encoding", "").lower() == "chunked":
        raw = _chunked(source, limit)
    else:
        length = int(headers.get("content-length", "0"))
        if not 0 <= length <= limit:
            raise TooLargeError
        raw = source.read(length)
        if len(raw) != length:
            raise ValueError(f"{len(raw)} of {length} bytes came")
    coding = headers.get("content-encoding", "identity").lower()
    return raw if coding in ("identity", "") else _decoded(raw, coding, limit)


def encode(body: bytes, accepted: str) -> tuple[bytes, str | None]:
    """`body` in the first of zstd and gzip that an Accept-Encoding header names, and that coding's name."""
    wanted = {coding.partition(";")[0] for coding in accepted.replace(" ", "").split(",")}
    if len(body) < _COMPRESS_FROM_BYTES:
        return body, None
    if "zstd" in wanted:
        return bytes(pa.Codec("zstd").compress(body)), "zstd"
    if "gzip" in wanted:
        return gzip.compress(body, compresslevel=3, mtime=0), "gzip"
    return body, None


def _chunked(source: Source, limit: int) -> bytes:
    """A body in chunks (RFC 9112 section 7.1)."""
    chunks, total = [], 0
    while True:
        size = int(source.readline(1 << 10).split(b";")[0], 16)
        total += size
        if size < 0 or total > limit:
            raise TooLargeError
        chunk = source.read(size)
        if len(chunk) != size:
            raise ValueError("the last chunk is cut short")
        chunks.append(chunk)
        line = source.readline(1 << 10)
        if size == 0:
            while line not in (b"\r\n", b"\n", b""):  # trailers
                line = source.readline(1 << 16)
            return b"".join(chunks)


def _decoded(raw: bytes, coding: str, limit: int) -> bytes:
    if coding == "deflate":
        body = zlib.decompressobj().decompress(raw, limit + 1)
    elif coding in _CODECS:
        with pa.CompressedInputStream(pa.BufferReader(raw), _CODECS[coding]) as reader:
            body = reader.read(limit + 1)
    else:
        raise ValueError(f"coding {coding[:20]!r} is not known")
    if len(body) > limit:
        raise TooLargeError
    return body
