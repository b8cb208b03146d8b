"""HMAC-SHA-256 truncated to 128 bits, over base packets and over TLVs (RFC 8762 section 4.4, RFC 8972 section 4.8).

The only per-packet Python of the engines: one call into OpenSSL per packet and HMAC, about 2 µs.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

import numpy as np

from sdfstream.probes.stamp import MAC_BYTES
from sdfstream.records.units import Bools, Int32s, Int64s, UInt8s

SEQ_BYTES = 4


def _digests(key: bytes, messages: Sequence[bytes]) -> UInt8s:
    whole = b"".join([hmac.digest(key, message, "sha256")[:MAC_BYTES] for message in messages])
    return np.frombuffer(whole, dtype=np.uint8).reshape(len(messages), MAC_BYTES)


def base_macs(key: bytes, data: UInt8s, mac_at: int) -> UInt8s:
    """HMAC of the first `mac_at` octets of every row of `data` (n, width): (n, 16)."""
    if not len(data):
        return np.empty((0, MAC_BYTES), np.uint8)
    whole = data[:, :mac_at].tobytes()
    return _digests(key, [whole[i : i + mac_at] for i in range(0, len(whole), mac_at)])


def tlv_macs(key: bytes, data: UInt8s, first_at: int, mac_tlv_at: Int32s | Int64s) -> UInt8s:
    """HMAC of the sequence number (octets 0..3) and all TLVs before the HMAC TLV of every row: (n, 16).

    Parameters
    ----------
    data : (n, width) uint8
    first_at : int
        Where the first TLV begins (the length of the base packet).
    mac_tlv_at : (n,) int
        Where the HMAC TLV's own header begins.
    """
    if not len(data):
        return np.empty((0, MAC_BYTES), np.uint8)
    width = data.shape[1]
    whole = data.tobytes()
    starts = range(0, len(whole), width)
    return _digests(
        key,
        [
            whole[i : i + SEQ_BYTES] + whole[i + first_at : i + end]
            for i, end in zip(starts, mac_tlv_at.tolist(), strict=True)
        ],
    )


def same(a: UInt8s, b: UInt8s) -> Bools:
    """Row by row equality of two (n, 16) arrays; takes the same time wherever they differ."""
    result: Bools = np.bitwise_or.reduce(a ^ b, axis=1) == 0
    return result
