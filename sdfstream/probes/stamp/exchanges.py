"""Exchanges in transit: one ring per path, all rings in preallocated arrays; to which of them an answer belongs.

The slot of an exchange is ``first[path] + (seq & mask[path])``. A ring is as deep as the time-out, the wait for the
follow-up and the longest expected pause between two flushes need; a probe that finds its slot still in use pushes
the old exchange out, counted as ``shed``.

An answer names its path by socket and SSID (`PathIndex`) and its exchange by sequence number (`Exchanges.match`). Its
octets are stored (base packet, and TLVs in our own arrangement, `AnswerTlvs`) and decoded when its row is written: a
flush decodes ten batches in one go. A follow-up is stored as the slot of the answer that carried it, under the
*reflector's* sequence number: it may come before the answer it belongs to (reordering), and a stateful reflector
numbers answers by itself.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.probes.stamp import packet, tlv
from sdfstream.probes.stamp.datagrams import Received, UInt64s, address_keys
from sdfstream.probes.stamp.packet import MAC_BYTES, BatchVerdict, Fields, Mac, Mode, fields, macs_equal
from sdfstream.probes.stamp.paths import Paths
from sdfstream.records.units import ABSENT_NS, NS_PER_S, Bools, Int32s, Int64s, StampKind, UInt8s
from sdfstream.stats import Counters

FREE: Final = 0
SENT: Final = 1
ANSWERED: Final = 2
DONE: Final = 3
"""Answered and handed out as a row; a further copy is a duplicate."""
LOST: Final = 4
"""Timed out and handed out as a row; an answer comes too late."""

ARRIVAL: Final = np.dtype(
    [
        ("answered_at", "i8"),  # scheduling clock
        ("t4_at", "i8"),  # system clock or NIC
        ("t4_user", "i8"),  # system clock
        ("t4_kind", "u1"),
        ("tos", "u1"),
        ("ttl", "u1"),
    ],
    align=True,
)

MAX_TIMEOUT_NS: Final = NS_PER_S
TIMEOUT_INTERVALS: Final = 5
FLUSH_PAUSE_NS: Final = NS_PER_S
"""The longest pause between two calls of ``rows`` that loses nothing."""
JITTER: Final = 0.25
"""Pacing: interval · uniform(1 − JITTER, 1 + JITTER)."""
WAIT_INTERVALS: Final = 1.5
"""How long an answered exchange waits for its follow-up, which comes with the path's next answer: the longest
interval that the jitter allows, and a quarter more for a round trip that grew."""


def timeout_ns(interval_ns: Int64s) -> Int64s:
    """When an unanswered probe is given up: min(1 s, 5 intervals)."""
    return np.minimum(MAX_TIMEOUT_NS, TIMEOUT_INTERVALS * interval_ns)


_PER_SLOT: Final = (
    *("state", "seq", "sent_at", "t1_word", "t1_user", "t1_at", "t1_kind"),
    *("arrival", "_base", "_extension", "_carrier", "_mark"),
)


_REFUSED: Final = (tlv.U | tlv.M | tlv.I) << 24


class PathIndex:
    """Finds the path that an answer belongs to."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        socket = paths.socket.astype(np.int64)
        self._by_ssid = _sorted_keys(socket << 16 | (paths.session + 1))
        words = np.stack(paths.words, axis=1)
        self._by_address = _unique_keys(
            address_keys(words, paths.socket.astype(np.uint64) << np.uint64(16) | paths.port)
        )

    def find(self, received: Received, ssid: Int64s, verdict: BatchVerdict) -> Int64s:
        """(n,) the path of each answer; 0 for those that are refused.

        By socket and SSID; an answer without SSID (a reflector older than RFC 8972) by socket, address and port,
        where only one session goes there.
        """
        words = received.address.view(np.uint64)
        keys, path = self._by_ssid
        wanted = received.socket.astype(np.int64) << 16 | ssid
        index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        found: Int64s = np.where(keys[index] == wanted, path[index], -1)
        bare = ssid == 0
        if np.count_nonzero(bare):
            found = np.where(bare, self._find_by_address(received, words), found)
        verdict.refuse(found < 0, BatchVerdict.UNKNOWN_SESSION)
        found = np.maximum(found, 0)
        high, low = self._paths.words
        other = (words[:, 0] != high[found]) | (words[:, 1] != low[found]) | (received.port != self._paths.port[found])
        verdict.refuse(other, BatchVerdict.WRONG_REFLECTOR)
        return found

    def _find_by_address(self, received: Received, words: UInt64s) -> Int64s:
        keys, path = self._by_address
        wanted = address_keys(words, received.socket.astype(np.uint64) << np.uint64(16) | received.port)
        index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[index] == wanted, path[index], -1)


class Exchanges:
    """Rings of p paths with the given intervals (p,). Arrays are (slots,) unless said otherwise.

    `prompt`: (p,) answered exchanges of these paths wait for no follow-up; None: all do.
    """

    def __init__(self, interval_ns: Int64s, mode: Mode, prompt: Bools | None = None) -> None:
        self._mode = mode
        none = np.empty(0, dtype=np.int64)
        self.timeout_ns: Int64s = none
        self.wait_ns: Int64s = none
        self.mask: Int64s = none
        self.first: Int64s = none
        self.path: Int64s = none
        self.state: UInt8s = np.zeros(0, dtype=np.uint8)
        self.seq: Int64s = none
        self.sent_at: Int64s = none
        """Scheduling clock."""
        self.t1_word: npt.NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        """T1 as in the packet."""
        self.t1_user: Int64s = none
        """System clock: when the packet was built, or handed to the kernel where that is known."""
        self.t1_at: Int64s = none
        """System clock or NIC; ABSENT until the stamp comes."""
        self.t1_kind: UInt8s = np.zeros(0, dtype=np.uint8)
        self.arrival = np.zeros(0, dtype=ARRIVAL)
        self._base: UInt8s = np.zeros((0, mode.base_bytes), dtype=np.uint8)
        self._extension: UInt8s = np.zeros((0, tlv.EXTENSION.itemsize), dtype=np.uint8)
        self._carrier: Int64s = none
        """Slot of the answer whose Follow-Up Telemetry is about this reflector sequence number."""
        self._mark: Int64s = none
        self.grow(interval_ns, prompt)

    def grow(self, interval_ns: Int64s, prompt: Bools | None = None) -> None:
        """Make rings for more paths, behind the present ones, whose exchanges are not touched."""
        wait = (WAIT_INTERVALS * interval_ns).astype(np.int64)
        shortest = np.maximum(1, (interval_ns * (1 - JITTER)).astype(np.int64))
        need = (timeout_ns(interval_ns) + wait + FLUSH_PAUSE_NS) // shortest
        depth = 1 << np.ceil(np.log2(need + 2)).astype(np.int64)
        self.first = np.concatenate([self.first, np.cumsum(depth) - depth + len(self)])
        self.path = np.concatenate([self.path, np.repeat(np.arange(len(depth)) + len(self.mask), depth)])
        self.mask = np.concatenate([self.mask, depth - 1])
        self.timeout_ns = np.concatenate([self.timeout_ns, timeout_ns(interval_ns)])
        self.wait_ns = np.concatenate([self.wait_ns, wait if prompt is None else np.where(prompt, 0, wait)])
        slots = int(depth.sum())
        for name in _PER_SLOT:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((slots, *old.shape[1:]), dtype=old.dtype)]))
        self.answer: Fields = fields(self._base, self._mode.answer)
        self.extension: Fields = fields(self._extension, tlv.EXTENSION)

    def free(self, path: Int64s) -> None:
        """Forget the exchanges of these paths, and the follow-ups in them: another session counts answers anew."""
        mine = np.isin(self.path, path)
        self.state[mine] = FREE
        self._extension[mine] = 0

    def __len__(self) -> int:
        return len(self.state)

    def slot(self, path: Int64s, seq: Int64s) -> Int64s:
        """Where exchange `seq` of `path` lies."""
        result: Int64s = self.first[path] + (seq & self.mask[path])
        return result

    def first_of_each(self, slot: Int64s) -> Bools:
        """Which of the entries is the first with its slot: the others are copies within one batch."""
        order = np.arange(len(slot))
        self._mark[slot[::-1]] = order[::-1]  # of equal indices the last assignment stays
        result: Bools = self._mark[slot] == order
        return result

    def open(self, slot: Int64s, seq: Int64s, now_ns: int, t1_user: int, t1_word: int) -> int:
        """Start exchanges; returns how many old ones were pushed out."""
        state = self.state[slot]
        shed = int(np.count_nonzero((state == SENT) | (state == ANSWERED)))
        self.state[slot] = SENT
        self.seq[slot] = seq
        self.sent_at[slot] = now_ns
        self.t1_word[slot] = t1_word
        self.t1_user[slot] = t1_user
        self.t1_at[slot] = ABSENT_NS
        self.t1_kind[slot] = StampKind.NONE
        return shed

    def stamp(self, slot: Int64s, at_ns: Int64s, kind: StampKind) -> None:
        """Take sending times of one kind; a better kind that is there already stays."""
        held = self.t1_kind[slot]
        better = (held == StampKind.NONE) | (held < kind)
        slot = slot[better]
        self.t1_at[slot] = at_ns[better]
        self.t1_kind[slot] = kind

    def match(
        self, received: Received, path: Int64s, head: Fields, verdict: BatchVerdict, now_ns: int
    ) -> tuple[Int64s, Bools]:
        """(n,) the slot of the exchange that each answer belongs to, and which answers are right but too late."""
        seq = head["sender_seq"].astype(np.int64)
        slot = self.slot(path, seq)
        state = self.state[slot]
        verdict.refuse((self.seq[slot] != seq) | (state == FREE), BatchVerdict.UNKNOWN_EXCHANGE)
        verdict.refuse(self.t1_word[slot] != head["sender_t1"], BatchVerdict.ECHO)
        verdict.refuse((state == ANSWERED) | (state == DONE), BatchVerdict.DUPLICATE)
        late = ((state == LOST) | self._overdue(received, head, slot, now_ns)) & verdict.good
        verdict.refuse(late, BatchVerdict.LATE)
        good = np.flatnonzero(verdict.good)
        copies = np.zeros(len(slot), dtype=np.bool_)
        copies[good] = ~self.first_of_each(slot[good])
        verdict.refuse(copies, BatchVerdict.DUPLICATE)
        return slot, late

    def _overdue(self, received: Received, head: Fields, slot: Int64s, now_ns: int) -> Bools:
        """Which answers came too late, by their own stamps: a stalled process may read an answer long after it came.

        The steady clock must agree, since the system clock may have been stepped in between. The time a probe lay at
        a stalled reflector, t3 - t2, is no transit time either.
        """
        limit = self.timeout_ns[self.path[slot]]
        overdue: Bools = now_ns - self.sent_at[slot] >= limit
        if np.count_nonzero(overdue):
            arrived_at = np.where(received.kind == StampKind.KERNEL, received.at_ns, received.user_at_ns)
            stay = packet.ns_of(head["t3"], head["error"]) - packet.ns_of(head["t2"], head["error"])
            overdue &= arrived_at - self.t1_user[slot] - np.maximum(stay, 0) >= limit
        return overdue

    def take(self, slot: Int64s, base: UInt8s, extension: UInt8s, arrival: npt.NDArray[np.void]) -> None:
        """Store answers: octets of the base packet and of the TLVs, (n, ...), and how they arrived."""
        self.state[slot] = ANSWERED
        self._base[slot] = base
        self._extension[slot] = extension
        self.arrival[slot] = arrival
        found = fields(extension, tlv.EXTENSION)
        carries = (found["fu_head"] == tlv.FU_HEAD) & (found["fu_at"] != 0)
        carrier = slot[carries]
        self._carrier[self.slot(self.path[carrier], found["fu_seq"][carries].astype(np.int64))] = carrier

    def follow_ups(self, slot: Int64s) -> tuple[Fields, Any, Bools]:
        """The Follow-Up Telemetry of answered exchanges, the error estimate beside it, and whether it came."""
        seq = self.answer["seq"][slot].astype(np.int64)
        carrier = self._carrier[self.slot(self.path[slot], seq)]
        found = self.extension[carrier]
        came: Bools = (found["fu_head"] == tlv.FU_HEAD) & (found["fu_at"] != 0) & (found["fu_seq"] == seq)
        came &= self.path[carrier] == self.path[slot]
        return found, self.answer["error"][carrier], came


class AnswerTlvs:
    """Reads the TLVs of answers of one session-sender; what is refused is counted in `counters`."""

    def __init__(self, mode: Mode, mac: Mac | None, counters: Counters) -> None:
        self._mode, self._mac, self._counters = mode, mac, counters
        self._end = tlv.least_payload_bytes(mode)
        """Where our own TLVs end and Extra Padding begins."""
        self._mac_at = self._end - tlv.trailer_bytes(mode)

    def octets(self, data: UInt8s, length: Int32s) -> UInt8s:
        """The TLVs of answers as the octets of `EXTENSION`, (n, 36); one that may not be used has header 0.

        Not to be used: absent, flagged U, M or I by the reflector, malformed, behind a malformed one, or under an HMAC
        TLV that does not verify (RFC 8972 sections 4 and 4.8; counted as ``tlv-integrity``). The result may be a view
        of `data`.
        """
        if not self._clean(data, length):
            return self._rearranged(data, length)
        result = data[:, self._mode.base_bytes : self._mode.base_bytes + tlv.EXTENSION.itemsize]
        if self._mac is not None:
            broken = ~self._verified(data, np.full(len(data), self._mac_at, dtype=np.int32), self._mac)
            if broken.any():
                result = result.copy()
                self._drop(result, broken)
        return result

    def _clean(self, data: UInt8s, length: Int32s) -> bool:
        """Whether all rows are in our own arrangement and nothing in them is flagged; so none depends on the others."""
        if data.shape[1] < self._end + tlv.HEADER_BYTES:
            return False
        found = fields(data, tlv.EXTENSION, self._mode.base_bytes)
        clean: Bools = found["fu_head"] == tlv.FU_HEAD
        clean &= found["cos_head"] == tlv.COS_HEAD
        clean &= found["ti_head"] == tlv.TI_HEAD
        if self._mac is not None:
            clean &= fields(data, tlv.WORD, self._mac_at)["word"] == tlv.MAC_HEAD
        room = length - (self._end + tlv.HEADER_BYTES)
        padded = fields(data, tlv.WORD, self._end)["word"] == (tlv.Tlv.EXTRA_PADDING << 16) + room
        clean &= np.where(room < 0, room == -tlv.HEADER_BYTES, padded)
        return bool(clean.all())

    def _drop(self, octets: UInt8s, broken: Bools) -> None:
        n = int(np.count_nonzero(broken))
        if n:
            self._counters.add("refused", "tlv-integrity", n)
            octets[broken] = 0

    def _verified(self, data: UInt8s, at: Int32s, mac: Mac) -> Bools:
        rows = np.arange(len(data))
        carried = tlv.gather(data, rows, at + tlv.HEADER_BYTES, MAC_BYTES)
        return macs_equal(carried, mac.of_tlvs(data, self._mode, at))

    def _rearranged(self, data: UInt8s, length: Int32s) -> UInt8s:
        """TLVs of any arrangement, brought into that of our own sender."""
        found = tlv.walk(data, self._mode.base_bytes, length)
        flags = tlv.flags(data, found)
        broken: Bools = ((flags & tlv.I) != 0).any(axis=1)
        if self._mac is not None:
            broken |= self._unproven(data, found, self._mac)
        _stop_behind(found, (flags & tlv.M) != 0)
        raw = np.zeros((len(data), tlv.EXTENSION.itemsize), dtype=np.uint8)
        for kind, first, count in tlv.ARRANGEMENT:
            at = found.first(kind)
            rows = np.flatnonzero(at >= 0)
            raw[rows, first : first + count] = tlv.gather(data, rows, at[rows], count)
        result = fields(raw, tlv.EXTENSION)
        for name in ("fu_head", "cos_head", "ti_head"):
            # reserved flag bits are ignored on receipt
            result[name] = np.where(result[name] & _REFUSED, 0, result[name] & tlv.HEAD_MASK)
        self._drop(raw, broken)
        return raw

    def _unproven(self, data: UInt8s, found: tlv.Walk, mac: Mac) -> Bools:
        """Rows that carry more than Extra Padding without a right HMAC TLV in its right place."""
        mac_at, lawful = tlv.mac_tlv_at(found)
        rows = np.flatnonzero(mac_at >= 0)
        good = np.zeros(len(data), dtype=np.bool_)
        good[rows] = self._verified(data[rows], mac_at[rows], mac)
        needed = ((found.at >= 0) & (found.type != tlv.Tlv.EXTRA_PADDING)).any(axis=1)
        result: Bools = needed & ~(good & lawful)
        return result


def _stop_behind(found: tlv.Walk, malformed: Bools) -> None:
    """Take out of `found` everything from a TLV on that the reflector called malformed."""
    if malformed.any():
        found.at[np.logical_or.accumulate(malformed, axis=1)] = -1


def _sorted_keys(keys: Int64s) -> tuple[Int64s, Int64s]:
    order = np.argsort(keys, kind="stable")
    return np.append(keys[order], np.iinfo(np.int64).max), np.append(order, -1)


def _unique_keys(keys: UInt64s) -> tuple[UInt64s, Int64s]:
    """Sorted keys and their indices, without the keys that occur more than once: those name no single path."""
    found, first, times = np.unique(keys, return_index=True, return_counts=True)
    once = times == 1
    top = np.array([np.iinfo(np.uint64).max], dtype=np.uint64)
    return np.append(found[once], top), np.append(first[once], -1)
