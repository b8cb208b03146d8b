"""The sessions that probe us: a bounded table by (socket, source address, source port, SSID)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from sdfstream.probes.addresses import UInt64s, mixed
from sdfstream.probes.liveness import Liveness, PathName
from sdfstream.records.units import ABSENT_NS, Int32s, Int64s, UInt8s
from sdfstream.stats import Counters

CAPACITY: Final = 16_384
NEW_PER_CALL: Final = 256
"""New sessions taken up per call; a flood of made-up sources costs no more than this."""
IDLE_NS: Final = 600_000_000_000
"""A session not heard for this long may be pushed out."""

SESSION: Final = np.dtype(
    [
        ("key", "u8"),
        ("words", "u8", 2),
        ("heard_at", "i8"),
        ("watched", "i4"),  # index into the liveness table, −1: not reported
        ("dscp", "u1"),
        ("generation", "u2"),
        ("fu_seq", "u4"),
        ("fu_at", "i8"),  # system clock or NIC, ABSENT: no stamp yet
        ("fu_kind", "u1"),
    ]
)


class Inbound:
    """Finds the table row of each probe and makes rows for new sessions.

    Parameters
    ----------
    nics : socket index to the NIC id behind it
    peers : 16-octet address to NIC id
    """

    def __init__(
        self, nics: Mapping[int, str], peers: Mapping[bytes, str], liveness: Liveness, counters: Counters
    ) -> None:
        self._nics = nics
        self._peers = peers
        self._liveness = liveness
        self._counters = counters
        self._watched: dict[PathName, int] = {}
        self.table = np.zeros(CAPACITY, dtype=SESSION)
        self.used = 0
        self._keys: UInt64s = np.full(1, np.iinfo(np.uint64).max, dtype=np.uint64)
        self._place: Int32s = np.full(1, -1, dtype=np.int32)

    def find(self, socket: Int32s, words: UInt64s, port: Int64s, ssid: Int64s, dscp: UInt8s, now_ns: int) -> Int64s:
        """Table rows of n probes, (n,); −1 where there is no room. Marks them as heard."""
        key = mixed(words, (socket.astype(np.uint64) << np.uint64(32)) | (port << 16 | ssid).astype(np.uint64))
        row = self._look_up(key)
        if (row < 0).any():
            self._add(np.flatnonzero(row < 0), key, socket, words, port, now_ns)
            row = self._look_up(key)
        known = row >= 0
        # two sources with one key: the later one goes without a session
        clash = known & (self.table["words"][np.maximum(row, 0)] != words).any(axis=1)
        row = np.where(clash, -1, row)
        mine = row[row >= 0]
        self.table["heard_at"][mine] = now_ns
        moved = (row >= 0) & (self.table["dscp"][np.maximum(row, 0)] != dscp)
        for i in np.flatnonzero(moved).tolist():
            self._watch(int(row[i]), int(socket[i]), words[i], int(port[i]), int(dscp[i]), now_ns)
        return row

    def _look_up(self, key: UInt64s) -> Int64s:
        place = np.searchsorted(self._keys, key)
        result: Int64s = np.where(self._keys[place] == key, self._place[place], -1).astype(np.int64)
        return result

    def _add(self, missing: Int64s, key: UInt64s, socket: Int32s, words: UInt64s, port: Int64s, now_ns: int) -> None:
        _, first = np.unique(key[missing], return_index=True)
        fresh = missing[np.sort(first)]
        room = self._room(min(len(fresh), NEW_PER_CALL), now_ns)
        self._counters.add("shed", "session", len(fresh) - len(room))
        for i, row in zip(fresh.tolist(), room, strict=False):
            session = self.table[row]
            session["key"] = key[i]
            session["words"] = words[i]
            session["heard_at"] = now_ns
            session["watched"] = -1
            session["dscp"] = 255  # not known; the first probe's class is taken up by find
            session["generation"] = (int(session["generation"]) + 1) & 0x7FFF
            session["fu_at"] = ABSENT_NS
        used = self.table["key"][: self.used]
        order = np.argsort(used, kind="stable")
        self._keys = np.append(used[order], np.uint64(np.iinfo(np.uint64).max))
        self._place = np.append(order, -1).astype(np.int32)

    def _room(self, wanted: int, now_ns: int) -> list[int]:
        """Free table rows, else rows of sessions long silent."""
        rows = list(range(self.used, min(CAPACITY, self.used + wanted)))
        self.used += len(rows)
        if len(rows) < wanted:
            old = np.flatnonzero(now_ns - self.table["heard_at"] > IDLE_NS)
            rows += old[: wanted - len(rows)].tolist()
        return rows

    def _watch(self, row: int, socket: int, words: UInt64s, port: int, dscp: int, now_ns: int) -> None:
        """Tie a session to the path it probes, when its sender is a known NIC."""
        self.table["dscp"][row] = dscp
        sender = self._peers.get(words.tobytes())
        nic = self._nics.get(socket)
        if sender is None or nic is None:
            return
        name = PathName(nic, sender, nic, "udp", port, dscp)
        index = self._watched.get(name)
        if index is None and len(self._watched) < CAPACITY:
            index = self._watched[name] = len(self._liveness)
            self._liveness.add([name], np.zeros(1, dtype=np.int64), now_ns)
        self.table["watched"][row] = -1 if index is None else index
