"""Delay, loss and marks of every path over the last seconds, updated a batch at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.errors import FormatError
from sdfstream.records import columns
from sdfstream.records.fabric import PathId
from sdfstream.records.joins import JOINS
from sdfstream.records.topics import OWD
from sdfstream.records.units import NS_PER_S, Float64s, Int64s
from sdfstream.stats import Counters

HALF_LIFE_NS: Final = 3 * NS_PER_S
"""Age at which a measurement has half its weight. Shorter shows noise, longer hides that a fault ended."""
STALE_NS: Final = 5 * NS_PER_S
"""A path without a row for this long says nothing about now."""
MOST_PATHS: Final = 500_000
"""Bound on memory (about 100 bytes each); paths beyond it are counted as shed."""

FORGET_NS: Final = 600 * NS_PER_S
"""A path without a row for this long is no longer listed as known: sessions come and go with their source ports."""
_FORGET_EVERY_NS: Final = 60 * NS_PER_S
_GATHER_NS: Final = NS_PER_S // 2
"""Rows are gathered for so long, unless `view` is called: short beside `HALF_LIFE_NS`."""
_MAX_PENDING: Final = 1000
"""Messages gathered at most."""

_UINT64S = npt.NDArray[np.uint64]
_T = TypeVar("_T")
_SUMS: Final = ("n", "lost", "ce", "weight", "p50", "excess")
"""Decaying sums; p50 and excess are weighted by the delays behind them."""


@dataclass(frozen=True, slots=True)
class PathFigures:
    """All paths of a `PathTable`; arrays are (n,), a row a path."""

    keys: _UINT64S
    """Code of the source NIC << 40 | of the destination NIC << 16 | of the selector."""
    nics: list[str]
    selectors: list[tuple[str, int, int, str]]
    """(transport, path, class, direction)."""
    sums: Mapping[str, Float64s]
    """By the names in `_SUMS`."""
    err_ns: Float64s
    seen_at_ns: Int64s


class PathTable:
    """Decaying sums per path id.

    A path's key is (source, destination, selector) in 64 bits, where a selector is a (transport, path, class,
    direction); keys are kept sorted, so that a whole batch is found by one binary search.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._nics: dict[str, int] = {}
        self._selectors: dict[tuple[str, int, int, str], int] = {}
        self._keys: _UINT64S = np.empty(0, np.uint64)
        self._rows: Int64s = np.empty(0, np.int64)
        """Row of each key, in the order of the keys."""
        self._used = 0
        self._sums = {name: np.zeros(0) for name in _SUMS}
        self._err_ns = np.empty(0)
        self._seen_at_ns: Int64s = np.empty(0, np.int64)
        self._ids: list[int] = []
        """Key of each row."""
        self._looked_ns = 0
        """When paths to forget were last searched for, bus time."""
        self._pending: list[pa.RecordBatch] = []
        """Rows that are in no sum yet: many small messages cost much more than a large one."""
        self._since_ns = self._last_ns = 0
        """Bus time of the first and the last of them."""

    def __len__(self) -> int:
        self._flush()
        return self._used

    def take(self, batch: pa.RecordBatch, bus_at_ns: int) -> None:
        """Take the rows of one message of ``sdf.derived.owd.v1``.

        Raises
        ------
        FormatError
            The batch is not what the topic promises.
        """
        if not batch.schema.equals(OWD.columns):  # another release's: read for what it has
            self._take(batch, bus_at_ns)
            return
        if bus_at_ns - self._since_ns >= _GATHER_NS or len(self._pending) >= _MAX_PENDING:
            self._flush()
        self._since_ns = self._since_ns if self._pending else bus_at_ns
        self._last_ns = bus_at_ns
        self._pending.append(batch)

    def _flush(self) -> None:
        """Add the gathered rows to the sums."""
        if not self._pending:
            return
        table = pa.Table.from_batches(JOINS.pieces(self._pending)).unify_dictionaries().combine_chunks()
        self._pending.clear()
        for batch in table.to_batches():
            try:
                self._take(batch, self._last_ns)
            except FormatError as error:
                self._counters.add("refused", f"owd.{error.reason}", batch.num_rows)

    def _take(self, batch: pa.RecordBatch, bus_at_ns: int) -> None:
        if bus_at_ns - self._looked_ns >= _FORGET_EVERY_NS:
            self._looked_ns = bus_at_ns
            self._forget(bus_at_ns - FORGET_NS)
        keys, good = self._keys_of(batch)
        rows = self._find_rows(keys)
        good &= rows >= 0
        self._counters.add("shed", "paths", int((rows < 0).sum()))
        n = columns.values(batch, "n").astype(np.float64)
        p50 = columns.filled(batch, "owd_p50_ns", np.nan)
        excess = columns.filled(batch, "excess_p50_ns", np.nan)
        measured = np.isfinite(p50) & np.isfinite(excess)
        weight = np.where(measured, n, 0.0)
        added = {
            "n": n,
            "lost": columns.values(batch, "lost"),
            "ce": columns.values(batch, "ce"),
            "weight": weight,
            "p50": weight * np.where(measured, p50, 0.0),
            "excess": weight * np.where(measured, excess, 0.0),
        }
        self._add(rows[good], {name: values[good] for name, values in added.items()}, bus_at_ns)
        err_ns = columns.filled(batch, "err_ns", np.nan)
        known = good & np.isfinite(err_ns)
        self._err_ns[rows[known]] = err_ns[known]

    def view(self, now_ns: int, worst: int) -> dict[str, Any]:
        """Numbers over all paths, and the `worst` ones of now, worst first."""
        self._flush()
        rows = np.flatnonzero(now_ns - self._seen_at_ns[: self._used] <= STALE_NS)
        with np.errstate(invalid="ignore", divide="ignore"):
            sums = {name: values[rows] for name, values in self._sums.items()}
            loss = sums["lost"] / (sums["n"] + sums["lost"])
            ce = sums["ce"] / sums["n"]
            p50 = sums["p50"] / sums["weight"]
            excess = sums["excess"] / sums["weight"]
        bad = badness(excess, loss, ce)
        order = np.argsort(-bad, kind="stable")[:worst]
        names = self._names(rows[order])
        return {
            "known": self._used,
            "measured": int(np.isfinite(p50).sum()),
            "stale": self._used - len(rows),
            "lossy": int((loss >= 0.01).sum()),
            "marked": int((ce >= 0.01).sum()),
            "excess_p99_ns": _percentile(excess, 99.0),
            "owd_p50_ns": _percentile(p50, 50.0),
            "worst": [
                name
                | {
                    "owd_p50_ns": float(p50[i]),
                    "excess_p50_ns": float(excess[i]),
                    "loss": float(loss[i]),
                    "ce": float(ce[i]),
                    "err_ns": float(self._err_ns[rows[i]]),
                    "age_ns": now_ns - int(self._seen_at_ns[rows[i]]),
                }
                for i, name in zip(order, names, strict=True)
            ],
        }

    def seen_at_ns(self, path: PathId) -> int | None:
        """Bus time of the path's newest row; None: it is not known."""
        self._flush()
        selector = self._selectors.get((path.transport, path.path, path.dscp, path.dir))
        src, dst = self._nics.get(path.src), self._nics.get(path.dst)
        if selector is None or src is None or dst is None:
            return None
        key = np.uint64(src << 40 | dst << 16 | selector)
        at = int(np.searchsorted(self._keys, key))
        return int(self._seen_at_ns[self._rows[at]]) if at < self._keys.size and self._keys[at] == key else None

    def figures(self) -> PathFigures:
        """Every path that is known, with its sums, row by row; valid until the next `take`."""
        self._flush()
        rows = slice(0, self._used)
        sums = {name: values[rows] for name, values in self._sums.items()}
        keys = np.array(self._ids, np.uint64)
        return PathFigures(
            keys, list(self._nics), list(self._selectors), sums, self._err_ns[rows], self._seen_at_ns[rows]
        )

    def _keys_of(self, batch: pa.RecordBatch) -> tuple[_UINT64S, npt.NDArray[np.bool_]]:
        src, src_ok = self._nic_codes(batch, "src")
        dst, dst_ok = self._nic_codes(batch, "dst")
        transport, transports = columns.names(batch, "transport")
        direction, directions = columns.names(batch, "dir")
        path = columns.values(batch, "path").astype(np.int64)
        dscp = columns.values(batch, "dscp").astype(np.int64)
        good = src_ok & dst_ok & (transport >= 0) & (direction >= 0)
        self._counters.add("refused", "owd.null-name", int((~good).sum()))
        local = path << 24 | dscp << 16 | (transport.astype(np.int64) & 0xFF) << 8 | direction.astype(np.int64) & 0xFF
        unique, inverse = np.unique(local, return_inverse=True)
        codes = np.zeros(len(unique), np.uint64)
        for i, value in enumerate(unique.tolist()):
            t, w = value >> 8 & 0xFF, value & 0xFF
            if t < len(transports) and w < len(directions):  # else null, refused above
                selector = (str(transports[t]), value >> 24, value >> 16 & 0xFF, str(directions[w]))
                codes[i] = self._selectors.setdefault(selector, len(self._selectors))
        return src << np.uint64(40) | dst << np.uint64(16) | codes[inverse.ravel()], good

    def _nic_codes(self, batch: pa.RecordBatch, name: str) -> tuple[_UINT64S, npt.NDArray[np.bool_]]:
        codes, names = columns.names(batch, name)
        table = np.array([self._nics.setdefault(nic, len(self._nics)) for nic in names] or [0], np.uint64)
        return table[np.maximum(codes, 0)], codes >= 0

    def _find_rows(self, keys: _UINT64S) -> Int64s:
        """Row of each key, with new rows for new keys; −1 beyond `MOST_PATHS`."""
        if len(self._selectors) > 0xFFFF or len(self._nics) > 0xFFFFFF:
            raise FormatError("too-many-names", f"{len(self._selectors)} selectors, {len(self._nics)} NICs")
        found, known = self._search(keys)
        if known.all():
            return self._rows[found]
        fresh = np.unique(keys[~known])[: MOST_PATHS - self._used]
        if fresh.size:
            at = np.searchsorted(self._keys, fresh)
            self._keys = np.insert(self._keys, at, fresh)
            self._rows = np.insert(self._rows, at, np.arange(self._used, self._used + fresh.size))
            self._grow(fresh)
        found, known = self._search(keys)
        return np.where(known, self._rows[found], -1) if self._keys.size else np.full(keys.size, -1, np.int64)

    def _search(self, keys: _UINT64S) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """Where each key is among the sorted ones, and whether it is."""
        if not self._keys.size:
            return np.zeros(keys.size, np.int64), np.zeros(keys.size, np.bool_)
        found = np.minimum(np.searchsorted(self._keys, keys), self._keys.size - 1)
        return found, self._keys[found] == keys

    def _forget(self, before_ns: int) -> None:
        """Drop the paths without rows since `before_ns`, and the names that only they had; renumber the others."""
        retained = np.flatnonzero(self._seen_at_ns[: self._used] >= before_ns)
        if retained.size == self._used:
            return
        keys = np.array(self._ids, np.uint64)[retained]
        src, dst = keys >> np.uint64(40), keys >> np.uint64(16) & np.uint64(0xFFFFFF)
        nics, names = _closed_up(self._nics, np.concatenate([src, dst]))
        selectors, self._selectors = _closed_up(self._selectors, keys & np.uint64(0xFFFF))
        self._nics = names
        keys = nics[src] << np.uint64(40) | nics[dst] << np.uint64(16) | selectors[keys & np.uint64(0xFFFF)]
        self._rows = np.argsort(keys)
        self._keys, self._ids, self._used = keys[self._rows], keys.tolist(), retained.size
        self._sums = {name: values[retained] for name, values in self._sums.items()}
        self._err_ns, self._seen_at_ns = self._err_ns[retained], self._seen_at_ns[retained]

    def _grow(self, fresh: _UINT64S) -> None:
        self._used += fresh.size
        self._ids.extend(fresh.tolist())
        if self._used > len(self._err_ns):
            more = max(self._used, 2 * len(self._err_ns)) - len(self._err_ns)
            self._sums = {name: np.append(values, np.zeros(more)) for name, values in self._sums.items()}
            self._err_ns = np.append(self._err_ns, np.full(more, np.nan))
            self._seen_at_ns = np.append(self._seen_at_ns, np.zeros(more, np.int64))

    def _add(self, rows: Int64s, added: dict[str, npt.NDArray[Any]], bus_at_ns: int) -> None:
        number = np.zeros(self._used, np.int64)
        number[rows] = 1
        unique = np.flatnonzero(number)
        number[unique] = np.arange(unique.size)
        aged = np.maximum(bus_at_ns - self._seen_at_ns[unique], 0) / HALF_LIFE_NS
        decay = np.exp2(-np.minimum(aged, 1000.0))
        for name, values in added.items():
            sums = self._sums[name]
            sums[unique] = sums[unique] * decay + np.bincount(number[rows], values, unique.size)
        self._seen_at_ns[unique] = bus_at_ns

    def _names(self, rows: Int64s) -> list[dict[str, Any]]:
        nics, selectors = list(self._nics), list(self._selectors)
        found = []
        for key in (self._ids[row] for row in rows.tolist()):
            transport, path, dscp, direction = selectors[key & 0xFFFF]
            where = PathId(nics[key >> 40], nics[key >> 16 & 0xFFFFFF], transport, path, dscp, direction)
            found.append(where._asdict() | {"id": str(where)})
        return found


def _closed_up(numbers: dict[_T, int], used: _UINT64S) -> tuple[_UINT64S, dict[_T, int]]:
    """New number of every old one, and the names that are still used under their new numbers, in order."""
    still = np.unique(used)
    new = np.zeros(len(numbers), np.uint64)
    new[still] = np.arange(still.size)
    names = list(numbers)
    return new, {names[old]: new for new, old in enumerate(still.tolist())}


def badness(excess_ns: Float64s, loss: Float64s, ce: Float64s) -> Float64s:
    """How bad a path is, to sort by: one point per 100 µs of excess, per 1 % of loss, per 10 % of CE marks.

    An unknown term counts nothing. The three figures are shown side by side, never this sum.
    """
    terms = (excess_ns / 100_000.0, loss / 0.01, ce / 0.1)
    total: Float64s = np.sum([np.nan_to_num(np.maximum(term, 0.0)) for term in terms], axis=0)
    return total


def _percentile(values: Float64s, q: float) -> float:
    finite = values[np.isfinite(values)]
    return float(np.percentile(finite, q)) if finite.size else math.nan
