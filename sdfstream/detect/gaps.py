"""Short gaps: all paths of a part lose several probes in a row and come back before that counts as silence.

A gap is no finding (half a second without an answer is allowed), but a link that gaps again and again is flapping. Each
session's runs of lost probes come from `runs`; sessions that gapped at the same time go to `localise` together
with those that did not, and the part that explains them gets one pulse in its flap record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.localise import locate
from sdfstream.detect.problem import Observations
from sdfstream.detect.runs import LONG_RUN, LossRuns
from sdfstream.records.finding import Subject
from sdfstream.records.units import NS_PER_MS, NS_PER_S

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_SETTLED_NS = 400 * NS_PER_MS
"""A group of gaps is judged once no run in it has grown for this long."""
_TOGETHER_NS = 700 * NS_PER_MS
"""Runs that outgrew within this time belong to one gap: time-outs and flushes spread them."""


@dataclass(frozen=True, slots=True)
class Gap:
    """One short outage of one subject, bus time, to about ± one flush and one probe interval."""

    subject: Subject
    down_ns: int
    up_ns: int


class Gaps:
    """Groups of runs that ended, judged once each (what was judged stands with the runs)."""

    def __init__(self, runs: LossRuns, cabling: Cabling) -> None:
        self.runs, self.cabling = runs, cabling

    def look(self, silent: Bools, answered_ns: Ints, interval_ns: Ints, now_ns: int) -> list[Gap]:
        """Gaps that have closed since the last look.

        Parameters
        ----------
        silent : (sessions,) bool
            Sessions that are silent now: their runs are outages, not gaps.
        answered_ns : (sessions,) int64
            Bus time of each session's last answer.
        interval_ns : (sessions,) int64
            Probe interval, 0 where it is not known.
        now_ns : int
            Bus time.
        """
        t = self.runs.table
        fresh = (t["run"] >= LONG_RUN) & (t["outgrew_ns"] != t["judged_ns"])
        if not fresh.any():
            return []
        t["judged_ns"][silent] = t["outgrew_ns"][silent]  # an outage: `silence` has it
        ended = fresh & ~silent & (now_ns - t["lost_ns"] >= _SETTLED_NS)
        if not ended.any():
            return []
        first_ns = int(t["outgrew_ns"][ended].min())
        group = ended & (t["outgrew_ns"] <= first_ns + _TOGETHER_NS)
        t["judged_ns"][group] = t["outgrew_ns"][group]
        passing = ~fresh & ~silent & (answered_ns >= first_ns)
        bad, good = np.flatnonzero(group), np.flatnonzero(passing)
        seen = Observations.join([Observations.of(bad, "both", 8.0, 8.0), Observations.of(good, "both", 0.0, 8.0)])
        found = locate(self.cabling, seen, noise=1e-3, least_share=0.9)
        gaps = []
        for location in found:
            if location.subject.type == "path" or location.probability < 0.5:
                continue
            each_ns = np.maximum(interval_ns[location.slots], 1)
            length_ns = int(np.median(t["run"][location.slots] * each_ns))
            timeout_ns = np.minimum(NS_PER_S, 5 * each_ns)  # a lost probe is a row only after this
            up_ns = int((t["lost_ns"][location.slots] - timeout_ns).min())
            gaps.append(Gap(location.subject, up_ns - length_ns, up_ns))
        return gaps
