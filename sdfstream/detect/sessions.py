"""NICs, hosts and sessions (paths without direction) under dense numbers.

Every engine keeps its state in arrays indexed by these numbers; names appear again only in findings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.numeric.table import KeyIndex, Table
from sdfstream.records import columns
from sdfstream.records.fabric import PathId, host_of

Ints = npt.NDArray[np.int64]

_MAX_NICS = 1 << 16
_MAX_TRANSPORTS = 4
_MOST_LOOKUPS = 4096
_PORT_MOST = 0xFFFF


class NameIndex:
    """Strings under numbers 0, 1, 2, … in order of first sight, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.list: list[str] = []
        self._number: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.list)

    def find(self, name: str) -> int:
        """Number of a name, −1 when it is not known."""
        return self._number.get(name, -1)

    def find_all(self, names: Sequence[str]) -> Ints:
        """(names,) number of each, −1 where it is not known."""
        try:
            return np.fromiter(map(self._number.__getitem__, names), np.int64, len(names))
        except KeyError:
            return np.array([self.find(name) for name in names], np.int64)

    def add(self, name: str) -> int:
        """Number of a name, given now if it is new; −1 when there is no room."""
        number = self._number.get(name, -1)
        if number < 0 and len(self.list) < self.most:
            number = self._number[name] = len(self.list)
            self.list.append(name)
        return number

    def restore(self, names: list[str]) -> None:
        """Take up a saved list."""
        self.list = list(names)
        self._number = {name: i for i, name in enumerate(self.list)}


class Lookups:
    """Numbers of whole dictionaries of names, remembered by their bytes: a sender repeats its dictionary for hours."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Ints] = {}

    def of(self, batch: pa.RecordBatch, name: str, number: Callable[[str], int]) -> Ints:
        """(rows,) number of each row's name in a name column; −1: null, or `number` has no room for it."""
        codes, dictionary = columns.coded(batch, name)
        key = (
            name,
            len(dictionary),
            dictionary.offset,
            *(None if b is None else b.to_pybytes() for b in dictionary.buffers()),
        )
        lookup = self._known.get(key)
        if lookup is None:
            names = dictionary.to_pylist()
            lookup = np.array([-1 if n is None else number(n) for n in names] + [-1], np.int64)
            if len(self._known) >= _MOST_LOOKUPS:
                self._known.clear()
            self._known[key] = lookup
        result: Ints = lookup[codes]
        return result

    def clear(self) -> None:
        """Forget all of them: the numbers are others now."""
        self._known.clear()


def session_key(data: Mapping[str, Any]) -> tuple[str, str, str, int, int]:
    """(src, dst, transport, path, dscp) that an event names.

    Raises
    ------
    KeyError, TypeError, ValueError
        One is missing, is no number, or does not fit the field that it stands for: it must not pass for another's.
    """
    path, dscp = int(data["path"]), int(data["dscp"])
    if not 0 <= path < 1 << 32 or not 0 <= dscp < 64:
        raise ValueError("path is not of 32 bits, or dscp not of six")
    return str(data["src"]), str(data["dst"]), str(data["transport"]), path, dscp


class Sessions:
    """The sessions seen so far.

    A session is (src, dst, transport, path, dscp): what a probe may speak for. Its number indexes `table`.
    """

    def __init__(self, max_sessions: int) -> None:
        self.nics = NameIndex(_MAX_NICS)
        self.hosts = NameIndex(_MAX_NICS)
        self.transports = NameIndex(_MAX_TRANSPORTS)
        self.planes: dict[int, str] = {}
        """NIC number to the plane its rows name."""
        self.planed = np.zeros(_MAX_NICS, np.bool_)
        """Whether it is among them."""
        self._lookups = Lookups()
        self._pairs = KeyIndex(1 << 21)
        self._index = KeyIndex(max_sessions)
        self.nic_host = np.empty(0, np.int64)
        """(nics,) host number of every NIC."""
        self.fresh: list[int] = []
        """Sessions taken in since the stage last looked."""
        self.table = Table(
            {
                "src": np.int64(-1),
                "dst": np.int64(-1),
                "transport": np.int64(0),
                "path": np.int64(0),
                "dscp": np.int64(0),
                "seen_at_ns": np.int64(0),
                "octets": np.int64(0),
            }
        )

    @property
    def count(self) -> int:
        """Length every per-session array needs."""
        return self.table.rows

    def nic(self, name: str) -> int:
        """Number of a NIC, given now if it is new (with its host); −1 when there is no room."""
        known = len(self.nics)
        number = self.nics.add(name)
        if len(self.nics) > known:
            self.nic_host = np.append(self.nic_host, self.hosts.add(host_of(name)))
        return number

    def of_batch(self, batch: pa.RecordBatch, dscp: str, at_ns: int) -> Ints:
        """Session of every row of a probe or delay batch; −1 where a name is null or there is no room.

        Parameters
        ----------
        batch : RecordBatch
            With columns src, dst, transport, path and the one named by `dscp`.
        dscp : str
            Column of the class as sent.
        at_ns : int
            Bus time; the sessions count as seen then.

        Raises
        ------
        FormatError
            When a column is missing or of a wrong type.
        """
        src = self._numbers(batch, "src", self.nic)
        dst = self._numbers(batch, "dst", self.nic)
        transport = self._numbers(batch, "transport", self.transports.add)
        path = columns.values(batch, "path").astype(np.int64)
        cls = columns.values(batch, dscp).astype(np.int64) & 63
        slots = np.full(batch.num_rows, -1, np.int64)
        good = np.flatnonzero((src >= 0) & (dst >= 0) & (transport >= 0))
        slots[good] = self._add(src[good], dst[good], transport[good], path[good], cls[good])
        self.table["seen_at_ns"][slots[slots >= 0]] = at_ns
        return slots

    def known_of_batch(self, batch: pa.RecordBatch, dscp: str) -> Ints | None:
        """As `of_batch`, where every row is of a session known already; else None. Changes nothing.

        Raises
        ------
        FormatError
            When a column is missing or of a wrong type.
        """
        src, dst, transport = (
            _found(batch, name, index)
            for name, index in (("src", self.nics), ("dst", self.nics), ("transport", self.transports))
        )
        if src is None or dst is None or transport is None:
            return None
        path = columns.values(batch, "path").astype(np.int64)
        cls = columns.values(batch, dscp).astype(np.int64) & 63
        if path.size and int(path.max()) > _PORT_MOST:
            return None
        slots = self._index.find(_key(src, dst, transport, path, cls))
        return None if (slots < 0).any() else slots

    def of_names(self, keys: list[tuple[str, str, str, int, int]], at_ns: int) -> Ints:
        """Session of every (src, dst, transport, path, dscp); −1 where there is no room."""
        if not keys:
            return np.empty(0, np.int64)
        src = np.array([self.nic(k[0]) for k in keys], np.int64)
        dst = np.array([self.nic(k[1]) for k in keys], np.int64)
        transport = np.array([self.transports.add(k[2]) for k in keys], np.int64)
        path = np.array([k[3] for k in keys], np.int64)
        cls = np.array([k[4] for k in keys], np.int64)
        slots = np.full(len(keys), -1, np.int64)
        good = np.flatnonzero((src >= 0) & (dst >= 0) & (transport >= 0))
        slots[good] = self._add(src[good], dst[good], transport[good], path[good], cls[good])
        self.table["seen_at_ns"][slots[slots >= 0]] = at_ns
        return slots

    def _numbers(self, batch: pa.RecordBatch, name: str, number: Callable[[str], int]) -> Ints:
        return self._lookups.of(batch, name, number)

    def _add(self, src: Ints, dst: Ints, transport: Ints, path: Ints, dscp: Ints) -> Ints:
        key = _key(src, dst, transport, path & _PORT_MOST, dscp)
        room = np.ones(key.shape, np.bool_)
        if path.size and int(path.max()) > _PORT_MOST:  # no port number: the pair of NICs takes a number to make room
            wide = np.flatnonzero(path > _PORT_MOST)
            pair = self._pairs.add((src[wide] << 16) | dst[wide])
            room[wide] = pair >= 0
            rest = (transport[wide] << 38) | ((path[wide] & 0xFFFFFFFF) << 6) | dscp[wide]
            key[wide] = (1 << 62) | (pair << 40) | rest
        slots = np.where(room, self._index.find(key), -1)
        new = (slots < 0) & room
        if new.any():
            slots[new] = self._index.add(key[new])
            self.table.ensure(self._index.slots)
            fresh = new & (slots >= 0)
            at = slots[fresh]
            self.fresh.extend(dict.fromkeys(at.tolist()))
            columns_ = (("src", src), ("dst", dst), ("transport", transport), ("path", path), ("dscp", dscp))
            for name, values in columns_:
                self.table[name][at] = values[fresh]
        return slots

    def note_planes(self, batch: pa.RecordBatch, slots: Ints) -> None:
        """Remember the plane that the first row of each sending NIC names; `slots` are the rows' sessions."""
        if not (slots >= 0).any():  # the table may have no slot at all yet
            return
        src = self.table["src"][slots]
        new = (slots >= 0) & ~self.planed[src]
        if not new.any() or batch.schema.get_field_index("plane") < 0:
            return
        plane, names = columns.names(batch, "plane")
        for row in np.flatnonzero(new & (plane >= 0)).tolist():
            if not self.planed[src[row]] and names[plane[row]] is not None:
                self.planed[src[row]] = True
                self.planes[int(src[row])] = names[plane[row]]

    def note_sizes(self, batch: pa.RecordBatch, slots: Ints) -> None:
        """Remember how large the packets of each session are; `slots` are the rows' sessions (−1: refused)."""
        if not (slots >= 0).any():
            return
        new = (slots >= 0) & (self.table["octets"][slots] == 0)
        if new.any():
            self.table["octets"][slots[new]] = columns.filled(batch, "size_bytes", 0).astype(np.int64)[new]

    def idle(self, before_ns: int) -> Ints:
        """Sessions in use without a row or statement since `before_ns`."""
        result: Ints = np.flatnonzero((self.table["src"] >= 0) & (self.table["seen_at_ns"] < before_ns))
        return result

    def forget(self, slots: Ints) -> None:
        """Free these sessions' numbers for others."""
        self._index.remove(slots)
        self.table.reset(slots)

    def path_id(self, slot: int, direction: str) -> PathId:
        """The public name of one direction of a session."""
        t = self.table
        return PathId(
            self.nics.list[t["src"][slot]],
            self.nics.list[t["dst"][slot]],
            self.transports.list[t["transport"][slot]],
            int(t["path"][slot]),
            int(t["dscp"][slot]),
            direction,
        )

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "nics": self.nics.list,
            "hosts": self.hosts.list,
            "transports": self.transports.list,
            "planes": [[k, v] for k, v in sorted(self.planes.items())],
            "pairs": self._pairs.snapshot(),
            "index": self._index.snapshot(),
            "nic_host": self.nic_host,
            "table": self.table.snapshot(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._lookups.clear()
        self.nics.restore(state["nics"])
        self.hosts.restore(state["hosts"])
        self.transports.restore(state["transports"])
        self.planes = {int(k): str(v) for k, v in state["planes"]}
        self.planed[:] = False
        self.planed[list(self.planes)] = True
        self._pairs.restore(state["pairs"])
        self._index.restore(state["index"])
        self.nic_host = np.asarray(state["nic_host"], np.int64)
        self.table.restore(state["table"])


def _key(src: Ints, dst: Ints, transport: Ints, port: Ints, dscp: Ints) -> Ints:
    return (src << 40) | (dst << 24) | (transport << 22) | (port << 6) | dscp


def _found(batch: pa.RecordBatch, name: str, index: NameIndex) -> Ints | None:
    """(rows,) number of each row's name; None where one is null or not known."""
    codes, names = columns.names(batch, name)
    if codes.size and int(codes.min()) < 0:
        return None
    result: Ints = index.find_all(names)[codes]
    return None if result.size and int(result.min()) < 0 else result
