"""Queues: slow and well paths of one class to the link, switch or NIC whose queue makes them slow.

Classes are judged apart: a class whose own queue stands is not contradicted by others that pass the same link.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.claims import MAX_SYMPTOMS, Claim, symptom
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.delays import Delays
from sdfstream.detect.localise import Located, locate
from sdfstream.detect.memo import Memo
from sdfstream.detect.problem import Observations
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_TRIALS = 8.0
"""What a verdict on one path weighs, in trials: enough that a queue only one path sees can be told at all."""


class Congestion:
    """Lays slow paths to queues."""

    def __init__(self, config: DetectConfig, delays: Delays, cabling: Cabling) -> None:
        self.config, self.delays, self.cabling = config, delays, cabling
        self.blamed: frozenset[str] = frozenset()
        self._memo = Memo()

    def claims(self, left_out: Bools, ce_share: Floats, told: frozenset[str], now_ns: int) -> list[Claim]:
        """Queues that stand now.

        Parameters
        ----------
        left_out : (sessions,) bool
            Sessions that another verdict explains.
        ce_share : (2·sessions,) float64
            Share of marked arrivals of every directed path, NaN where nothing arrived.
        told : frozenset of str
            Subjects that have been told: they stay until their paths are released. A new one takes paths that are
            high now, for else a burst that is over would live on in the release.
        now_ns : int
            Bus time.
        """
        everything = self.delays.slow(now_ns) & ~np.repeat(left_out, 2)
        if not everything.any():
            self.blamed = frozenset()
            return []
        slow, well = np.flatnonzero(everything), np.flatnonzero(self.delays.well(now_ns) & ~np.repeat(left_out, 2))
        found: dict[Subject, tuple[Located, Ints]] = {}
        classes = self.cabling.sessions.table["dscp"]
        for dscp in np.unique(classes[slow // 2]).tolist():
            mine, others = slow[classes[slow // 2] == dscp], well[classes[well // 2] == dscp]
            for place in self._memo.recall(_observe(mine, others), now_ns, self._locate):
                number = np.array([2 * s + (w == "rev") for s, w in zip(place.slots, place.ways, strict=True)])
                if place.subject in found:
                    number = np.concatenate([found[place.subject][1], number])
                found[place.subject] = (place, number)
        hot = self.delays.hot()
        claimed = [
            (place, number.astype(np.int64))
            for subject, (place, number) in found.items()
            if number.size and (subject.id in told or 2 * int(hot[number].sum()) >= number.size)
        ]
        self.blamed = frozenset(place.subject.id for place, _ in claimed)
        return [self._claim(place, number, ce_share) for place, number in claimed]

    def _locate(self, seen: Observations) -> list[Located]:
        return locate(self.cabling, seen, noise=0.01, least_share=0.6, kind="queue", incumbents=self.blamed)

    def _claim(self, place: Located, number: Ints, ce_share: Floats) -> Claim:
        t = self.delays.table
        where = " ".join(place.directions)
        excess_us = float(np.median(t["held"][number])) / 1e3
        evidence = [
            Evidence("delay-excess", round(excess_us, 1), "µs", where, 0.0),
            Evidence("error-bar", round(float(np.median(t["err"][number])) / 1e3, 1), "µs", where),
            Evidence("slow-paths", float(number.size), "paths", where, 0.0),
        ]
        marked = ce_share[number]
        if np.isfinite(marked).any():
            evidence.append(Evidence("ce-share", round(float(np.nanmean(marked)), 3), "1", where, 0.0))
        classes = sorted(set(self.cabling.sessions.table["dscp"][number // 2].tolist()))
        evidence += [Evidence("class", float(c), "DSCP", where) for c in classes[:8]]
        since = t["since_ns"][number]
        since_ns = int(np.min(since[since != ABSENT_NS], initial=int(t["seen_ns"][number].max())))
        paths = [
            str(self.cabling.sessions.path_id(n // 2, "rev" if n % 2 else "fwd"))
            for n in number[:MAX_SYMPTOMS].tolist()
        ]
        alone = place.subject.type == "path"
        return Claim(
            "congestion",
            place.subject,
            since_ns,
            "queueing",
            place.probability,
            tuple(evidence),
            suspects=tuple(place.suspects),
            symptoms=tuple(symptom("congestion", Subject("path", p), since_ns) for p in paths),
            confirm_ns=(1000 if alone else 300) * NS_PER_MS,
            hold_ns=int(self.config.hold_s * NS_PER_S),
            detail=f"queue {where}",
            directions=tuple(place.directions),
            direction_known=place.direction_known,
            classes=tuple(int(c) for c in classes),
        )

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {"blamed": sorted(self.blamed), "memo": self._memo.snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.blamed = frozenset(state["blamed"])
        self._memo.restore(state["memo"])


def _observe(slow: Ints, well: Ints) -> Observations:
    """Directed paths as observations of one direction each."""
    parts = []
    for number, failed in ((slow, _TRIALS), (well, 0.0)):
        for way, code in (("fwd", 0), ("rev", 1)):
            parts.append(Observations.of(number[number % 2 == code] // 2, way, failed, _TRIALS))
    return Observations.join(parts)
