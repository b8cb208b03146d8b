"""What a Session-Sender takes from the TLVs of answers."""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.probes import tlv
from sdfstream.probes.mac import Mac, same
from sdfstream.probes.stamp import Fields, Mode, fields
from sdfstream.records.units import Bools, Int32s, UInt8s
from sdfstream.stats import Counters

_REFUSED: Final = (tlv.U | tlv.M | tlv.I) << 24


def read(data: UInt8s, length: Int32s, mode: Mode, mac: Mac | None, counters: Counters) -> Fields:
    """The TLVs of answers as (n,) `EXTENSION`; a TLV that may not be used has header 0.

    Not to be used: absent, flagged U, M or I by the reflector, malformed, behind a malformed one, or under an HMAC
    TLV that does not verify (RFC 8972 sections 4 and 4.8; counted as ``tlv-integrity``).
    """
    if tlv.arranged(data, length, mode).all():
        found = fields(data, tlv.EXTENSION, mode.base_bytes).copy()
        if not ((found["fu_head"] | found["cos_head"] | found["ti_head"]) & _REFUSED).any():
            if mac is not None:
                at = np.full(len(data), tlv.least_payload_bytes(mode) - tlv.trailer_bytes(mode), dtype=np.int32)
                _drop(found, ~_verified(data, at, mode, mac), counters)
            return found
    return _rearranged(data, length, mode, mac, counters)


def _drop(found: Fields, broken: Bools, counters: Counters) -> None:
    n = int(np.count_nonzero(broken))
    if n:
        counters.add("refused", "tlv-integrity", n)
        found[broken] = np.zeros((), dtype=found.dtype)


def _verified(data: UInt8s, at: Int32s, mode: Mode, mac: Mac) -> Bools:
    rows = np.arange(len(data))
    carried = tlv.gather(data, rows, at + tlv.HEADER_BYTES, 16)
    return same(carried, mac.of_tlvs(data, mode, at))


def _rearranged(data: UInt8s, length: Int32s, mode: Mode, mac: Mac | None, counters: Counters) -> Fields:
    """TLVs of any arrangement, brought into that of our own sender."""
    found = tlv.walk(data, mode.base_bytes, length)
    flags = tlv.flags(data, found)
    broken: Bools = ((flags & tlv.I) != 0).any(axis=1)
    if mac is not None:
        broken |= _unproven(data, found, mode, mac)
    _stop_behind(found, (flags & tlv.M) != 0)
    raw = np.zeros((len(data), tlv.EXTENSION.itemsize), dtype=np.uint8)
    for kind, place, count in tlv.PLACES:
        at = found.first(kind)
        rows = np.flatnonzero(at >= 0)
        raw[rows, place : place + count] = tlv.gather(data, rows, at[rows], count)
    result = fields(raw, tlv.EXTENSION)
    for name in ("fu_head", "cos_head", "ti_head"):
        result[name] = np.where(result[name] & _REFUSED, 0, result[name])
    _drop(result, broken, counters)
    return result


def _stop_behind(found: tlv.Walk, malformed: Bools) -> None:
    """Take out of `found` everything from a TLV on that the reflector called malformed."""
    if malformed.any():
        found.at[np.logical_or.accumulate(malformed, axis=1)] = -1


def _unproven(data: UInt8s, found: tlv.Walk, mode: Mode, mac: Mac) -> Bools:
    """Rows that carry more than Extra Padding without a right HMAC TLV in its right place."""
    mac_at, lawful = tlv.mac_tlv_at(found)
    rows = np.flatnonzero(mac_at >= 0)
    good = np.zeros(len(data), dtype=np.bool_)
    good[rows] = _verified(data[rows], mac_at[rows], mode, mac)
    needed = ((found.at >= 0) & (found.type != tlv.Tlv.EXTRA_PADDING)).any(axis=1)
    result: Bools = needed & ~(good & lawful)
    return result
