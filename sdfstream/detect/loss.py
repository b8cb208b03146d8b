"""Gray loss: paths that lose some of their probes while others pass, pooled over the parts they share.

What is counted is the **loss event**: a run of consecutive lost probes, as long as it is short. An outage of half a
second is one long run on every path at once; gray loss is many short runs, scattered in time. So

- a run of four or more is an outage and is taken back from the counts;
- of the events pooled over a blamed part, the two fullest 200 ms bins are left out before the test: what remains
  must still be more than normal loss can do.

The test is one-sided binomial with an exact (Chernoff) tail bound: a healthy part that loses `loss_share` of its
probes independently is named with probability at most `loss_false_alarm` per evaluation of one window. Two windows
run side by side, 6.4 s for sharp loss and 64 s for faint loss. A row says only that a round trip failed, so the
direction comes from which other paths cross each direction; where those do not tell, both stay suspects.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.claims import MAX_SYMPTOMS, Claim, symptom
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.localise import Located, Observations, locate
from sdfstream.detect.sessions import Sessions
from sdfstream.numeric.binomial import log_tail_bound, wilson
from sdfstream.numeric.bins import RingBins
from sdfstream.numeric.table import Table
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import NS_PER_MS, NS_PER_S

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LONG_RUN = 4
"""Lost probes in a row that are an outage rather than gray loss."""
_BINS = 32
_FULLEST = 2
_LEAST_EVENTS = 4
_RECENT = 10


class Loss:
    """Loss events and probes of every session, in two windows."""

    def __init__(self, config: DetectConfig, sessions: Sessions, cabling: Cabling) -> None:
        self.config, self.sessions, self.cabling = config, sessions, cabling
        self.table = Table(
            {
                "seq": np.int64(-2),
                "run": np.int64(0),
                "bins": np.full(2, -1, np.int64),
                "outgrew_ns": np.int64(0),
                "lost_ns": np.int64(0),
            }
        )
        """Per session: last lost sequence number, length of its run, bins in which the run was counted, bus time at
        which it became an outage, bus time of the last lost row."""
        self.windows = (
            RingBins(_BINS, 200 * NS_PER_MS, ("events", "probes")),
            RingBins(_BINS, 2 * NS_PER_S, ("events", "probes")),
        )
        self.blamed: frozenset[str] = frozenset()

    def ensure(self) -> None:
        """Have a row for every session."""
        self.table.ensure(self.sessions.count)
        for window in self.windows:
            window.table.ensure(self.sessions.count)

    def forget(self, slots: Ints) -> None:
        """Start anew for these sessions."""
        for table in (self.table, *(w.table for w in self.windows)):
            table.reset(slots)

    def take_rows(self, slots: Ints, seq: Ints, answered: Bools, at_ns: int) -> None:
        """Take probe rows: session, sequence number, and whether an answer came."""
        for window in self.windows:
            window.advance(at_ns)
            window.add("probes", slots[answered])
        if not answered.all():
            self._runs(slots[~answered], seq[~answered], at_ns)

    def _runs(self, slots: Ints, seq: Ints, at_ns: int) -> None:
        """Fold lost probes into runs. Lost rows of a session come in order of their sequence numbers."""
        order = np.lexsort((seq, slots))
        slots, seq = slots[order], seq[order]
        t = self.table
        head = np.r_[True, slots[1:] != slots[:-1]]
        follows = np.where(head, t["seq"][slots] + 1 == seq, np.r_[False, seq[1:] == seq[:-1] + 1])
        begins = np.flatnonzero(~follows | head)  # a run, or the rest of one begun in an earlier batch
        length = np.diff(np.r_[begins, slots.size])
        owner, carried = slots[begins], follows[begins]
        before = np.where(carried, t["run"][owner], 0)
        after = before + length
        short = ~carried & (after < LONG_RUN)
        outgrown = carried & (before < LONG_RUN) & (after >= LONG_RUN)
        for i, window in enumerate(self.windows):
            window.add("events", owner[short])
            window.add("probes", owner[short])
            window.take_back("events", owner[outgrown], t["bins"][owner[outgrown], i])
            window.take_back("probes", owner[outgrown], t["bins"][owner[outgrown], i])
            t["bins"][owner[short], i] = window.now_bin
        t["outgrew_ns"][owner[(before < LONG_RUN) & (after >= LONG_RUN)]] = at_ns
        t["lost_ns"][slots] = at_ns
        last = np.r_[slots[1:] != slots[:-1], True]
        t["seq"][slots[last]] = seq[last]
        closing = np.r_[owner[1:] != owner[:-1], True]
        t["run"][owner[closing]] = after[closing]

    def claims(self, left_out: Bools, now_ns: int) -> list[Claim]:
        """Parts that lose probes now."""
        for window in self.windows:
            window.advance(now_ns)
        claims: dict[Subject, Claim] = {}
        for window in self.windows:
            events = np.where(left_out, 0, window.totals("events"))
            if int(events.sum()) < _LEAST_EVENTS:
                continue
            probes = window.totals("probes")
            used = np.flatnonzero((probes > 0) & ~left_out)
            if not self._worth_a_look(window, used, events[used], probes[used]):
                continue
            seen = Observations.of(used, "both", events[used].astype(float), probes[used].astype(float))
            for place in locate(self.cabling, seen, noise=self.config.loss_share, incumbents=self.blamed, most=8):
                claim = self._claim(place, window, used)
                if claim is not None:
                    claims.setdefault(claim.subject, claim)
        self.blamed = frozenset(subject.id for subject in claims)
        return list(claims.values())

    def _worth_a_look(self, window: RingBins, used: Ints, events: Ints, probes: Ints) -> bool:
        """Quick look: does any path, or the whole, lose more than is normal? Spares the search in a quiet fabric."""
        limit = np.log(self.config.loss_false_alarm)
        if (log_tail_bound(events, probes, self.config.loss_share) <= limit).any():
            return True
        self.cabling.refresh(None)
        part = self.cabling.part[used].reshape(used.size, -1)
        there = part >= 0
        number = part[there]
        size = len(self.cabling.parts)
        k = np.bincount(number, np.broadcast_to(events[:, None], part.shape)[there], size)
        n = np.bincount(number, np.broadcast_to(probes[:, None], part.shape)[there], size)
        return bool((log_tail_bound(k, np.maximum(n, k), self.config.loss_share) <= limit).any())

    def _claim(self, place: Located, window: RingBins, used: Ints) -> Claim | None:
        slots = self._crossing(place, used)
        per_bin = window.table["events"][slots].sum(axis=0)
        events, probes = int(per_bin.sum()), int(window.totals("probes")[slots].sum())
        fullest = int(np.sort(per_bin)[-_FULLEST:].sum())
        rest = events - fullest
        limit = np.log(self.config.loss_false_alarm)
        if rest < _LEAST_EVENTS or log_tail_bound(rest, probes, self.config.loss_share) > limit:
            return None
        ordered = np.roll(per_bin, -window.column - 1)
        first = _onset(ordered)
        since_ns = (window.now_bin - _BINS + 1 + first) * window.width_ns
        lasting = np.roll(window.table["probes"][slots].sum(axis=0), -window.column - 1)[first:]
        events, probes = int(ordered[first:].sum()), int(lasting.sum())
        if self._healed(slots, events / max(1, probes)):
            return None
        share, low, high = _shares(events, probes)
        where = " ".join(place.directions)
        evidence = (
            Evidence("loss-share", share, "1", where, self.config.loss_share),
            Evidence("loss-share-low", low, "1", where),
            Evidence("loss-share-high", high, "1", where),
            Evidence("loss-events", float(events), "1", where),
            Evidence("probes", float(probes), "1", where),
            Evidence("window", _BINS * window.width_ns / NS_PER_S, "s", where),
        )
        lossy = slots[window.totals("events")[slots] > 0][:MAX_SYMPTOMS]
        return Claim(
            "loss",
            place.subject,
            since_ns,
            "gray-failure",
            place.probability,
            evidence,
            suspects=tuple(place.suspects),
            symptoms=tuple(
                symptom("loss", Subject("path", str(self.sessions.path_id(int(s), "fwd"))), since_ns) for s in lossy
            ),
            confirm_ns=300 * NS_PER_MS,
            hold_ns=2 * NS_PER_S,
            detail=f"loses probes {where}" + ("" if place.direction_known else " (direction not told apart)"),
        )

    def _crossing(self, place: Located, used: Ints) -> Ints:
        """Sessions that surely cross the blamed subject in a blamed direction."""
        if place.subject.type == "path":
            return np.unique(place.slots)
        wanted = [p for p in range(len(self.cabling.parts)) if self.cabling.direction(p) in place.directions]
        cabling = self.cabling
        sure = np.isin(cabling.part[used], wanted) & (cabling.weight[used] > 0.99)
        crossing = used[sure.any(axis=(1, 2))]
        return crossing if crossing.size else np.unique(place.slots)

    def _healed(self, slots: Ints, share: float) -> bool:
        """The last two seconds are clearly better than the window: the loss has ended."""
        fast = self.windows[0]
        recent = (fast.column - np.arange(_RECENT)) % _BINS
        events, probes = (int(fast.table[f][slots][:, recent].sum()) for f in ("events", "probes"))
        _, high = wilson(events, probes, 3.0)
        return float(high) < 0.5 * share

    def freeze(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "table": self.table.freeze(),
            "windows": [w.freeze() for w in self.windows],
            "blamed": sorted(self.blamed),
        }

    def thaw(self, state: dict[str, Any]) -> None:
        """Take up a state made by `freeze`."""
        self.table.thaw(state["table"])
        for window, saved in zip(self.windows, state["windows"], strict=True):
            window.thaw(saved)
        self.blamed = frozenset(state["blamed"])


def _onset(per_bin: Ints) -> int:
    """First bin of the likeliest change point of a Poisson rate."""
    after = np.cumsum(per_bin[::-1])[::-1].astype(np.float64)
    left = np.arange(per_bin.size, 0, -1, dtype=np.float64)
    before, passed = after[0] - after, per_bin.size - left
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(after > 0, after * np.log(after / left), 0.0)
        gain += np.where(before > 0, before * np.log(before / np.maximum(passed, 1.0)), 0.0)
    return int(np.argmax(gain))


def _shares(events: int, probes: int) -> tuple[float, float, float]:
    """Loss share with 99.8 % bounds, from events per counted probe: with loss p a probe begins a run with p·(1 − p)."""
    low, high = wilson(events, max(1, probes), 3.09)
    ratios = (events / max(1, probes), float(low), float(high))
    share, low_share, high_share = (round(min(1.0, x / (1 - x)), 4) if x < 0.5 else 1.0 for x in ratios)
    return share, low_share, high_share
