"""Runs of lost probes: gray loss is many short ones, an outage is a long one.

A **loss event** is a run of consecutive lost probes, as long as it is short; once it has grown to `LONG_RUN` probes
it is an outage and is taken back from the counts. Counting events rather than probes keeps bursts from looking like
a high rate of independent loss.

A **gap** is a run that ends before it counts as silence. It is no finding (half a second without an answer is allowed),
but a link that gaps again and again is flapping: sessions that gapped at the same time go to `localise` together with
those that did not, and the element that explains them gets one pulse in its flap record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.detections import MAX_SYMPTOMS
from sdfstream.detect.gray.lost_there import LostThere
from sdfstream.detect.instant import Instant
from sdfstream.detect.liveness import SessionLiveness
from sdfstream.detect.localise import Location, locate
from sdfstream.detect.problem import Observations
from sdfstream.detect.sessions import Sessions
from sdfstream.numeric.bins import RingBins
from sdfstream.numeric.table import Table
from sdfstream.records.finding import Subject
from sdfstream.records.units import NS_PER_MS, NS_PER_S

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LONG_RUN = 4
"""Lost probes in a row that are an outage rather than gray loss."""
GAP_RUN, _GAP_NS = 3, 250 * NS_PER_MS
"""Lost probes in a row over this time, on several paths at once, may be an outage as well: of 300 ms, at 10 Hz."""
_SEVERAL = 3
"""So many paths must have met a gap of which none lost `LONG_RUN` probes."""
BINS = 32
REMEMBERED = 64
"""Of so many probes up to the last that was answered it is known which were."""
_RESTART = 4096
"""A sequence number this far back is a sender that started afresh."""

_SETTLED_NS = (200 * NS_PER_MS, 400 * NS_PER_MS)
"""A gap is located once none of its runs has grown for two probe intervals, these times at least and at most."""
_SHARED_RUN = 2
"""Lost probes in a row by which a path may have met the gap of others that lost `LONG_RUN`."""
_BEFORE_NS = 2 * NS_PER_S
"""A gap is laid to what its paths crossed so long before it was seen: they may be rerouted since."""
_TOGETHER_NS = 700 * NS_PER_MS
"""Runs that outgrew within this time belong to one gap: time-outs and flushes spread them."""


class LossRuns:
    """Loss events and probes of every session, in bins of 200 ms and of 2 s."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.table = Table(
            {
                "seq": np.int64(-2),
                "run": np.int64(0),
                "top": np.int64(-1),
                "answered": np.uint64(0),
                "bins": np.full(2, -1, np.int64),
                "grew_ns": np.int64(0),
                "began_ns": np.int64(0),
                "lost_ns": np.int64(0),
                "located_ns": np.int64(0),
                "counted_ns": np.int64(0),
            }
        )
        """Per session: last lost sequence number, length of its run, highest sequence number answered and which of the
        64 up to it were (bit 0: the highest), bins in which the run was counted, bus time at which it had `GAP_RUN`
        probes, bus times of its first and its last lost row, `grew_ns` of the last run that `Gaps` has seen, and from
        when on what it sent counts."""
        self.there = LostThere()
        self.windows = (
            RingBins(BINS, 200 * NS_PER_MS, ("events", "probes")),
            RingBins(BINS, 2 * NS_PER_S, ("events", "probes")),
        )

    def ensure(self) -> None:
        """Have a row for every session."""
        self.table.ensure(self.sessions.count)
        for window in self.windows:
            window.ensure(self.sessions.count)
        self.there.ensure(self.sessions.count)

    def forget(self, slots: Ints) -> None:
        """Start anew for these sessions."""
        self.table.reset(slots)
        self.there.forget(slots)
        self.wipe(slots)

    def wipe(self, slots: Ints, since_ns: int = 0) -> None:
        """Count these sessions' losses from now on: what they lost so far, or since `since_ns`, is explained.

        Of what they sent so far, losses are still to come where answers have come already, and answers that were held
        up: neither count.
        """
        fine = self.windows[0]
        self.table["counted_ns"][slots] = (fine.now_bin + 1) * fine.width_ns
        for window in self.windows:
            if since_ns:
                window.reset_since(slots, since_ns)
            else:
                window.reset(slots)

    def take_back(self, slots: Ints) -> None:
        """Uncount the last runs of these sessions: they are of an outage, though none is as long as `LONG_RUN`."""
        t = self.table
        fine = self.windows[0]
        known = (t["run"][slots] < LONG_RUN) & (t["bins"][slots, 0] * fine.width_ns >= t["counted_ns"][slots])
        mine = slots[known & (t["bins"][slots, 0] >= 0)]
        for i, window in enumerate(self.windows):
            window.take_back("events", mine, t["bins"][mine, i])
            window.take_back("probes", mine, t["bins"][mine, i])
        t["bins"][mine] = -1
        t["run"][mine] = LONG_RUN

    def take_rows(self, slots: Ints, seq: Ints, answered: Bools, at_ns: Ints, age_ns: Ints) -> None:
        """Take probe rows: session, sequence number, whether an answer came, bus time, age of the row.

        A lost probe's row comes after its time-out: the loss counts for the time `age_ns` before, when it was sent.
        Rows of one session are of one message.
        """
        counted = answered & (at_ns - age_ns >= self.table["counted_ns"][slots])
        for window in self.windows:
            if at_ns.size:
                window.advance(int(at_ns[-1]))
            window.add("probes", slots[counted])
        self._note_answered(slots[answered], seq[answered])
        if not answered.all():
            lost = ~answered
            self._runs(slots[lost], seq[lost], at_ns[lost], np.maximum(age_ns[lost], 0))

    def _note_answered(self, slots: Ints, seq: Ints) -> None:
        """Remember which of every session's last probes were answered."""
        if not slots.size:
            return
        t = self.table
        before = t["top"][slots]
        t["top"][slots[seq < before - _RESTART]] = -1
        np.maximum.at(t["top"], slots, seq)
        ahead = t["top"][slots] - before
        shifted = t["answered"][slots] << np.clip(ahead, 0, 63).astype(np.uint64)
        t["answered"][slots] = np.where((ahead >= 0) & (ahead < 64), shifted, 0)
        back = t["top"][slots] - seq
        near = (back >= 0) & (back < 64)
        np.bitwise_or.at(t["answered"], slots[near], np.uint64(1) << back[near].astype(np.uint64))

    def answered_back(self, slots: Ints, back: Ints) -> Bools:
        """(slots, back) whether the probe so many before a session's last answered one was answered, as far as known.

        `back` lies below `REMEMBERED`.
        """
        bits = self.table["answered"][slots][:, None] >> back.astype(np.uint64)
        result: Bools = (bits & np.uint64(1)).astype(np.bool_)
        return result

    def _none_answered(self, slots: Ints, after: Ints, before: Ints) -> Bools:
        """Where no probe between two sequence numbers is known to be answered; those of long ago count as answered."""
        t = self.table
        top = t["top"][slots]
        n = before - after - 1
        low = top - before + 1  # bit of the last probe between
        mask = (np.uint64(1) << np.clip(n, 0, 63).astype(np.uint64)) - np.uint64(1)
        shifted = np.where(
            low >= 0,
            mask << np.clip(low, 0, 63).astype(np.uint64),
            mask >> np.clip(-low, 0, 63).astype(np.uint64),
        )
        known = (after >= 0) & (n >= 0) & (n < 64) & (low + n <= 64)
        result: Bools = (n == 0) | (known & ((t["answered"][slots] & shifted) == 0))
        return result

    def _runs(self, slots: Ints, seq: Ints, at_ns: Ints, age_ns: Ints) -> None:
        """Fold lost probes into runs. Lost rows of a session come in order of their sequence numbers.

        Rows that were shed on their way neither end a run nor count in one: what ends it is an answer.
        """
        order = np.lexsort((seq, slots))
        slots, seq, at_ns = slots[order], seq[order], at_ns[order]
        sent_ns = at_ns - age_ns[order]
        t = self.table
        head = np.r_[True, slots[1:] != slots[:-1]]
        before = np.where(head, t["seq"][slots], np.r_[-2, seq[:-1]])
        follows = self._none_answered(slots, before, seq)
        begins = np.flatnonzero(~follows | head)  # a run, or the rest of one begun in an earlier batch
        length = np.diff(np.r_[begins, slots.size])
        owner, carried = slots[begins], follows[begins]
        before = np.where(carried, t["run"][owner], 0)
        after = before + length
        short = ~carried & (after < LONG_RUN) & (sent_ns[begins] >= t["counted_ns"][owner])
        outgrown = carried & (before < LONG_RUN) & (after >= LONG_RUN)
        for i, window in enumerate(self.windows):
            sent_bin = sent_ns[begins[short]] // window.width_ns
            window.add_at("events", owner[short], sent_bin)
            window.add_at("probes", owner[short], sent_bin)
            window.take_back("events", owner[outgrown], t["bins"][owner[outgrown], i])
            window.take_back("probes", owner[outgrown], t["bins"][owner[outgrown], i])
            t["bins"][owner[short], i] = sent_bin
        grown = (before < GAP_RUN) & (after >= GAP_RUN)
        t["grew_ns"][owner[grown]] = at_ns[begins[grown]]
        t["began_ns"][owner[~carried]] = at_ns[begins[~carried]]
        t["lost_ns"][slots] = at_ns
        last = np.r_[slots[1:] != slots[:-1], True]
        t["seq"][slots[last]] = seq[last]
        closing = np.r_[owner[1:] != owner[:-1], True]
        t["run"][owner[closing]] = after[closing]

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "table": self.table.snapshot(),
            "windows": [w.snapshot() for w in self.windows],
            "there": self.there.snapshot(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.table.restore(state["table"])
        for window, saved in zip(self.windows, state["windows"], strict=True):
            window.restore(saved)
        if "there" in state:
            self.there.restore(state["there"])
        else:  # of a release before: nothing is known of the sessions that it knew
            self.there.ensure(self.windows[0].rows)


@dataclass(frozen=True, slots=True)
class Gap:
    """One short outage of one subject, bus time, to about ± one flush and one probe interval."""

    subject: Subject
    down_ns: int
    up_ns: int
    found: Location
    """The paths that it hit, and what else it may have been."""
    paths: tuple[str, ...]
    """Names of some of them."""


class Gaps:
    """Groups of runs that ended, located once each (which were, stands with the runs)."""

    def __init__(self, runs: LossRuns, liveness: SessionLiveness, cabling: Cabling) -> None:
        self.runs, self.liveness, self.cabling = runs, liveness, cabling

    def closed(self, now: Instant) -> list[Gap]:
        """Gaps that have closed since they were last asked for."""
        now_ns, silent = now.now_ns, now.silence.sightings.silent
        answered_ns, interval_ns = self.liveness.table["ok_ns"], self.liveness.table["interval_ns"]
        t = self.runs.table
        fresh = (t["run"] >= GAP_RUN) & (t["grew_ns"] != t["located_ns"])
        if not fresh.any():
            return []
        t["located_ns"][now.left_out] = t["grew_ns"][now.left_out]  # an outage: `silence` has it; or an agent's own
        every_ns = _coarse(interval_ns)
        fresh &= (t["run"] >= LONG_RUN) | (t["lost_ns"] - t["began_ns"] + every_ns >= _GAP_NS)
        ended = fresh & ~silent & (now_ns - t["lost_ns"] >= np.clip(2 * every_ns, *_SETTLED_NS))
        if not ended.any():
            return []
        first_ns = int(t["grew_ns"][ended].min())
        group = ended & (t["grew_ns"] <= first_ns + _TOGETHER_NS)
        t["located_ns"][group] = t["grew_ns"][group]
        if group.sum() < _SEVERAL and not (t["run"][group] >= LONG_RUN).any():
            return []
        lately = np.abs(t["lost_ns"] - int(t["lost_ns"][group].max())) <= _TOGETHER_NS
        met = (t["run"] >= _SHARED_RUN) & lately & ~silent & ~now.left_out & ~group
        passing = ~fresh & ~met & ~silent & (answered_ns >= first_ns)
        bad, good = np.flatnonzero(group | met), np.flatnonzero(passing)
        then_ns = np.full(bad.size, first_ns - _BEFORE_NS)
        sick = Observations.of(bad, "both", 8.0, 8.0, then_ns)
        seen = Observations.join([sick, Observations.of(good, "both", 0.0, 8.0)])
        found = locate(self.cabling, seen, noise=1e-3, least_share=0.9)
        gaps = []
        for location in found:
            if location.subject.type == "path" or location.probability < 0.5:
                continue
            began_ns, lost_ns = t["began_ns"][location.slots], t["lost_ns"][location.slots]
            each_ns = _coarse(interval_ns[location.slots])
            length_ns = int(np.median(lost_ns - began_ns + each_ns))
            timeout_ns = np.minimum(NS_PER_S, 5 * each_ns)  # a lost probe is a row only after this
            up_ns = int((lost_ns - timeout_ns).min())
            self.runs.take_back(location.slots)
            some = location.slots[:MAX_SYMPTOMS].tolist()
            paths = tuple(str(self.cabling.sessions.path_id(slot, "fwd")) for slot in some)
            gaps.append(Gap(location.subject, up_ns - length_ns, up_ns, location, paths))
        return gaps


def _coarse(interval_ns: Ints) -> Ints:
    """Probe intervals to a tenth: what is told must not hang on how rows were gathered, as the last digits do."""
    grid: Ints = np.exp2(np.round(4 * np.log2(np.maximum(interval_ns, 1))) / 4).astype(np.int64)
    return grid
