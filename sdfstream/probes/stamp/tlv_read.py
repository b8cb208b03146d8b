"""What a Session-Sender takes from the TLVs of answers."""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.probes.stamp import tlv
from sdfstream.probes.stamp.mac import Mac, same
from sdfstream.probes.stamp.packet import MAC_BYTES, Mode, fields
from sdfstream.records.units import Bools, Int32s, UInt8s
from sdfstream.stats import Counters

_REFUSED: Final = (tlv.U | tlv.M | tlv.I) << 24


def read(data: UInt8s, length: Int32s, mode: Mode, mac: Mac | None, counters: Counters) -> UInt8s:
    """The TLVs of answers as the octets of `EXTENSION`, (n, 36); one that may not be used has header 0.

    Not to be used: absent, flagged U, M or I by the reflector, malformed, behind a malformed one, or under an HMAC
    TLV that does not verify (RFC 8972 sections 4 and 4.8; counted as ``tlv-integrity``). The result may be a view
    of `data`.
    """
    if not _clean(data, length, mode, mac):
        return _rearranged(data, length, mode, mac, counters)
    result = data[:, mode.base_bytes : mode.base_bytes + tlv.EXTENSION.itemsize]
    if mac is not None:
        at = np.full(len(data), tlv.least_payload_bytes(mode) - tlv.trailer_bytes(mode), dtype=np.int32)
        broken = ~_verified(data, at, mode, mac)
        if broken.any():
            result = result.copy()
            _drop(result, broken, counters)
    return result


def _clean(data: UInt8s, length: Int32s, mode: Mode, mac: Mac | None) -> bool:
    """Whether all rows are in our own arrangement and nothing in them is flagged."""
    if data.shape[1] < mode.base_bytes + tlv.EXTENSION.itemsize:
        return False
    found = fields(data, tlv.EXTENSION, mode.base_bytes)
    clean: Bools = found["fu_head"] == tlv.FU_HEAD
    clean &= found["cos_head"] == tlv.COS_HEAD
    clean &= found["ti_head"] == tlv.TI_HEAD
    clean &= length >= mode.base_bytes + tlv.EXTENSION.itemsize
    # with an HMAC TLV it also matters what lies behind
    return bool(clean.all()) and (mac is None or bool(tlv.arranged(data, length, mode).all()))


def _drop(octets: UInt8s, broken: Bools, counters: Counters) -> None:
    n = int(np.count_nonzero(broken))
    if n:
        counters.add("refused", "tlv-integrity", n)
        octets[broken] = 0


def _verified(data: UInt8s, at: Int32s, mode: Mode, mac: Mac) -> Bools:
    rows = np.arange(len(data))
    carried = tlv.gather(data, rows, at + tlv.HEADER_BYTES, MAC_BYTES)
    return same(carried, mac.of_tlvs(data, mode, at))


def _rearranged(data: UInt8s, length: Int32s, mode: Mode, mac: Mac | None, counters: Counters) -> UInt8s:
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
        # reserved flag bits are ignored on receipt
        result[name] = np.where(result[name] & _REFUSED, 0, result[name] & tlv.HEAD_MASK)
    _drop(raw, broken, counters)
    return raw


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
