"""Queue and utilisation of links against a twin's truth.

What is true of a direction is the mean queue that a packet meets there, standing and random, and the share of the speed
in use, over the very span that a row states. Rows are dated by reference time, the first host's clock, whose offset the
twin knows. A packet that waits behind a paused link waits for no bytes; the delay of such a queue is no error of bytes
alone, so errors of delay are of those in bytes at the link's speed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdfstream.errors import FormatError
from sdfstream.records import columns
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import HOP
from sdfstream.records.units import NS_PER_S, Float64s, Int64s
from sdfstream.twin.simulation import LINKS_NS, Twin


@dataclass(slots=True)
class HopSums:
    """Sums of squared errors and how many, over rows; sums of several runs add up."""

    queues: int = 0
    bytes2: float = 0.0
    ns2: float = 0.0
    within: int = 0
    """Queues whose truth lies within two of the stated errors."""
    standing: int = 0
    """Queues whose standing part was above 0; likewise:"""
    standing_bytes2: float = 0.0
    uses: int = 0
    share2: float = 0.0

    def plus(self, other: HopSums) -> HopSums:
        """Of both."""
        return HopSums(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class HopErrors:
    """Estimate − truth, row by row."""

    queue_bytes: Float64s
    queue_ns: Float64s
    queue_true: Float64s
    """Bytes, standing and random."""
    standing: Float64s
    """Bytes of the standing part alone."""
    stated_ns: Float64s
    """Standard error that the row states."""
    utilisation: Float64s

    @property
    def within(self) -> float:
        """Share of queues whose truth lies within two of the stated errors."""
        return float(np.mean(np.abs(self.queue_ns) <= 2 * self.stated_ns)) if self.queue_ns.size else 1.0

    def sums(self) -> HopSums:
        """The figures of a run."""
        stood = self.standing > 0
        return HopSums(
            self.queue_bytes.size, float(np.sum(self.queue_bytes**2)), float(np.sum(self.queue_ns**2)),
            int(np.sum(np.abs(self.queue_ns) <= 2 * self.stated_ns)), int(stood.sum()),
            float(np.sum(self.queue_bytes[stood] ** 2)), self.utilisation.size, float(np.sum(self.utilisation**2)),
        )  # fmt: skip


class HopTruth:
    """Takes what the stages say of a twin's links; compares it once the twin has run to its end."""

    def __init__(self, twin: Twin) -> None:
        self._twin = twin
        self._rows: list[tuple[Float64s, ...]] = []

    def take(self, message: Message) -> None:
        """Take a message; what is not of ``sdf.derived.hop.v1`` changes nothing."""
        if message.topic != HOP.name or isinstance(message.body, Event):
            return
        try:
            code, names = columns.names(message.body, "direction")
            figures = [
                columns.filled(message.body, name, np.nan).astype(np.float64)
                for name in ("queue_bytes", "queue_err_ns", "utilisation", "speed_bps")
            ]
            spans = [columns.instants(message.body, name) for name in ("at_ns", "utilisation_at_ns")]
            lengths = [columns.filled(message.body, n, 0).astype(float) for n in ("window_ns", "utilisation_window_ns")]
        except FormatError:
            return
        number = np.array([self._twin.fabric.number.get(name, -1) for name in names] + [-1])[code]
        began = [self._true_ns(span) for span in spans]
        self._rows.append((number.astype(float), *figures, *began, *lengths))

    def _true_ns(self, at_ns: Int64s) -> Float64s:
        """True time since the start of instants of reference time."""
        twin = self._twin
        since = np.clip(at_ns - twin.start_ns, 0, round(twin.seconds * NS_PER_S) - 1)
        result: Float64s = at_ns - twin.start_ns - twin.clocks.offset(np.zeros(since.size, np.int64), since)
        return result

    def errors(self) -> HopErrors:
        """Errors of all rows of links that the twin has."""
        none = np.empty(0)
        if not self._rows or not self._twin.links:
            return HopErrors(none, none, none, none, none, none)
        every = [np.concatenate(column) for column in zip(*self._rows, strict=True)]
        number, queue, err, share, speed, at, share_at, length, share_length = every
        link, truth = number.astype(np.int64), self._twin.links
        mine = (link >= 0) & ~np.isnan(queue) & ~np.isnan(speed)
        standing, random = (
            _mean(np.array([getattr(t, name) for t in truth]), link[mine], at[mine], length[mine])
            for name in ("queue_bytes", "random_bytes")
        )
        off, each_ns = queue[mine] - standing - random, 8e9 / speed[mine]
        used = (link >= 0) & ~np.isnan(share) & (share_length > 0)
        busy = _mean(np.array([t.busy for t in truth]), link[used], share_at[used], share_length[used])
        return HopErrors(off, off * each_ns, standing + random, standing, err[mine], share[used] - busy)


def _mean(values: Float64s, link: Int64s, at_ns: Float64s, length_ns: Float64s) -> Float64s:
    """Mean of (steps, links) `values` of steps of `LINKS_NS` over each span."""
    sums = np.vstack([np.zeros(values.shape[1]), np.cumsum(values, axis=0)])

    def until(ns: Float64s) -> Float64s:
        step = np.clip(ns / LINKS_NS, 0, len(sums) - 1)
        whole = np.minimum(step.astype(np.int64), len(sums) - 2)
        result: Float64s = sums[whole, link] + (step - whole) * (sums[whole + 1, link] - sums[whole, link])
        return result

    mean: Float64s = (until(at_ns + length_ns) - until(at_ns)) / np.maximum(length_ns / LINKS_NS, 1e-9)
    return mean
