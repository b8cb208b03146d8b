"""A rise of load everywhere: delays of paths that have nothing to do with a queue are longer, too.

Where all load grows, queues of some tens of microseconds come and go at whatever link takes most of it, and congestion
control deals with them. What tells that from a link that something has filled are the other paths: each is a little
longer than normal, hardly any by as much as makes a queue, but nearly all of them at once. And NICs send more than
they usually do, most of them: where links are far from full, other paths hardly wait for it (`root.port_rates`). A job
that sends in steps makes most paths of a small fabric longer as well, for some tenths of a second at a time: only what
stays for a second is a surge.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.instant import Instant
from sdfstream.detect.localise import Location
from sdfstream.detect.queues.shifts import MEAN_OF_NOISE
from sdfstream.detect.root.port_rates import PortRates
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S, Bools, Float64s, Int64s

SURGE_NS: Final = 15 * NS_PER_S
"""What a surge makes of queues and marks is no trouble for so long."""
_LASTS_NS: Final = NS_PER_S
"""Load that has grown for so long has grown in a surge, …"""
_APART_NS: Final = 300 * NS_PER_MS
"""… seen again and again, no further apart than this."""
_LEAST_PATHS: Final = 16
"""Directed paths beside the queue that say whether load has grown."""
_LASTING: Final = 3.0 * MEAN_OF_NOISE
"""Half of the others are longer by more than this share of their scatter, in the mean over some seconds: three standard
deviations of a quiet path's mean; …"""
_NOW: Final = 1.0
"""… or by more than this in their last window, before such means have followed: paths that are probed once a second
need ten for that. Of sixteen quiet paths half are never longer by so much."""
_GROWN: Final = 1.15
"""Half of all NICs send so many times what they lately did at most; steady load and jobs that go on make 1.0 of it."""
_KNOWN: Final = 30
"""Windows after which a path's scatter is known well enough for that."""


class Surges:
    """Whether a queue stands while load has grown everywhere, or had a while ago."""

    def __init__(self, delays: DelayBaselines, cabling: Cabling, rates: PortRates) -> None:
        self.delays, self.cabling, self.rates = delays, cabling, rates
        self._since_ns, self._seen_ns, self._surge_ns = ABSENT_NS, ABSENT_NS, ABSENT_NS
        """Bus time since which load is seen to have grown, when it last was, and when it last was in a surge."""

    def stands_in_one(self, location: Location, now: Instant) -> bool:
        """Whether load has grown everywhere, not at this place alone; what is longer then is normal soon."""
        numbers = self.cabling.numbers(location.directions)
        crossing = np.isin(self.cabling.element, numbers).any(axis=2).reshape(-1)
        mine = np.union1d(location.directed_paths(), np.flatnonzero(crossing))
        at_ns = now.reached_ns
        # not of a NIC's own port: where many send to one NIC, many send more
        send_more = location.subject.type == "link" and (self.rates.grown(at_ns) or 1.0) >= _GROWN
        grown = send_more or load_has_grown(self.delays, mine, self.delays.current(at_ns))
        if grown:
            self._see(at_ns)
        return grown or (self._surge_ns != ABSENT_NS and at_ns - self._surge_ns < SURGE_NS)

    def _see(self, at_ns: int) -> None:
        if self._seen_ns == ABSENT_NS or at_ns - self._seen_ns > _APART_NS:
            self._since_ns = at_ns
        self._seen_ns = at_ns
        if at_ns - self._since_ns >= _LASTS_NS:
            self._surge_ns = at_ns

    def snapshot(self) -> list[int]:
        """The whole state."""
        return [self._since_ns, self._seen_ns, self._surge_ns]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._since_ns, self._seen_ns, self._surge_ns = map(int, state)


def load_has_grown(delays: DelayBaselines, crossing: Int64s, fresh: Bools) -> bool:
    """Whether paths other than `crossing`, the directed paths of a queue, are longer than normal, most of them.

    Parameters
    ----------
    delays : DelayBaselines
    crossing : (n,) int64
        Numbers of directed paths: 2·session + (0 fwd, 1 rev).
    fresh : (paths,) bool
        Directed paths of which something was received a moment ago.
    """
    others = fresh & (delays.moments.count >= _KNOWN)
    others[crossing[crossing < others.size]] = False
    number, settled = np.flatnonzero(others), np.flatnonzero(others & delays.settled())
    if settled.size >= _LEAST_PATHS and _median(delays, settled, delays.shifts.table["mean_ns"]) > _LASTING:
        return True
    return number.size >= _LEAST_PATHS and _median(delays, number, delays.last_excess_ns()) > _NOW


def _median(delays: DelayBaselines, number: Int64s, excess_ns: Float64s) -> float:
    """Of these paths' excess, each in what it scatters by when quiet."""
    return float(np.median(excess_ns[number] / np.maximum(np.sqrt(delays.moments.variance[number]), 1.0)))
