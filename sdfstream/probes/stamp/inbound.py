"""The sessions that probe us: a bounded table by (socket, source address, source port, SSID).

A row holds the number of the next answer, the TX stamps of the last few answers, each sent once in a later answer
(Follow-Up Telemetry), and the session's path in the liveness report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from sdfstream.probes.stamp.datagrams import UInt64s, address_keys
from sdfstream.probes.stamp.liveness import PathLiveness, PathName
from sdfstream.records.units import NS_PER_S, Int32s, Int64s, UInt8s
from sdfstream.stats import Counters

CAPACITY: Final = 16_384
NEW_PER_CALL: Final = 256
"""New sessions taken up per call; a flood of made-up sources costs no more than this."""
IDLE_NS: Final = 600 * NS_PER_S
"""A session without a probe for this long may be pushed out."""
FOLLOW_UPS: Final = 4
"""TX stamps stored per session until they are sent as follow-ups."""
_NO_DSCP: Final = 255
_TOP: Final = np.iinfo(np.uint64).max

FOLLOW_UP: Final = np.dtype([("seq", "u4"), ("at_ns", "i8"), ("kind", "u1")])

Indices = npt.NDArray[np.integer]


class Inbound:
    """Finds the table row of each probe, makes rows for new sessions, stores their follow-ups.

    Parameters
    ----------
    nics : socket index to the NIC id behind it
    peers : 16-octet address to NIC id
    """

    def __init__(
        self, nics: Mapping[int, str], peers: Mapping[bytes, str], liveness: PathLiveness, counters: Counters
    ) -> None:
        self._nics = nics
        self._peers = dict(peers)
        self._liveness = liveness
        self._counters = counters
        self._watched: dict[PathName, int] = {}
        self.senders: list[bytes] = []
        """16-octet address of the sender of each path of the liveness report."""
        n = CAPACITY
        self.generation: Int64s = np.zeros(n, dtype=np.int64)
        """Counts the sessions that a table row has held, mod 2¹⁵: a late stamp is not taken for another session's."""
        self._key: UInt64s = np.zeros(n, dtype=np.uint64)
        self._high: UInt64s = np.zeros(n, dtype=np.uint64)
        self._low: UInt64s = np.zeros(n, dtype=np.uint64)
        self._dscp: UInt8s = np.zeros(n, dtype=np.uint8)
        self._last_received_at: Int64s = np.zeros(n, dtype=np.int64)
        self._seq: Int64s = np.zeros(n, dtype=np.int64)
        """The latest probe's."""
        self._answers: Int64s = np.zeros(n, dtype=np.int64)
        """Answers numbered so far."""
        self._path: Int64s = np.zeros(n, dtype=np.int64)
        """Index into the liveness table; −1: not reported."""
        self._stored_follow_ups: Int64s = np.zeros(n, dtype=np.int64)
        """Follow-ups ever stored."""
        self._sent_follow_ups: Int64s = np.zeros(n, dtype=np.int64)
        """Follow-ups ever sent."""
        self._follow_ups = np.zeros((n, FOLLOW_UPS), dtype=FOLLOW_UP)
        self._mark: Int64s = np.zeros(n, dtype=np.int64)
        self._used = 0
        self._keys: UInt64s = np.full(1, _TOP, dtype=np.uint64)
        self._row_of_key: Int64s = np.full(1, -1, dtype=np.int64)

    def add_peers(self, peers: Mapping[bytes, str]) -> None:
        """More senders by address; their sessions are reported from their next probe on."""
        fresh = {address: nic for address, nic in peers.items() if self._peers.get(address) != nic}
        if fresh:
            self._peers.update(fresh)
            unnamed = np.flatnonzero(self._path[: self._used] < 0)
            self._dscp[unnamed] = _NO_DSCP

    def find(self, socket: Int32s, words: UInt64s, port: Int64s, ssid: Int64s, dscp: UInt8s, now_ns: int) -> Int64s:
        """Table rows of n probes, (n,); −1 where there is no room."""
        key = address_keys(words, (socket.astype(np.uint64) << np.uint64(32)) | (port << 16 | ssid).view(np.uint64))
        row = self._look_up(key)
        if np.count_nonzero(row < 0):
            self._add(np.flatnonzero(row < 0), key, words, now_ns)
            row = self._look_up(key)
        # of two sources with one key the later one goes without a session
        known = (row >= 0) & (self._high[row] == words[:, 0]) & (self._low[row] == words[:, 1])
        moved = known & (self._dscp[row] != dscp)
        if np.count_nonzero(moved):
            for i in np.flatnonzero(moved).tolist():
                self._watch(int(row[i]), int(socket[i]), words[i], int(port[i]), int(dscp[i]), now_ns)
        return np.where(known, row, -1)

    def take_probes(self, row: Int64s, seq: Int64s, now_ns: int) -> None:
        """Probes `seq` of the sessions `row` (repeats allowed, −1 for none) arrived."""
        order = np.arange(len(row))
        self._mark[row] = order
        last = (self._mark[row] == order) & (row >= 0)
        if not last.all():
            row, seq = row[last], seq[last]
        ahead = (seq - self._seq[row]) & 0xFFFF_FFFF
        self._seq[row] = seq
        self._last_received_at[row] = now_ns
        path = self._path[row]
        watched = path >= 0
        if np.count_nonzero(watched):
            self._liveness.arrived(path[watched], ahead[watched], now_ns)

    def shortest_interval_ns(self, now_ns: int, lately_ns: int) -> int:
        """Mean gap of the busiest session that sent within `lately_ns`; 0 when one session's is not known."""
        path = self._path[: self._used][now_ns - self._last_received_at[: self._used] < lately_ns]
        if not len(path) or path.min() < 0:
            return 0
        return int(self._liveness.interval_ns[path].min())

    def number(self, row: Int64s, rank: Int64s) -> Int64s:
        """The next sequence number of the answers of each of `row` (n,; repeats allowed, −1 gets 0)."""
        number = self._answers[row] + rank
        known = row >= 0
        self._answers[row[known]] = number[known] + 1  # of equal rows the last, so the largest, stays
        return np.where(known, number & 0xFFFF_FFFF, 0)

    def store_follow_ups(self, row: Int64s, seq: Int64s, at_ns: Int64s, kind: UInt8s) -> None:
        """Store TX stamps of answers, oldest first for each session; the oldest is overwritten."""
        index = self._stored_follow_ups[row] + self.rank(row)
        fresh = np.empty(len(row), dtype=FOLLOW_UP)
        fresh["seq"] = seq
        fresh["at_ns"] = at_ns
        fresh["kind"] = kind
        self._follow_ups[row, index % FOLLOW_UPS] = fresh
        self._stored_follow_ups[row] = index + 1  # of equal rows the last, so the largest, stays

    def next_follow_ups(self, row: Int64s, rank: Int64s) -> tuple[npt.NDArray[np.void], npt.NDArray[np.bool_]]:
        """The next follow-up for an answer to each of `row` (n,), and whether there is one.

        Each is sent once, oldest first; when none is left the last one is repeated.
        """
        written = self._stored_follow_ups[row]
        index = np.maximum(self._sent_follow_ups[row], written - FOLLOW_UPS) + rank
        after = np.minimum(index + 1, written)
        known = row >= 0
        self._sent_follow_ups[row[known]] = after[known]
        return self._follow_ups[row, (after - 1) % FOLLOW_UPS], known & (written > 0)

    def rank(self, row: Int64s) -> Int64s:
        """How many earlier entries of `row` are equal: 0, 0, 1, ..."""
        order = np.arange(len(row))
        self._mark[row] = order
        if (self._mark[row] == order).all():
            return np.zeros(len(row), dtype=np.int64)
        by_row = np.argsort(row, kind="stable")
        starts = np.append(True, np.diff(row[by_row]) != 0)
        rank = np.empty(len(row), dtype=np.int64)
        rank[by_row] = order - np.maximum.accumulate(np.where(starts, order, 0))
        return rank

    def _look_up(self, key: UInt64s) -> Int64s:
        index = np.searchsorted(self._keys, key)
        result: Int64s = np.where(self._keys[index] == key, self._row_of_key[index], -1)
        return result

    def _add(self, missing: Indices, key: UInt64s, words: UInt64s, now_ns: int) -> None:
        _, first = np.unique(key[missing], return_index=True)
        fresh = missing[np.sort(first)]
        room = self._room(min(len(fresh), NEW_PER_CALL), now_ns)
        self._counters.add("shed", "session", len(fresh) - len(room))
        fresh, row = fresh[: len(room)], np.array(room, dtype=np.int64)
        self._key[row] = key[fresh]
        self._high[row] = words[fresh, 0]
        self._low[row] = words[fresh, 1]
        self._dscp[row] = _NO_DSCP  # the probe's own is taken up by `find`
        self._last_received_at[row] = now_ns
        self._path[row] = -1
        self._stored_follow_ups[row] = self._sent_follow_ups[row] = self._answers[row] = 0
        self.generation[row] = (self.generation[row] + 1) & 0x7FFF
        order = np.argsort(self._key[: self._used], kind="stable")
        self._keys = np.append(self._key[order], np.uint64(_TOP))
        self._row_of_key = np.append(order, -1)

    def _room(self, wanted: int, now_ns: int) -> list[int]:
        """Free table rows, else rows of sessions long silent."""
        rows = list(range(self._used, min(CAPACITY, self._used + wanted)))
        self._used += len(rows)
        if len(rows) < wanted:
            old = np.flatnonzero(now_ns - self._last_received_at > IDLE_NS)
            rows += old[: wanted - len(rows)].tolist()
        return rows

    def _watch(self, row: int, socket: int, words: UInt64s, port: int, dscp: int, now_ns: int) -> None:
        """Tie a session to the path it probes, when its sender is a known NIC."""
        self._dscp[row] = dscp
        sender = self._peers.get(words.tobytes())
        nic = self._nics.get(socket)
        if sender is None or nic is None:
            return
        name = PathName(nic, sender, nic, "udp", port, dscp)
        index = self._watched.get(name)
        if index is None and len(self._watched) < CAPACITY:
            index = self._watched[name] = len(self._liveness)
            self.senders.append(words.tobytes())
            self._liveness.add([name], np.zeros(1, dtype=np.int64), now_ns)
        self._path[row] = -1 if index is None else index
