"""The sessions that probe us: a bounded table by (socket, source address, source port, SSID).

A row holds the number of the next answer, the TX stamps of the last few answers, each sent once in a later answer
(Follow-Up Telemetry), and the session's path in the liveness report.

Source addresses and ports can be made up, so that many sessions are worth little, and long ones more. Strangers share
`STRANGER_ROWS`, and give them up first when a known sender wants one. A known sender has at most `SOURCE_ROWS`. Of
known senders' sessions those that sent fewer than `CONFIRMED` probes, or none for `IDLE_NS`, give way to new ones; an
active session never does. A session that finds no row is answered statelessly, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sdfstream.probes.stamp.datagrams import Received, UInt64s, address_keys
from sdfstream.probes.stamp.liveness import PathLiveness, PathName
from sdfstream.records.units import NS_PER_S, Bools, Int32s, Int64s, UInt8s
from sdfstream.stats import Counters

CAPACITY: Final = 16_384
STRANGER_ROWS: Final = 1_024
"""Of strangers, all together."""
SOURCE_ROWS: Final = 2_048
"""Of one known address: 16 ports in eight classes of each of several meshes, and watch sessions, are some hundreds."""
NEW_PER_CALL: Final = 256
"""New sessions taken up per call, and as many of strangers; a flood of made-up sources costs no more than this."""
CONFIRMED: Final = 3
"""A session that sent as many probes is not one made-up packet."""
IDLE_NS: Final = 10 * NS_PER_S
"""A session without a probe for this long gives way when a row is wanted."""
FOLLOW_UPS: Final = 4
"""TX stamps stored per session until they are sent as follow-ups."""
UNADMITTED: Final = -1
_NO_DSCP: Final = 255
_TOP: Final = np.iinfo(np.uint64).max

FOLLOW_UP: Final = np.dtype([("seq", "u4"), ("at_ns", "i8"), ("kind", "u1")])

Indices = npt.NDArray[np.integer]
Rows: TypeAlias = "slice | Int64s"


@dataclass(slots=True)
class Arrivals:
    """What is known of n packets before their content is read; (n,) each."""

    key: UInt64s
    """Of the session."""
    row: Int64s
    """Of the session's table; −1: it has none."""
    bucket: Int64s
    """Of the sender's rate; `UNADMITTED`: whether it may be answered is not known yet."""
    fresh: Bools | None = None
    """Decided just now; None: none was."""
    stranger: Bools | None = None
    """Sent by a stranger; None: none is."""

    def of(self, rows: Rows) -> Arrivals:
        """Those of `rows`."""
        fresh, stranger = (None if x is None else x[rows] for x in (self.fresh, self.stranger))
        return Arrivals(self.key[rows], self.row[rows], self.bucket[rows], fresh, stranger)


class Inbound:
    """Finds the table row of each probe, makes rows for new sessions, stores their follow-ups.

    Parameters
    ----------
    nics : socket index to the NIC id behind it
    names : 16-octet address to NIC id
        Of the known senders.
    transport : str
        Of the probes.
    """

    def __init__(
        self,
        nics: Mapping[int, str],
        names: Mapping[bytes, str],
        liveness: PathLiveness,
        counters: Counters,
        transport: str = "udp",
    ) -> None:
        self._transport = transport
        self._nics = nics
        self._names = names
        self._liveness = liveness
        self._counters = counters
        self._watched: dict[PathName, int] = {}
        self._free_paths: list[int] = []
        self._rows_of: Counter[bytes] = Counter()
        """Rows of each known address."""
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
        self._bucket: Int64s = np.full(n + 1, UNADMITTED, dtype=np.int64)
        """Of the sender's rate; the last stands for sessions without a row."""
        self._stranger: Bools = np.zeros(n, dtype=np.bool_)
        self._probes: Int64s = np.zeros(n, dtype=np.int64)
        """Batches with a probe of the session."""
        self._seq: Int64s = np.zeros(n, dtype=np.int64)
        """The latest probe's."""
        self._answers: Int64s = np.zeros(n, dtype=np.int64)
        """Answers numbered so far."""
        self._path: Int64s = np.full(n, -1, dtype=np.int64)
        """Index into the liveness table; −1: not reported."""
        self._stored_follow_ups: Int64s = np.zeros(n, dtype=np.int64)
        """Follow-ups ever stored."""
        self._sent_follow_ups: Int64s = np.zeros(n, dtype=np.int64)
        """Follow-ups ever sent."""
        self._follow_ups = np.zeros((n, FOLLOW_UPS), dtype=FOLLOW_UP)
        self._mark: Int64s = np.zeros(n + 1, dtype=np.int64)
        """By row; the last stands for packets without one."""
        self._used = 0
        self._keys: UInt64s = np.full(1, _TOP, dtype=np.uint64)
        self._row_of_key: Int64s = np.full(1, -1, dtype=np.int64)

    def name(self, names: Mapping[bytes, str]) -> None:
        """The known senders' NIC ids by address from now on; sessions are reported under them from their next probe."""
        changed = {address for address in {*names, *self._names} if names.get(address) != self._names.get(address)}
        self._names = names
        self._bucket[:] = UNADMITTED
        used = slice(0, self._used)
        for address in changed:
            high, low = np.frombuffer(address, dtype=np.uint64).tolist()
            self._dscp[used][(self._high[used] == high) & (self._low[used] == low)] = _NO_DSCP

    def look_up(self, received: Received, ssid: Int64s) -> Arrivals:
        """The sessions of n packets, as far as they have rows."""
        words = received.address.view(np.uint64)
        port = received.port.astype(np.int64)
        rest = (received.socket.astype(np.uint64) << np.uint64(32)) | (port << 16 | ssid).view(np.uint64)
        key = address_keys(words, rest)
        row = self._row(key, words)
        return Arrivals(key, row, self._bucket[row])

    def find(
        self, arrivals: Arrivals, socket: Int32s, words: UInt64s, port: Int64s, dscp: UInt8s, now_ns: int
    ) -> Int64s:
        """Table rows of n probes that are answered, (n,); −1 where there is no room."""
        row, fresh = arrivals.row, arrivals.fresh
        if fresh is not None:
            if (row < 0).any():
                self._add(arrivals, words, now_ns)
                row = self._row(arrivals.key, words)
            decided = fresh & (row >= 0)
            if arrivals.stranger is not None:
                decided &= ~arrivals.stranger
            self._bucket[row[decided]] = arrivals.bucket[decided]
        moved = (row >= 0) & (self._dscp[row] != dscp)
        if np.count_nonzero(moved):
            for i in np.flatnonzero(moved).tolist():
                self._watch(int(row[i]), int(socket[i]), words[i], int(port[i]), int(dscp[i]), now_ns)
        return row

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
        self._probes[row] += 1
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

    def _row(self, key: UInt64s, words: UInt64s) -> Int64s:
        """(n,) row of each key; −1: it has none. Of two sources with one key the later one goes without a session."""
        index = np.searchsorted(self._keys, key)
        row = np.where(self._keys[index] == key, self._row_of_key[index], -1)
        known = (self._high[row] == words[:, 0]) & (self._low[row] == words[:, 1])
        result: Int64s = np.where(known, row, -1)
        return result

    def _add(self, arrivals: Arrivals, words: UInt64s, now_ns: int) -> None:
        """Rows for the new sessions, as far as there is room."""
        key, stranger = arrivals.key, arrivals.stranger
        missing = np.flatnonzero(arrivals.row < 0)
        _, first = np.unique(key[missing], return_index=True)
        fresh = missing[np.sort(first)]
        strange = np.zeros(len(fresh), dtype=np.bool_) if stranger is None else stranger[fresh]
        pairs = [
            *self._room_for_known(fresh[~strange], words, now_ns),
            *self._room_for_strangers(fresh[strange], now_ns),
        ]
        self._counters.add("shed", "session", len(fresh) - len(pairs))
        if not pairs:
            return
        fresh, row = np.array(pairs, dtype=np.int64).T
        self._key[row] = key[fresh]
        self._high[row] = words[fresh, 0]
        self._low[row] = words[fresh, 1]
        self._bucket[row] = UNADMITTED
        self._dscp[row] = _NO_DSCP  # the probe's own is taken up by `find`
        self._last_received_at[row] = now_ns
        self._path[row] = -1
        self._probes[row] = self._stored_follow_ups[row] = self._sent_follow_ups[row] = self._answers[row] = 0
        self.generation[row] = (self.generation[row] + 1) & 0x7FFF
        self._index()

    def _index(self) -> None:
        order = np.argsort(self._key[: self._used], kind="stable")
        self._keys = np.append(self._key[order], np.uint64(_TOP))
        self._row_of_key = np.append(order, -1)

    def _room_for_known(self, fresh: Indices, words: UInt64s, now_ns: int) -> list[tuple[int, int]]:
        """(packet, row) of known senders' new sessions: free rows, then strangers', then those that give way."""
        free = self._free(min(len(fresh), NEW_PER_CALL))
        others: list[int] | None = None
        found: list[tuple[int, int]] = []
        for i in fresh[:NEW_PER_CALL].tolist():
            address = words[i].tobytes()
            if self._rows_of[address] >= SOURCE_ROWS:
                mine = (self._high == words[i, 0]) & (self._low == words[i, 1])
                row = next(iter(self._replaceable(mine, now_ns)), -1)
                if others is not None and row in others:
                    others.remove(row)  # no row is given away twice
            elif free:
                row = free.pop(0)
            else:
                if others is None:
                    others = self._replaceable(np.ones(CAPACITY, dtype=np.bool_), now_ns)
                row = others.pop(0) if others else -1
            if row >= 0:
                self._give_up(row, now_ns)
                self._rows_of[address] += 1
                self._stranger[row] = False
                self._last_received_at[row], self._probes[row] = now_ns, CONFIRMED  # not to be given away again now
                found.append((i, row))
        self._used -= len(free)
        return found

    def _room_for_strangers(self, fresh: Indices, now_ns: int) -> list[tuple[int, int]]:
        """(packet, row) of strangers' new sessions: free rows up to `STRANGER_ROWS`, then those of long silent ones."""
        wanted = min(len(fresh), NEW_PER_CALL)
        if not wanted:
            return []
        used = self._stranger[: self._used]
        rows = self._free(min(wanted, STRANGER_ROWS - int(np.count_nonzero(used))))
        idle = used & (now_ns - self._last_received_at[: len(used)] > IDLE_NS)
        rows += np.flatnonzero(idle)[: wanted - len(rows)].tolist()
        for row in rows:
            self._give_up(row, now_ns)
            self._stranger[row] = True
        return list(zip(fresh[: len(rows)].tolist(), rows, strict=True))

    def _free(self, wanted: int) -> list[int]:
        rows = list(range(self._used, min(CAPACITY, self._used + wanted)))
        self._used += len(rows)
        self._low[rows] = self._high[rows] = 0
        return rows

    def _replaceable(self, among: Bools, now_ns: int) -> list[int]:
        """Rows in use that may be given away: strangers' first, of each kind the longest silent first."""
        used = slice(0, self._used)
        silent_ns = now_ns - self._last_received_at[used]
        may = self._stranger[used] | (self._probes[used] < CONFIRMED) | (silent_ns > IDLE_NS)
        rows = np.flatnonzero(may & among[used])
        result: list[int] = rows[np.lexsort((-silent_ns[rows], ~self._stranger[rows]))].tolist()
        return result

    def _give_up(self, row: int, now_ns: int) -> None:
        """The session in `row` ends, if there is one."""
        self._drop_path(row, now_ns)
        address = self._high[row : row + 1].tobytes() + self._low[row : row + 1].tobytes()
        if not self._stranger[row] and address in self._rows_of:
            self._rows_of[address] -= 1
            if not self._rows_of[address]:
                del self._rows_of[address]

    def _watch(self, row: int, socket: int, words: UInt64s, port: int, dscp: int, now_ns: int) -> None:
        """Tie a session to the path it probes, when its sender is a known NIC."""
        self._dscp[row] = dscp
        self._drop_path(row, now_ns)
        sender = self._names.get(words.tobytes())
        nic = self._nics.get(socket)
        if sender is None or nic is None:
            return
        name = PathName(nic, sender, nic, self._transport, port, dscp)
        index = self._watched.get(name)
        if index is None and self._free_paths:
            index = self._watched[name] = self._free_paths.pop()
            self.senders[index] = words.tobytes()
            self._liveness.begin(np.array([index]), [name], True, now_ns)
            self._liveness.interval_ns[index] = 0
        elif index is None and len(self._liveness) < CAPACITY:
            index = self._watched[name] = len(self._liveness)
            self.senders.append(words.tobytes())
            self._liveness.add([name], np.zeros(1, dtype=np.int64), now_ns)
        self._path[row] = -1 if index is None else index

    def _drop_path(self, row: int, now_ns: int) -> None:
        """The session in `row` speaks for its path no longer; a path without a session has ended."""
        path = int(self._path[row])
        self._path[row] = -1
        if path >= 0 and not (self._path[: self._used] == path).any():
            del self._watched[self._liveness.names[path]]
            self._liveness.end(np.array([path]), now_ns)
            self._free_paths.append(path)
