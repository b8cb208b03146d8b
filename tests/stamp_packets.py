"""Made-up STAMP packets: base packets, TLVs in any arrangement and state, right and wrong HMACs."""

from __future__ import annotations

import hashlib
import hmac
import random
from dataclasses import dataclass

from hypothesis import strategies as st

from sdfstream.probes.stamp import packet, tlv

KEY = b"a key"
_LENGTHS = {int(tlv.Tlv.TIMESTAMP_INFORMATION): 4, int(tlv.Tlv.CLASS_OF_SERVICE): 4,
            int(tlv.Tlv.FOLLOW_UP_TELEMETRY): 16, int(tlv.Tlv.HMAC): 16}  # fmt: skip
_TYPES = [0, 1, 1, 3, 4, 7, 8, 2, 99, 255]
_FLAGS = [0, 0, 0, 0x80, 0x80, 0x40, 0x20, 0xE0, 0x01, 0x1F]


@dataclass(frozen=True)
class Piece:
    """One TLV; `signed`: if an HMAC, the right one for what lies before it."""

    flags: int
    type: int
    value: bytes
    stated: int
    """What its length field says."""
    signed: bool


def piece(rng: random.Random) -> Piece:
    """A TLV, mostly well-formed."""
    kind = rng.choice(_TYPES)
    length = _LENGTHS.get(kind, rng.choice([0, 1, 4, 20]))
    if rng.random() < 0.06:
        length = rng.randrange(20)
    value = bytes(length) if rng.random() < 0.5 else rng.randbytes(length)
    stated = rng.choice([length + 1, 0xFFFF, 0]) if rng.random() < 0.06 else length
    return Piece(rng.choice(_FLAGS), kind, value, stated, rng.random() < 0.8)


def ours(rng: random.Random) -> list[Piece]:
    """Our own arrangement, in either mode, with or without padding, as a probe or as an answer."""
    flags, fill = rng.choice([0, 0x80]), rng.choice([bytes, rng.randbytes])
    made = [Piece(flags, kind, fill(n), n, True) for kind, n in ((7, 16), (4, 4), (3, 4))]
    if rng.random() < 0.7:
        made.append(Piece(flags, 8, bytes(16), 16, True))
    if rng.random() < 0.7:
        padding = rng.randrange(40)
        made.append(Piece(flags, 1, fill(padding), padding, True))
    return made


def any_pieces(rng: random.Random) -> list[Piece]:
    """TLVs of one packet: our own arrangement, the same changed in one place, or anything."""
    which = rng.randrange(8)
    if which < 5:
        made = ours(rng)
        if which < 3:
            at = rng.randrange(len(made) + 1)
            made[at : at + rng.randrange(2)] = [piece(rng)]
        return made
    return [piece(rng) for _ in range(rng.randrange(7) if which < 7 else 36)]


def mac_of(key: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA-256 truncated to 128 bits, by the standard library."""
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()[: packet.MAC_BYTES]


def assembled(base: bytes, tlvs: list[Piece], tail: bytes, key: bytes | None) -> bytes:
    """The packet, with its HMACs where a key is given: `base` is cut or filled with zeros."""
    mode = packet.mode_of(key)
    head = base[: mode.base_bytes].ljust(mode.base_bytes, b"\0")
    if key is not None:
        head = head[: mode.base_bytes - packet.MAC_BYTES]
        head += mac_of(key, head)
    behind = b""
    for piece in tlvs:
        value = piece.value
        if piece.type == tlv.Tlv.HMAC and piece.signed and len(value) == packet.MAC_BYTES:
            value = mac_of(key or KEY, head[:4], behind)
        behind += bytes([piece.flags, piece.type]) + piece.stated.to_bytes(2, "big") + value
    return head + behind + tail


def a_packet(rng: random.Random, key: bytes | None) -> bytes:
    """A whole packet, most with right HMACs; some with an octet changed, or cut."""
    base = rng.randbytes(112) if rng.random() < 0.7 else b""
    data = assembled(base, any_pieces(rng), rng.randbytes(rng.choice([0, 0, 0, 1, 3, 4, 7])), key)
    which = rng.randrange(10)
    if which == 0:
        at = rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    return data[: len(data) - rng.randrange(60)] if which == 1 else data


def packets(key: bytes | None, n: int) -> st.SearchStrategy[list[bytes]]:
    """`n` packets by a seed: Hypothesis draws one number, which is quick, and prints it."""

    def made(seed: int) -> list[bytes]:
        rng = random.Random(seed)
        return [a_packet(rng, key) for _ in range(n)]

    return st.integers(0, 2**32).map(made)
