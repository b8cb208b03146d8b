"""What a window holds of losses that are known: events and probes per session, and in time over some of them.

A loss is known only after its probe's time-out, an answer at once: the newest part of every window holds answers and no
losses. Probes sent within the time-out and a flush before now are therefore left out until it is known what became of
them; of an agent that has reported nothing for longer, those within the time-out before its last report.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sdfstream.detect.presence import Presence
from sdfstream.detect.runs import BINS, LossRuns
from sdfstream.detect.sessions import Sessions
from sdfstream.numeric.binomial import log_tail_bound
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_LATE_NS = 250 * NS_PER_MS
"""A flush of an agent and half as much again, between a time-out and its row."""
_AS_LIKELY = 2.0
"""Nats; of faint loss chance makes one moment or another the likeliest, most often a late one."""
_LEAST_BINS = 8
"""Scattered over at least so many bins: a short outage fills a few."""


@dataclass(frozen=True, slots=True)
class Look:
    """A window that is evaluated: which ring of `LossRuns`, and how many of its newest bins."""

    ring: int
    bins: int


@dataclass(frozen=True, slots=True)
class LossCounts:
    """(sessions,) loss events of one window and probes whose fate is known; both 0 of sessions left out."""

    events: Ints
    probes: Ints

    @property
    def used(self) -> Ints:
        """Sessions that sent anything."""
        return np.flatnonzero(self.probes > 0)

    def share(self, slots: Ints) -> float:
        """Of the probes of these sessions, what was lost."""
        return float(self.events[slots].sum() / max(1, self.probes[slots].sum()))

    def by_chance(self, slots: Ints, others: Floats) -> float:
        """Log of how likely these sessions lose as much together, or more, of what all else costs: 0 or less.

        `others` is the share of probes of each session, (sessions,), that all else loses.
        """
        lost, sent = int(self.events[slots].sum()), int(self.probes[slots].sum())
        if not lost:
            return 0.0
        normal = float((self.probes[slots] * others[slots]).sum()) / max(1, sent)
        return float(log_tail_bound(lost, max(lost, sent), min(max(normal, 1e-9), 0.999)))


@dataclass(frozen=True, slots=True)
class Course:
    """Events and known probes of some sessions together, bin by bin, oldest first."""

    events: Ints
    probes: Ints
    first_bin: int
    """Number of the oldest bin."""
    width_ns: int

    def start_ns(self, index: int) -> int:
        """When the bin at `index` began, bus time."""
        return (self.first_bin + index) * self.width_ns


class KnownLosses:
    """The rings of `LossRuns` at one instant."""

    def __init__(self, runs: LossRuns, interval_ns: Ints, left_out: Bools, unreported_ns: Ints | int = 0) -> None:
        self.rings, self.left_out = runs.windows, left_out
        timeout_ns = np.where(interval_ns > 0, np.minimum(NS_PER_S, 5 * interval_ns), NS_PER_S)
        fine = self.rings[0]
        late_ns = np.maximum(_LATE_NS, unreported_ns)
        open_bins = -(-(timeout_ns + late_ns) // fine.width_ns) + 1  # the current one is not full
        unknown = fine.newest_of("probes", open_bins) - fine.newest_of("events", open_bins)
        self._unknown = np.maximum(unknown, 0)
        """(sessions,) answered probes so young that losses of their time are not known."""
        self._open = int(open_bins[self._unknown > 0].max(initial=0))
        self._open_bins = open_bins

    def bins(self, look: Look) -> int:
        """Bins of a look, those included of which losses are not known yet."""
        return min(BINS, look.bins + self._open) if look.ring == 0 else look.bins

    def of(self, look: Look) -> LossCounts:
        """Sums per session."""
        return self.newest(look.ring, self.bins(look))

    def newest(self, ring: int, bins: int) -> LossCounts:
        """Sums per session over the newest bins of a ring."""
        events, probes = (np.where(self.left_out, 0, self.rings[ring].recent(f, bins)) for f in ("events", "probes"))
        return LossCounts(events, np.maximum(np.where(self.left_out, 0, probes - self._unknown), events))

    def closed(self, bins: int) -> LossCounts:
        """Sums per session over the newest bins of the fine ring but for those of which not all losses are known.

        Where that leaves nothing: over all of them, as `newest`.
        """
        fine = self.rings[0]
        events, probes = (
            np.where(self.left_out, 0, fine.recent(f, bins) - fine.newest_of(f, np.minimum(self._open_bins, bins)))
            for f in ("events", "probes")
        )
        return LossCounts(events, np.maximum(probes, events)) if probes.any() else self.newest(0, bins)

    def began_ns(self, slots: Ints, bins: int) -> int:
        """When these sessions together began to lose, bus time, to a bin of the fine ring: by all that is known."""
        fine = self.rings[0]
        events, probes = (fine.ordered(field, slots)[BINS - bins :] for field in ("events", "probes"))
        end = int(np.flatnonzero(events).max(initial=0)) + 1
        course = Course(events[:end], probes[:end], fine.now_bin - bins + 1, fine.width_ns)
        return course.start_ns(onset(course))

    def over(self, slots: Ints, ring: int, bins: int = BINS) -> Course:
        """These sessions together; without the newest bins of which nothing is known yet."""
        slots, counts = slots[~self.left_out[slots]], self.rings[ring]
        events, probes = (counts.ordered(field, slots) for field in ("events", "probes"))
        unknown, end = int(self._unknown[slots].sum()), BINS
        at = BINS
        while unknown > 0 and at > 0:
            at -= 1
            taken = min(unknown, int(probes[at] - events[at]))
            probes[at] -= taken
            unknown -= taken
        while end > at and probes[end - 1] == events[end - 1]:  # no answer of its time counts yet
            end -= 1
        first = BINS - bins
        return Course(events[first:end], probes[first:end], counts.now_bin - bins + 1, counts.width_ns)


def unreported_ns(presence: Presence, sessions: Sessions, now_ns: int) -> Ints:
    """(sessions,) how long ago the sender's agent last reported; 0: it never did."""
    reported_ns = np.append(presence.hosts["reported_ns"], ABSENT_NS)
    at_ns = reported_ns[np.append(sessions.nic_host, -1)[sessions.table["src"]]]
    result: Ints = np.where(at_ns == ABSENT_NS, 0, np.maximum(0, now_ns - at_ns))
    return result


def scattered(course: Course) -> int:
    """Events of which each bin counts at most twice the median one since they began: a burst counts little.

    Before the onset there was nothing to be scattered; after it there must be `_LEAST_BINS` bins to judge by.
    """
    events = course.events
    since = events[max(0, min(onset(course), events.size - _LEAST_BINS)) :]
    middle = float(np.median(since)) if since.size else 0.0
    most = max(2.0 if course.width_ns < NS_PER_S else 3.0, 2.0 * middle)
    return int(np.minimum(events, most).sum())


def onset(course: Course) -> int:
    """First bin of a change point of a share: the earliest of those that are nearly as likely as the likeliest."""
    k, n = (np.cumsum(x[::-1])[::-1].astype(np.float64) for x in (course.events, course.probes))
    if not k.size:
        return 0
    before, passed = k[0] - k, n[0] - n
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(k > 0, k * np.log(k / np.maximum(n, 1.0)), 0.0)
        gain += np.where(before > 0, before * np.log(before / np.maximum(passed, 1.0)), 0.0)
    gain = np.where(course.events > 0, gain, -np.inf)
    return int(np.argmax(gain >= gain.max() - _AS_LIKELY))
