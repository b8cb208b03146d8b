"""How long blame for silence must stand before it is told: by the limits that the silent paths' agents go by.

The paths of one fault fall silent within one probe interval of each other, and each agent says so after its own limit
(`SessionLiveness`); a quarter of that is time for the last of them. Fast paths need not wait for slow ones. Detect's
own limit plays no part in it: agents may be set to others, and be of several releases.

While more than one element explains what fast paths show, blame waits for agents' rows of what else passed meanwhile,
for slower paths, and where paths are traced for how far the packets of silent ones get. Once such traces are there,
time counts from when the agents said that these paths are silent, whatever was blamed first.
"""

from __future__ import annotations

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.liveness import SLACK_NS, Sightings
from sdfstream.detect.localise import Location
from sdfstream.detect.one_cable import over_one_cable
from sdfstream.detect.presence import Presence
from sdfstream.records.units import NS_PER_MS

SEPARATE_NS = 500 * NS_PER_MS
"""How long a switch's silence waits for what tells it from one of its cables."""
TRACED_NS = 400 * NS_PER_MS
"""How long what is in doubt waits for traces of silent paths, which agents make at once, in a quarter of a second."""
_LATELY_NS = 3 * TRACED_NS
"""Of what has been silent for longer, a place that is blamed anew was not named by traces, but by what came back."""
_NAMED = 0.7
"""A place of which traces have made this much is what they named; of what is less likely more traces are to come."""
_ENOUGH = 2
"""Fast paths are enough for blame if they are so many."""
SURE = 0.9
"""Blame as likely as this waits for no more evidence."""


class Settling:
    """The time to settle of whatever silence is laid to."""

    def __init__(self, config: DetectConfig, presence: Presence, cabling: Cabling) -> None:
        self.config, self.presence, self.cabling = config, presence, cabling

    def time_ns(self, found: Location, seen: Sightings, now_ns: int) -> int:
        """How long blame must stand, from now on if it is new: by the limits and by what may tell its rivals apart."""
        slots = found.slots
        time_ns, rivals_ns = self._times_ns(found, seen)
        stood_ns = self.presence.reached_ns(now_ns) - int((seen.since_ns[slots] + seen.limit_ns[slots]).max())
        named = _likely(found) >= _NAMED and self.cabling.silent_traces.has_any(slots, seen.since_ns[slots])
        if named and stood_ns < _LATELY_NS:
            return max(0, max(time_ns, rivals_ns) - max(0, stood_ns))
        return time_ns + rivals_ns

    def _times_ns(self, found: Location, seen: Sightings) -> tuple[int, int]:
        """By the slowest tenth of the fast paths that blame rests on, if there are enough; and for its rivals.

        A switch of which one cable explains all waits for what tells them apart: slower paths over its other cables,
        which any agent may watch. So does a place that is in doubt, for those over its rivals.
        """
        if found.subject.type == "switch" and over_one_cable(self.cabling, found.subject.id, found.slots):
            apart_ns = TRACED_NS if self.cabling.is_traced(found.slots) else SEPARATE_NS
            return self.config.settle_ns(self.longest_ns()), apart_ns
        limits_ns = np.sort(seen.limit_ns[found.slots])
        fast_ns = limits_ns[: max(_ENOUGH, found.slots.size // 10)]
        time_ns = self.config.settle_ns(int(fast_ns[-1] if fast_ns.size >= _ENOUGH else limits_ns[-1]))
        if self.config.settle_ms is not None:
            return time_ns, 0
        if found.probability < SURE:
            time_ns = max(time_ns, SLACK_NS, self.config.settle_ns(self.longest_ns()))
        return time_ns, TRACED_NS if _likely(found) < SURE and self.cabling.is_traced(found.slots) else 0

    def longest_ns(self) -> int:
        """The longest limit that any agent goes by."""
        return int(self.presence.limits_ns(self.config.liveness_ns).max(initial=0)) or self.config.liveness_ns


def _likely(found: Location) -> float:
    """By evidence alone: a place that is blamed already seems likelier than that."""
    return found.probability if found.stated is None else found.stated
