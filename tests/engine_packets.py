"""The packet engine's packets as Python sees them: the C functions of `packet.h` and `sha256.h` under plain calls."""

from __future__ import annotations

import ctypes
from ctypes import c_bool, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any

import numpy as np

from sdfstream.probes.engine.engine_io import datagram_records
from sdfstream.probes.engine.library_io import library
from sdfstream.probes.engine.reflector_layouts import CLOCK

_P = c_void_p
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "pe_sha256_begin": (None, (_P,)),
    "pe_sha256_add": (None, (_P, _P, c_size_t)),
    "pe_sha256_end": (None, (_P, _P)),
    "pe_mac_key": (None, (_P, _P, c_size_t)),
    "pe_mac_of": (None, (_P, _P, c_size_t, _P, c_size_t, _P)),
    "pe_mac_equal": (c_bool, (_P, _P)),
    "pe_codec_begin": (None, (_P, _P, c_size_t, c_uint16)),
    "pe_stamp_of": (c_uint64, (c_int64, c_uint16)),
    "pe_ns_of": (c_int64, (c_uint64, c_uint16)),
    "pe_probe_octets": (c_uint32, (_P, c_uint32)),
    "pe_build_probe": (c_uint32, (_P, _P, c_uint32, c_uint64, _P)),
    "pe_read_answer": (ctypes.c_int, (_P, _P, _P)),
    "pe_proven": (c_bool, (_P, _P)),
    "pe_read_tlvs": (c_bool, (_P, _P, _P)),
    "pe_is_answer": (c_bool, (_P, _P)),
    "pe_clock_reading": (c_int64, (_P, c_int64)),
    "pe_address_key": (c_uint64, (_P, c_uint64)),
}
PROBE = np.dtype([("ssid", "u2"), ("length_octets", "u2"), ("dscp1", "u1"), ("ec1", "u1")], align=True)
ANSWER = np.dtype(
    [
        ("t2_ns", "i8"),
        ("t3_ns", "i8"),
        ("t1_word", "u8"),
        ("seq", "u4"),
        ("sender_seq", "u4"),
        ("error", "u2"),
        ("ssid", "u2"),
        ("ttl", "u1"),
        ("t2_kind", "u1"),
        ("classed", "?"),
        ("dscp_fwd", "u1"),
        ("ecn_fwd", "u1"),
        ("follows_up", "?"),
        ("fu_kind", "u1"),
        ("fu_seq", "u4"),
        ("fu_at_ns", "i8"),
    ],
    align=True,
)
_ROOM = 4_096
"""Octets for a hash, an HMAC or a codec: more than any takes."""


@cache
def functions() -> ctypes.CDLL:
    """The library, with the types of these functions set."""
    found = library()
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


def sha256(*pieces: bytes) -> bytes:
    """SHA-256 of the pieces, one behind the other."""
    state, digest = (c_uint8 * _ROOM)(), (c_uint8 * 32)()
    c = functions()
    c.pe_sha256_begin(state)
    for piece in pieces:
        c.pe_sha256_add(state, piece, len(piece))
    c.pe_sha256_end(state, digest)
    return bytes(digest)


def hmac_sha256_128(key: bytes, first: bytes, second: bytes = b"") -> bytes:
    """HMAC-SHA-256 truncated to 128 bits."""
    mac, made = (c_uint8 * _ROOM)(), (c_uint8 * 16)()
    c = functions()
    c.pe_mac_key(mac, key, len(key))
    c.pe_mac_of(mac, first, len(first), second, len(second), made)
    return bytes(made)


def clock_reading(system_ns: int, **clock: Any) -> int:
    """What a clock of these settings (`reflector_layouts.CLOCK`) shows."""
    record = np.zeros(1, dtype=CLOCK)
    knots = np.array(clock.pop("knots_ns", []), dtype=np.int64)
    for name, value in clock.items():
        record[name] = value
    record["knots_ns"], record["knots"], record["wrong"] = knots.ctypes.data, len(knots), True
    return int(functions().pe_clock_reading(record.ctypes.data, system_ns))


class Codec:
    """`pe_codec` of a key (None: unauthenticated mode) and an error estimate."""

    def __init__(self, key: bytes | None, error: int) -> None:
        self._codec = (c_uint8 * _ROOM)()
        functions().pe_codec_begin(self._codec, key, len(key or b""), error)

    def octets(self, wanted: int) -> int:
        """Length of the probe that `wanted` becomes."""
        return int(functions().pe_probe_octets(self._codec, wanted))

    def probe(self, seq: int, t1_word: int, **probe: int) -> bytes:
        """Octets of a probe (`PROBE`)."""
        record = np.zeros(1, dtype=PROBE)
        for name, value in probe.items():
            record[name] = value
        out = np.full(probe["length_octets"] + 8, 0xEE, dtype=np.uint8)
        length = functions().pe_build_probe(self._codec, record.ctypes.data, seq, t1_word, out.ctypes.data)
        assert (out[length:] == 0xEE).all(), "written beyond the end"
        return bytes(out[:length])

    def is_answer(self, data: bytes) -> bool:
        """Whether a packet is itself an answer."""
        return bool(functions().pe_is_answer(self._codec, data))

    def read(self, data: bytes, length: int | None = None) -> tuple[str, dict[str, int]]:
        """What becomes of an answer: a reason, "hmac", "tlv-integrity" or "", and what it says.

        The octets lie at the end of their memory, so that a sanitizer sees a read beyond them.
        """
        c = functions()
        memory = np.frombuffer(data, dtype=np.uint8).reshape(1, -1).copy()
        datagram = datagram_records(memory, np.array([len(data) if length is None else length]))
        answer = np.full(ANSWER.itemsize, 0xEE, dtype=np.uint8)
        reason = c.pe_read_answer(self._codec, datagram.ctypes.data, answer.ctypes.data)
        if reason:
            return c.pe_reason_name(reason).decode(), {}
        if not c.pe_proven(self._codec, datagram.ctypes.data):
            return "hmac", {}
        usable = c.pe_read_tlvs(self._codec, datagram.ctypes.data, answer.ctypes.data)
        said = answer.view(ANSWER)[0]
        return "" if usable else "tlv-integrity", {name: int(said[name]) for name in ANSWER.names or ()}
