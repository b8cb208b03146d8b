"""From rows of ``sdf.state.clock.v1`` to pages, for the clocks of this machine. Arrays and pairs of clock readings in.

A row is for an instant some 0.1–0.4 s ago, by its clock's reading; the history of pairs gives CLOCK_MONOTONIC_RAW of
that instant. The growth of the bound until the next row is learned from the innovations, each row's offset less the
prediction by the row before: those of a filter that follows a random walk have the walk's own variance. A walk of
σ ns/√s is within k·σ·√age; the straight line ``k·σ·√τ/2 + k·σ/(2√τ) · age`` lies above that everywhere and
touches it at age τ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from sdfstream.agent.clockpage.history import RATE_NS, History
from sdfstream.clock.page import STATUSES, Page
from sdfstream.errors import FormatError
from sdfstream.records import columns
from sdfstream.records.units import NS_PER_MS, NS_PER_S, Bools, Float64s, Int32s, Int64s
from sdfstream.stats import Counters

ReadingAt = Callable[[int], int]
"""A clock's reading at an instant of CLOCK_REALTIME."""

CAUSAL: Final = "causal"
STEP_NS: Final = 100_000
"""A clock that was moved by less gets a wider bound (a daemon's slew); by more, status ``stepped``."""


@dataclass(frozen=True, slots=True)
class PageConfig:
    """Validity and growth of the bound of pages."""

    fresh_ns: int = NS_PER_S
    """Rows come every 100 ms and are 0.1–0.4 s old; beyond this some are missing."""
    void_ns: int = 60 * NS_PER_S
    hold_ppb: float = 5_000.0
    """Growth of the bound beyond `fresh_ns`: a crystal moves by 1 ppm per °C, and a daemon may begin to slew it."""
    least_grow_ppb: float = 50.0
    sigmas: float = 3.3
    """99.9 % of a normal law."""
    touch_ns: int = 300 * NS_PER_MS
    """τ: the usual age of a row."""
    first_wander_ns: float = 100.0
    """Assumed phase walk, ns/√s, until it is learned."""
    learn_s: float = 20.0
    """Time constant of learning it."""


@dataclass(slots=True)
class _LastRow:
    """The last row of a clock that was used."""

    at_ns: int
    offset_ns: float
    skew: float
    wander: float
    """Variance of the phase walk, ns² per s."""


@dataclass(slots=True)
class _Dictionary:
    """The last message's dictionary of clock names, which hardly ever changes."""

    array: pa.Array
    names: list[str]
    ours: Bools
    """Per name whether it is one of our clocks; one more entry, False, for code −1."""


@dataclass(slots=True)
class PageMaker:
    """Makes the pages of some clocks.

    Parameters
    ----------
    clocks : mapping of clock id to callable or None
        Its reading at an instant of CLOCK_REALTIME; None: it is CLOCK_REALTIME.
    boot, writer : bytes
        16 each.

    Notes
    -----
    Counters: ``rows`` (of our clocks), ``refused`` (reason: ``row-…``, or what the columns said), ``early`` (rows
    before the clocks were read for 0.15 s), ``pair-wide`` (readings too far apart).
    """

    clocks: Mapping[str, ReadingAt | None]
    boot: bytes
    writer: bytes
    config: PageConfig = field(default_factory=PageConfig)
    counters: Counters = field(default_factory=lambda: Counters("clock-page"))
    history: History = field(default_factory=History)
    _last: dict[str, _LastRow] = field(default_factory=dict)
    _dictionary: _Dictionary | None = None

    def take_pair(self, system_ns: int, raw_ns: int, width_ns: int) -> None:
        """Take a reading of CLOCK_REALTIME and CLOCK_MONOTONIC_RAW within `width_ns`; about ten a second."""
        if self.history.add(system_ns, raw_ns, width_ns) == "wide":
            self.counters.add("pair-wide")

    def pages(self, rows: pa.RecordBatch) -> list[Page]:
        """A page for each causal row of one of our clocks."""
        try:
            codes, names = self._names(rows)
            pick = self._ours(rows, codes, names)
            if not pick.size:
                return []
            reference = self._reference(rows, codes, names)
            statuses, texts = columns.names(rows, "status")
            numbers = [columns.values(rows, name)[pick].tolist() for name in _NUMBERS]
        except FormatError as error:
            self.counters.add("refused", error.reason)
            return []
        made = []
        moved_ns = self.history.unexplained_ns()
        for code, status, *row in zip(codes[pick].tolist(), statuses[pick].tolist(), *numbers, strict=True):
            self.counters.add("rows")
            page = self._page(names[code], texts[status] if status >= 0 else "", reference, moved_ns, *row)
            if page == "early":
                self.counters.add("early")
            elif isinstance(page, str):
                self.counters.add("refused", page)
            else:
                made.append(page)
        return made

    def _names(self, rows: pa.RecordBatch) -> tuple[Int32s, list[str]]:
        """Codes of the clocks and their names; an unchanged dictionary is not read again."""
        codes, dictionary = columns.coded(rows, "clock")
        last = self._dictionary
        if last is None or not last.array.equals(dictionary):
            names: list[str] = dictionary.to_pylist()
            ours = np.array([name in self.clocks for name in names] + [False], dtype=np.bool_)
            last = self._dictionary = _Dictionary(dictionary, names, ours)
        return codes, last.names

    def _ours(self, rows: pa.RecordBatch, codes: Int32s, names: list[str]) -> Int64s:
        """Row numbers of the causal rows of our clocks."""
        assert self._dictionary is not None
        ours = self._dictionary.ours[codes]  # code −1, no name, is the last entry: not ours
        if ours.any():
            kinds, texts = columns.names(rows, "kind")
            ours &= kinds == (texts.index(CAUSAL) if CAUSAL in texts else -2)
        return np.flatnonzero(ours)

    def _reference(self, rows: pa.RecordBatch, codes: Int32s, names: list[str]) -> str:
        """The reference of all offsets: the clock at offset 0 with the smallest bound; empty: a mean of several."""
        err: Float64s = columns.values(rows, "err_ns")
        still = (columns.values(rows, "offset_ns") == 0.0) & (columns.values(rows, "skew_ppb") == 0.0) & (codes >= 0)
        if not still.any() or not math.isfinite(least := float(err[still].min())):
            return ""
        candidates: list[int] = codes[still & (err == least)].tolist()
        return min(names[code] for code in candidates)

    def _page(
        self, clock: str, status: str, reference: str, moved_ns: int,
        at_ns: int, offset_ns: float, skew_ppb: float, err_ns: float, n: int,
    ) -> Page | str:  # fmt: skip
        """The page of a row, or the reason for none."""
        c, newest = self.config, self.history.newest
        if status not in STATUSES[1:]:
            return "row-status"
        if not all(math.isfinite(x) for x in (offset_ns, skew_ppb, err_ns)) or err_ns < 0 or abs(skew_ppb) > 1e6:
            return "row-number"
        if newest is None or (rate := self.history.rate()) is None:
            return "early"
        reading = self.clocks[clock]
        raw_ns = self.history.raw_at(at_ns if reading is None else _system_at(reading, at_ns, newest[0]))
        if raw_ns is None:
            return "row-instant"
        wander = self._learned(clock, status, at_ns, offset_ns, skew_ppb * 1e-9)
        walk_ns, walk_ppb = line_above(c.sigmas * math.sqrt(wander), c.touch_ns / NS_PER_S)
        bound_ns = err_ns + walk_ns
        if status == "synced" and moved_ns > bound_ns + STEP_NS:
            status = "stepped"
        return Page(
            clock=clock,
            reference=reference,
            realtime=reading is None,
            at_ns=at_ns,
            raw_ns=raw_ns,
            offset_ns=round(offset_ns),
            err_ns=math.ceil(bound_ns) + moved_ns + 4,  # roundings, here and in the reader
            skew_ppb=skew_ppb,
            raw_ppb=(rate if reading is None else rate + _own_rate(reading, newest[0])) * 1e9,
            grow_ppb=c.least_grow_ppb + walk_ppb,
            hold_ppb=c.hold_ppb,
            fresh_ns=c.fresh_ns,
            void_ns=c.void_ns,
            written_raw_ns=newest[1],
            status=status,
            n=n,
            boot=self.boot,
            writer=self.writer,
        )

    def _learned(self, clock: str, status: str, at_ns: int, offset_ns: float, skew: float) -> float:
        """Variance of the clock's walk against the reference, ns² per s, after this row."""
        c, last = self.config, self._last.get(clock)
        wander = c.first_wander_ns**2 if last is None else last.wander
        if last is not None and status == "synced" and 0 < (passed_s := (at_ns - last.at_ns) / NS_PER_S) < 2.0:
            innovation_ns = offset_ns - last.offset_ns - last.skew * (at_ns - last.at_ns)
            gain = -math.expm1(-passed_s / c.learn_s)
            wander += gain * (innovation_ns * innovation_ns / passed_s - wander)
        if status == "synced" or last is None:
            self._last[clock] = _LastRow(at_ns, offset_ns, skew, wander)
        return wander


_NUMBERS: Final = ("at_ns", "offset_ns", "skew_ppb", "err_ns", "n")


def line_above(walk: float, touch_s: float) -> tuple[float, float]:
    """(ns, ns per s) of the straight line that lies above ``walk · √age`` and touches it at `touch_s`.

    >>> line_above(200.0, 0.25)
    (50.0, 200.0)
    """
    return walk * math.sqrt(touch_s) / 2, walk / (2 * math.sqrt(touch_s))


def _system_at(reading: ReadingAt, at_ns: int, near_ns: int) -> int:
    """CLOCK_REALTIME when this clock read `at_ns`; three steps suffice for skews below 1e-3."""
    system_ns = at_ns - (reading(near_ns) - near_ns)
    for _ in range(2):
        system_ns += at_ns - reading(system_ns)
    return system_ns


def _own_rate(reading: ReadingAt, system_ns: int) -> float:
    """Rate of a clock − rate of CLOCK_REALTIME over the last second."""
    return (reading(system_ns) - reading(system_ns - RATE_NS) - RATE_NS) / RATE_NS
