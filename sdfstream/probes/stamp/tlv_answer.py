"""What a Session-Reflector does to the TLVs of the packets that it sends back (RFC 8972 section 4).

All work is done in place on a copy of the probes: understood TLVs are filled in and lose their U flag, unknown ones
keep their octets and get U, malformed ones get M and end the processing, and where the HMAC TLV does not verify
every TLV goes back unprocessed with I.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.probes.stamp import tlv
from sdfstream.probes.stamp.packet import MAC_BYTES, Fields, Mac, Mode, UInt64s, fields, layout_of, macs_equal
from sdfstream.records.units import Bools, Ecn, Int32s, Int64s, UInt8s, UInt32s
from sdfstream.stats import Counters

_REFUSED: Final = 0b01
_ECN_DONE: Final = 0b11
_ECN_REFUSED: Final = 0b10
_WORD: Final = layout_of(4, word=(">u4", 0))
_COS_AT: Final = 24
"""Where the first octet of the Class of Service value lies in `EXTENSION`."""
_FOLLOW_UP_VALUE_BYTES: Final = 12
"""Sequence number and time stamp."""
ALL_CLASSES: Final = np.ones(64, dtype=np.bool_)


@dataclass(slots=True)
class ProbeFacts:
    """What the reflector knows about n probes, (n,) each."""

    seq: Int64s
    """The answer's own number. It is written here, since the TLVs' HMAC covers it in either direction."""
    tos: UInt8s
    """As the probe arrived."""
    method_in: UInt8s
    """How T2 was made."""
    fu_seq: UInt32s
    fu_word: UInt64s
    """True sending time of an earlier answer, in the packet's format; 0: none."""
    fu_mode: UInt8s

    def of(self, rows: npt.NDArray[np.intp]) -> ProbeFacts:
        """Those of some rows."""
        return ProbeFacts(
            self.seq[rows],
            self.tos[rows],
            self.method_in[rows],
            self.fu_seq[rows],
            self.fu_word[rows],
            self.fu_mode[rows],
        )


class TlvAnswerer:
    """Processes TLVs of probes.

    Parameters
    ----------
    mode, mac
        Authenticated mode needs HMACs; in unauthenticated mode an HMAC TLV cannot be verified and so has failed.
    sync : int
        `tlv.SyncSource` of this host's clock.
    classes : (64,) bool
        DSCPs in which answers may leave; others are refused (RPD) and the answer leaves in the class of the probe.
    """

    def __init__(
        self, mode: Mode, mac: Mac | None, counters: Counters, *, sync: int = 0, classes: Bools = ALL_CLASSES
    ) -> None:
        self._mode = mode
        self._mac = mac
        self._counters = counters
        self._sync = sync
        self._classes = classes
        least = tlv.least_payload_bytes(mode)
        self._mac_at = least - tlv.trailer_bytes(mode)
        self._padding_at = least

    def class_sent(self, out: UInt8s, ours: Bools, tos: UInt8s) -> UInt8s:
        """(n,) the class a probe says it left in (DSCP1 of a Class of Service TLV where our own sender puts it),
        else the one it arrived in.
        """
        dscp: UInt8s = (tos >> 2).astype(np.uint8)
        if np.count_nonzero(ours):
            asked = out[:, self._mode.base_bytes + _COS_AT] >> 2
            dscp = np.where(ours, asked, dscp)
        return dscp

    def answer(self, out: UInt8s, length: Int32s, ours: Bools, facts: ProbeFacts) -> UInt8s:
        """Process the TLVs of `out` (n, width) in place and number the answers; returns the TOS octets they leave with.

        `ours`: rows in our own arrangement (`tlv.arranged`).
        """
        if self._mac is not None:
            at = np.full(len(out), self._mac_at, dtype=np.int32)
            rows = np.flatnonzero(ours)
            ours = ours.copy()
            ours[rows] = self._verified(out[rows], at[rows], self._mac)
        if ours.all():
            return self._answer_ours(out, length, facts)
        tos = np.empty(len(out), dtype=np.uint8)
        for rows, fill in ((np.flatnonzero(ours), self._answer_ours), (np.flatnonzero(~ours), self._answer_any)):
            if len(rows):
                chosen = out[rows]
                tos[rows] = fill(chosen, length[rows], facts.of(rows))
                out[rows] = chosen
        return tos

    def _verified(self, data: UInt8s, at: Int32s, mac: Mac) -> Bools:
        carried = tlv.gather(data, np.arange(len(data)), at + tlv.HEADER_BYTES, MAC_BYTES)
        return macs_equal(carried, mac.of_tlvs(data, self._mode, at))

    def _answer_ours(self, out: UInt8s, length: Int32s, facts: ProbeFacts) -> UInt8s:
        fields(out, _WORD)["word"] = facts.seq
        extension = fields(out, tlv.EXTENSION, self._mode.base_bytes)
        tos = self._fill(extension, facts)
        extension["fu_head"] = tlv.FU_HEAD
        extension["cos_head"] = tlv.COS_HEAD
        extension["ti_head"] = tlv.TI_HEAD
        if self._mac is not None:
            fields(out, _WORD, self._mac_at)["word"] = tlv.MAC_HEAD
            at = np.full(len(out), self._mac_at, dtype=np.int32)
            first = self._mac_at + tlv.HEADER_BYTES
            out[:, first : first + MAC_BYTES] = self._mac.of_tlvs(out, self._mode, at)
        out[:, self._padding_at : self._padding_at + 1] = 0  # behind the end of a packet without padding
        return tos

    def _answer_any(self, out: UInt8s, length: Int32s, facts: ProbeFacts) -> UInt8s:
        found = tlv.walk(out, self._mode.base_bytes, length)
        mac_at, failed = self._integrity(out, found)
        fields(out, _WORD)["word"] = facts.seq
        self._counters.add("refused", "tlv-integrity", int(np.count_nonzero(failed)))
        self._counters.add("refused", "tlv-malformed", int(np.count_nonzero(found.malformed)))
        self._flag(out, found, failed)
        self._zero_malformed_follow_ups(out, found, length)
        raw = np.zeros((len(out), tlv.EXTENSION.itemsize), dtype=np.uint8)
        extension = fields(raw, tlv.EXTENSION)
        arranged = [(np.where(failed, -1, found.first(kind)), at, count) for kind, at, count in tlv.ARRANGEMENT]
        for where, at, count in arranged:
            rows = np.flatnonzero(where >= 0)
            raw[rows, at : at + count] = tlv.gather(out, rows, where[rows], count)
        tos = self._fill(extension, facts, (arranged[1][0] >= 0))
        for where, at, count in arranged:
            rows = np.flatnonzero(where >= 0)
            out[rows[:, None], where[rows][:, None] + np.arange(count)] = raw[rows, at : at + count]
        if self._mac is not None:
            rows = np.flatnonzero((mac_at >= 0) & ~failed)
            macs = self._mac.of_tlvs(out[rows], self._mode, mac_at[rows])
            out[rows[:, None], mac_at[rows][:, None] + tlv.HEADER_BYTES + np.arange(MAC_BYTES)] = macs
        return tos

    def _integrity(self, out: UInt8s, found: tlv.Walk) -> tuple[Int32s, Bools]:
        mac_at, lawful = tlv.mac_tlv_at(found)
        if self._mac is None:
            return mac_at, mac_at >= 0
        rows = np.flatnonzero(mac_at >= 0)
        good = np.zeros(len(out), dtype=np.bool_)
        good[rows] = self._verified(out[rows], mac_at[rows], self._mac)
        needed = ((found.at >= 0) & (found.type != tlv.Tlv.EXTRA_PADDING)).any(axis=1)
        return mac_at, needed & ~(good & lawful)

    @staticmethod
    def _zero_malformed_follow_ups(out: UInt8s, found: tlv.Walk, length: Int32s) -> None:
        """A Follow-Up Telemetry TLV of a wrong length goes back with what it has of number and time zeroed."""
        for row, column in np.argwhere(found.malformed & (found.type == tlv.Tlv.FOLLOW_UP_TELEMETRY)).tolist():
            at = int(found.at[row, column]) + tlv.HEADER_BYTES
            out[row, at : min(at + _FOLLOW_UP_VALUE_BYTES, int(length[row]))] = 0

    @staticmethod
    def _flag(out: UInt8s, found: tlv.Walk, failed: Bools) -> None:
        """Write the flags of every TLV found."""
        rows, column = np.nonzero(found.at >= 0)
        at = found.at[rows, column]
        kind = found.type[rows, column]
        again = np.zeros(len(rows), dtype=np.bool_)
        for known, _, _ in tlv.ARRANGEMENT:
            # only the first well-formed TLV of a type is filled in; a further one was not processed
            again |= (kind == known) & ~found.malformed[rows, column] & (at != found.first(known)[rows])
        flags = np.where(tlv.KNOWN[kind] & ~again, 0, tlv.U) | np.where(found.malformed[rows, column], tlv.M, 0)
        out[rows, at] = np.where(failed[rows], out[rows, at] & tlv.U | tlv.I, flags)

    def _fill(self, extension: Fields, facts: ProbeFacts, classed: Any = True) -> UInt8s:
        """Fill in all three TLVs; `classed`: where there is a Class of Service TLV. Returns the TOS of the answers."""
        extension["fu_seq"] = facts.fu_seq
        extension["fu_at"] = facts.fu_word
        extension["fu_mode"] = facts.fu_mode
        extension["sync_in"] = extension["sync_out"] = self._sync
        extension["method_in"] = facts.method_in
        extension["method_out"] = tlv.Method.CONTROL_PLANE
        asked = extension["cos"].astype(np.int64)
        dscp1, ec1 = asked >> 26, asked >> 14 & 3
        tos_in = facts.tos.astype(np.int64)
        dscp2 = tos_in >> 2
        allowed = self._classes[dscp1]
        may_mark = ec1 != Ecn.CE
        # DSCP2 and EC2 are the TOS octet as it came: 6 bits and 2 bits side by side in the word as well
        word = dscp1 << 26 | tos_in << 18 | ec1 << 14 | np.where(may_mark, _ECN_DONE, _ECN_REFUSED) << 12
        extension["cos"] = word | np.where(allowed, 0, _REFUSED << 16)
        dscp_out = np.where(classed & allowed, dscp1, dscp2)
        ecn_out = np.where(classed & may_mark, ec1, Ecn.NOT_ECT)
        tos: UInt8s = (dscp_out << 2 | ecn_out).astype(np.uint8)
        return tos
