"""In band against out of band: a job whose queue pairs take far longer than the probes beside them, all the time.

Probes and queue pairs between the same two NICs, in the same class, share links and queues. Where even the fastest
first packets of nearly all queue pairs of a job arrive far later than probes do, the job's packets do not travel as
probes do: RoCEv1 instead of RoCEv2, a wrong GID index, a class or queue of their own on the way. That needs no
baseline, so a job that was set up wrongly is found from its first seconds.

The smallest delay over some seconds is compared, since hosts delay some packets of any job, and with the slowest of
the probed paths' medians, since a queue pair may take any of them. A queue on one of these makes that one slow: what
probes usually take is their median over the job's queue pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.detections import MAX_SYMPTOMS, Detection, symptom
from sdfstream.detect.inband import InBand
from sdfstream.detect.instant import Instant
from sdfstream.detect.sessions import Sessions
from sdfstream.numeric.table import Table
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_EPOCH_NS: Final = 2500 * NS_PER_MS
"""The smallest delay is that of the present epoch and the one before."""
_LEAST_NS: Final = 100e3
"""In band must be slower by this: more than processors add to the fastest of many packets."""
_TIMES: Final = 2.0
"""And by this many times what probes usually take between the job's NICs."""
_OWN_TIMES: Final = 1.0
"""And by this many times what they take between its own."""
_ERRORS: Final = 3.0
"""And by this many error bars."""
_CHUNKS: Final = 10
"""Chunks that a smallest delay rests on, at least."""
_PAIRS, _SHARE = 2, 0.8
"""Queue pairs that can be compared, and the share of them that is slower: fewer may be a link that they share."""
_FRESH_NS: Final = 3 * NS_PER_S


class InBandComparison:
    """Smallest in-band delays of every queue pair, and what probes take between the same NICs."""

    def __init__(self, inband: InBand, delays: DelayBaselines, sessions: Sessions) -> None:
        self.inband, self.delays, self.sessions = inband, delays, sessions
        self.table = Table(
            {
                "epoch": np.int64(-1),
                "least_ns": np.float64(np.inf),
                "before_ns": np.float64(np.inf),
                "chunks": np.int64(0),
                "chunks_before": np.int64(0),
                "since_ns": np.int64(ABSENT_NS),
            }
        )
        """Per queue pair: number of the present epoch, smallest delay in it and in the one before, chunks of both,
        since when it is slower than probes (bus time)."""

    def take(self, rows: Mapping[str, Any]) -> None:
        """Take windows of queue pairs, by column (`InBand.tick`); one without a delay says nothing."""
        t = self.table
        t.ensure(len(self.inband.pairs))
        known = np.isfinite(rows["owd_min_ns"])
        pair, least, chunks = (rows[name][known] for name in ("pair", "owd_min_ns", "n"))
        epoch = rows["seen_ns"][known] // _EPOCH_NS
        for number in np.unique(epoch).tolist():
            mine = epoch == number
            which = pair[mine]
            later = np.unique(which[t["epoch"][which] < number])
            next_to = t["epoch"][later] == number - 1
            t["before_ns"][later] = np.where(next_to, t["least_ns"][later], np.inf)
            t["chunks_before"][later] = np.where(next_to, t["chunks"][later], 0)
            t["epoch"][later], t["least_ns"][later], t["chunks"][later] = number, np.inf, 0
            current = mine & (t["epoch"][pair] == number)
            np.minimum.at(t["least_ns"], pair[current], least[current])
            np.add.at(t["chunks"], pair[current], chunks[current])

    def detections(self, now: Instant) -> list[Detection]:
        """Jobs most of whose queue pairs are slower than probes."""
        t, now_ns = self.table, now.reached_ns
        fresh = now_ns // _EPOCH_NS - t["epoch"] <= _FRESH_NS // _EPOCH_NS
        enough = (t["chunks_before"] >= _CHUNKS) & np.isfinite(t["before_ns"])
        least = np.minimum(t["least_ns"], t["before_ns"])
        pairs = np.flatnonzero(fresh & enough & (t["epoch"] >= 0))
        if not (least[pairs] >= _LEAST_NS).any():
            t["since_ns"][pairs] = ABSENT_NS
            return []
        probed, err = self._probed(pairs, now_ns)
        job = self.inband.table["job"][pairs]
        wanted = np.maximum(_OWN_TIMES * probed, np.maximum(_TIMES * _usual(probed, job), _ERRORS * err))
        slower = least[pairs] - probed >= np.maximum(_LEAST_NS, wanted)
        begun = np.where(t["since_ns"][pairs] == ABSENT_NS, now_ns, t["since_ns"][pairs])
        t["since_ns"][pairs] = np.where(slower, begun, ABSENT_NS)
        comparable = np.isfinite(probed)
        found = []
        for one in np.unique(job[slower]).tolist():
            mine = comparable & (job == one)
            if mine.sum() >= _PAIRS and slower[mine].mean() >= _SHARE:
                at = mine & slower
                found.append(self._detection(one, pairs[at], least[pairs[at]], probed[at], int(mine.sum())))
        return found

    def _probed(self, pairs: Ints, now_ns: int) -> tuple[Floats, Floats]:
        """(delay by probes, its error bar) between each queue pair's NICs in its class; NaN: no probe goes there."""
        t, sessions = self.inband.table, self.sessions
        known = np.array([sessions.nics.find(name) for name in self.inband.ends.list] + [-1], np.int64)
        wanted = self._key(known[t["src"][pairs]], known[t["dst"][pairs]], t["dscp"][pairs])
        seen = self.delays.table["seen_ns"]
        number = np.flatnonzero((seen != ABSENT_NS) & (now_ns - seen <= _FRESH_NS))
        session, back = number // 2, number % 2 == 1
        src, dst, dscp = (sessions.table[name][session] for name in ("src", "dst", "dscp"))
        key = self._key(np.where(back, dst, src), np.where(back, src, dst), dscp)
        mine = np.isin(key, wanted)
        keys, inverse = np.unique(key[mine], return_inverse=True)
        slowest, widest = np.full(keys.size + 1, np.nan), np.full(keys.size + 1, np.nan)
        np.fmax.at(slowest, inverse, self.delays.table["delay"][number[mine]])
        np.fmax.at(widest, inverse, self.delays.table["err"][number[mine]])
        at = np.searchsorted(keys, wanted)
        at = np.where(np.append(keys, -1)[at] == wanted, at, keys.size)
        return slowest[at], widest[at]

    @staticmethod
    def _key(src: Ints, dst: Ints, dscp: Ints) -> Ints:
        key: Ints = np.where((src >= 0) & (dst >= 0), (src << 36) | (dst << 8) | dscp, -2)
        return key

    def _detection(self, job: int, pairs: Ints, least: Floats, probed: Floats, of: int) -> Detection:
        name = self.inband.jobs.list[job]
        since = self.table["since_ns"][pairs]
        inband_us, probed_us = float(np.median(least)) / 1e3, float(np.median(probed)) / 1e3
        evidence = (
            Evidence("inband-delay", round(inband_us, 1), "µs", name, round(probed_us, 1)),
            Evidence("slow-queue-pairs", float(pairs.size), "queue pairs", name, 0.0),
            Evidence("compared-queue-pairs", float(of), "queue pairs", name),
        )
        subjects = [Subject("qp", self.inband.pairs.list[p]) for p in pairs[:MAX_SYMPTOMS].tolist()]
        return Detection(
            "inband-mismatch",
            Subject("job", name),
            int(since.min()),
            "class-mismatch",
            0.8,
            evidence,
            suspects=((name, 1.0),),
            symptoms=tuple(symptom("inband-mismatch", s, at) for s, at in zip(subjects, since.tolist(), strict=False)),
            confirm_ns=NS_PER_S,
            hold_ns=3 * NS_PER_S,
            detail="even the fastest packets of its queue pairs take far longer than probes between the same NICs",
            jobs=(name,),
        )

    def forget(self) -> None:
        """Start anew: numbers of queue pairs have been given out again."""
        self.table.reset(np.arange(self.table["epoch"].size))

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return self.table.snapshot()

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.table.restore(state)


def _usual(probed: Floats, job: Ints) -> Floats:
    """(pairs,) median over the queue pairs of each one's job of what probes take, ns; NaN where none goes there."""
    result = np.full(probed.size, np.nan)
    known = np.isfinite(probed)
    for one in np.unique(job[known]).tolist():
        mine = known & (job == one)
        result[mine] = np.median(probed[mine])
    return result
