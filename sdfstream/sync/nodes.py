"""The clocks: a bank of two-state filters per clock, mixed by how well each predicts.

Internal time. Every clock has an integer `base_ns` (its first stamp minus bus time), so that reading − base lies near
bus time for every clock, however wrong. On that scale x is the clock's offset from the *ensemble*, a free common
gauge; what is published is the difference to the reference clock's x. A step of the reference, or a change of it,
disturbs no other clock's state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sdfstream.numeric import kalman
from sdfstream.numeric.graph import components
from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.sync import mesh
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.table import Table

NEVER: float = -1e18
_FORGET_S = 90.0
"""So long a model's past predictions speak for it."""
_HORIZON = 2.0
"""Models are judged on predictions over so many window lengths: over less, what tells them apart drowns in noise."""
_SMOOTHED = 0.6
"""Power of the calibration that smoothed rows take: they suffer more from what neighbouring windows share."""
_BELIEF_S = 180.0
"""So long a prediction that strayed, or did not, counts for the width of the bound."""
_PRIOR_TELLINGS = 4.0
_WILDEST = 25.0
_LEAST_CALIBRATION = 0.75
"""A few lucky predictions must not narrow the bound further than this share of what is expected."""
_LEAST_SCORE = -20.0
"""No model falls so far behind that it could not come back within some judgements."""
_STEPS_S = 10.0
_FAULTY_STEPS = 2.5
"""So many steps within about ten seconds are no step but a clock that cannot be agreed with."""
STEP_SKEW = 0.05
"""A clock that stepped by so many ns may have changed its rate by this share of it in ns per second."""
_SETTLED = 0.05
"""A clock that stepped is unsynced until its bound is this share of the step."""
_ACCUSED = 20.0
"""Ticks."""
_SAMPLES_S = 8.0
"""`n` of a row counts the samples of about this time."""
_UNKNOWN_VARIANCE = 1e18
_STATE = ("x", "g", "xx", "xg", "gg")


def overlap(news: Float64s) -> Float64s:
    """Share of a filter's variance that is left when the overlap of windows is allowed for; `news`: share of news.

    Each look at a window counts as its share of news, as if the rest were repeated. That is right for a mean, but a
    floor's error shrinks with n, not with its root, and the filter's own figure is too careful. Found by simulation.
    """
    result: Float64s = np.maximum(news, 0.05) ** 0.75
    return result


def fresh_bank(lanes: int, skew_limit_ppb: float) -> kalman.State:
    """One clock of which nothing is known, (lanes, 1)."""
    one = np.ones((lanes, 1))
    return kalman.State(0.0 * one, 0.0 * one, _UNKNOWN_VARIANCE * one, 0.0 * one, skew_limit_ppb**2 * one)


class Measured(NamedTuple):
    """What a tick measured about every clock."""

    value: Float64s
    """Correction of the clock's predicted offset `age_s` ago, ns."""
    variance: Float64s
    """Of the value as news, ns²; infinite: nothing."""
    news: Float64s
    """Share of it that is news: windows overlap, so the value taken by itself has the smaller variance × news."""
    each: Float64s
    """Share of news in a session's look: most sessions behind a value were not looked at this tick."""
    age_s: Float64s
    span_s: Float64s
    """How far back the packets behind it reach, s."""


class Nodes:
    """All clocks' states at one instant of internal time, `at` (ns since the stage's origin)."""

    def __init__(self, config: SyncConfig) -> None:
        self._config = config
        lanes = len(config.wander_ppb)
        self.at = 0.0
        self.table = Table(
            {
                "base_ns": (np.int64, 0),
                "based": (np.bool_, False),
                "x": (np.float64, 0.0),
                "g": (np.float64, 0.0),
                "xx": (np.float64, _UNKNOWN_VARIANCE),
                "xg": (np.float64, 0.0),
                "gg": (np.float64, config.skew_limit_ppb**2),
                "score": (np.float64, 0.0),
                **{f"then_{name}": (np.float64, 0.0) for name in _STATE},
                "then_at": (np.float64, NEVER),
                "offset": (np.float64, 0.0),
                "skew": (np.float64, 0.0),
                "variance": (np.float64, _UNKNOWN_VARIANCE),
                "skew_variance": (np.float64, config.skew_limit_ppb**2),
                "misfit": (np.float64, 0.0),
                "news": (np.float64, 1.0),
                "strays": (np.float64, 0.0),
                "tellings": (np.float64, 0.0),
                "samples": (np.float64, 0.0),
                "sampled_at": (np.float64, NEVER),
                "tied_at": (np.float64, NEVER),
                "accused": (np.float64, 0.0),
                "settling": (np.float64, 0.0),
                "steps": (np.float64, 0.0),
            },
            lanes,
            (*_STATE, "score", *(f"then_{name}" for name in _STATE)),
        )
        self._wander = np.array(config.wander_ppb)[:, None]
        self._phase = np.array(config.phase_wander_ns)[:, None]
        self._liking = np.log(np.array(config.wander_prior)[:, None])
        self.label: Int64s = np.empty(0, dtype=np.int64)
        """Component of each clock: the smallest clock number in it."""
        self._independent: Float64s | None = None

    @property
    def n(self) -> int:
        """Clocks known."""
        return self.table.n

    def grow(self, clocks: int) -> None:
        """Room for `clocks` clocks in all; new ones are unsynced, alone, and without a base."""
        if clocks > self.n:
            self.label = np.append(self.label, np.arange(self.n, clocks))
            self.table.grow(clocks - self.n)
            self._independent = None

    @property
    def unbased(self) -> bool:
        """Whether a clock waits for its first stamp."""
        return not bool(self.table["based"].all())

    def without_base(self) -> list[int]:
        """Clocks of which no stamp was seen."""
        result: list[int] = np.flatnonzero(~self.table["based"]).tolist()
        return result

    def set_base(self, clock: int, base_ns: int) -> None:
        """The clock's first stamp was seen."""
        self.table["base_ns"][clock] = base_ns
        self.table["based"][clock] = True

    def state(self) -> kalman.State:
        """The whole bank, (lanes, clocks)."""
        t = self.table
        return kalman.State(t["x"], t["g"], t["xx"], t["xg"], t["gg"])

    def _store(self, s: kalman.State) -> None:
        for name, value in zip(("x", "g", "xx", "xg", "gg"), s, strict=True):
            self.table[name] = value

    def advance(self, at: float) -> None:
        """Predict every clock forward to `at`."""
        dt = (at - self.at) / NS_PER_S
        self.at = at
        if dt > 0.0 and self.n:
            self._store(kalman.predict(self.state(), dt, self._wander, self._phase))
            self.table["samples"] = self.table["samples"] * np.exp(-dt / _SAMPLES_S)
            self.table["steps"] = self.table["steps"] * np.exp(-dt / _STEPS_S)
            self._mix()

    def at_instant(self, at: float) -> tuple[float, Float64s, Float64s, Float64s]:
        """(`at`, offset, skew, variance) of every clock predicted to `at` >= now; the state stays where it is."""
        t = self.table
        dt = (at - self.at) / NS_PER_S
        ahead = kalman.predict(self.state(), dt, self._wander, self._phase)
        weight = self._weights()
        offset = t["offset"] + t["skew"] * dt
        variance = (weight * (ahead.xx + (ahead.x - offset) ** 2)).sum(axis=0)
        # what the sessions disagree about bends the slope as well: a clock not heard drifts off by it every second
        silent_s = np.clip((at - t["sampled_at"]) / NS_PER_S, 0.0, 1e6)
        variance = variance + 4.0 * t["misfit"] * silent_s**2
        return at, offset, t["skew"], variance

    def update(self, m: Measured) -> None:
        """Take in this tick's measurements."""
        s, t = self.state(), self.table
        z = t["offset"] + m.value - t["skew"] * m.age_s
        self._judge(m, z)
        self._store(kalman.update_past(s, z, m.variance, m.age_s))
        self._mix()

    def _judge(self, m: Measured, z: Float64s) -> None:
        """How well each model predicted from before the first packet of what is now measured.

        Consecutive measurements share packets, so a prediction from the last tick would be praised for having seen the
        answer. Each clock keeps its bank as it was; when all that is measured came later, the models are judged by it
        and the bank is kept anew.
        """
        t = self.table
        heard = np.isfinite(m.variance)
        taken = np.where(heard, m.variance, 0.0) * m.news
        then_s = (self.at - t["then_at"]) / NS_PER_S
        due = heard & (then_s > _HORIZON * m.span_s)
        if not due.any():
            return
        told = due & (t["then_at"] > NEVER)
        dt = np.where(told, np.minimum(then_s, 1e4), 0.0)
        then = kalman.State(*(t[f"then_{name}"] for name in _STATE))
        own = np.where(told, taken, 1.0)
        off, doubt = self._foretold(then, dt, m.age_s, z)
        weight = self._weights()
        ratio = (weight * off**2).sum(axis=0) / ((weight * doubt).sum(axis=0) + own)
        fade = np.where(told, np.exp(-dt / _BELIEF_S), 1.0)
        t["strays"] = t["strays"] * fade + np.where(told, np.minimum(ratio, _WILDEST), 0.0)
        t["tellings"] = t["tellings"] * fade + told
        sure = overlap(t["news"])
        sharp = kalman.State(then.x, then.g, then.xx * sure, then.xg * sure, then.gg * sure)
        spread = self._foretold(sharp, dt, m.age_s, z)[1] + own
        surprise = np.minimum(off**2 / spread, 25.0) + np.log(spread)
        score = t["score"] * np.where(told, np.exp(-dt / _FORGET_S), 1.0) - np.where(told, 0.5 * surprise, 0.0)
        t["score"] = np.maximum(score - score.max(axis=0), _LEAST_SCORE)
        for name, column in zip(_STATE, self.state(), strict=True):
            t[f"then_{name}"] = np.where(due, column, t[f"then_{name}"])
        t["then_at"] = np.where(due, self.at, t["then_at"])

    def _foretold(self, then: kalman.State, dt: Float64s, age_s: Float64s, z: Float64s) -> tuple[Float64s, Float64s]:
        """By how much each model's prediction over `dt` of the offset `age_s` ago missed z, and its variance."""
        now = kalman.predict(then, dt, self._wander, self._phase)
        spread = now.xx - 2.0 * now.xg * age_s + now.gg * age_s**2
        return z - now.x + now.g * age_s, np.maximum(spread, 1e-6)

    def _mix(self) -> None:
        """Mixture moments of the bank."""
        t = self.table
        self._independent = None
        weight = self._weights()
        t["offset"] = (weight * t["x"]).sum(axis=0)
        t["skew"] = (weight * t["g"]).sum(axis=0)
        t["variance"] = (weight * (t["xx"] + (t["x"] - t["offset"]) ** 2)).sum(axis=0)
        t["skew_variance"] = (weight * (t["gg"] + (t["g"] - t["skew"]) ** 2)).sum(axis=0)

    def wander(self) -> Float64s:
        """Frequency random walk each clock seems to have, ppb per √s."""
        result: Float64s = np.sqrt((self._weights() * self._wander**2).sum(axis=0))
        return result

    def wanders(self) -> tuple[Float64s, Float64s]:
        """Random walks each clock seems to have: of the phase, ns² per s, and of the frequency, ns² per s³.

        The weighted geometric mean: an unlikely model with a walk a hundred times as large must not set the scale.
        """
        weight = self._weights()
        walks = (np.maximum(self._phase**2, 1e-4), self._wander**2)
        phase, frequency = (np.exp((weight * np.log(walk)).sum(axis=0)) for walk in walks)
        return phase, frequency

    def judged(self, misfit: Float64s) -> None:
        """Variance of each clock's offset that time does not average away, ns²; NaN: not heard now."""
        self.table["misfit"] = np.where(np.isnan(misfit), self.table["misfit"], misfit)
        self._independent = None

    def _weights(self) -> Float64s:
        """How much each model is trusted, (lanes, clocks), summing to 1 per clock."""
        weight = np.exp(self.table["score"] + self._liking)
        result: Float64s = weight / weight.sum(axis=0)
        return result

    def independent(self) -> Float64s:
        """Variances that add up to that of a difference of two clocks of one component."""
        if self._independent is None:
            variance = self.table["variance"] * self.calibration()
            self._independent = mesh.independent(variance, self.label) + self.table["misfit"]
        return self._independent

    def independent_skew(self) -> Float64s:
        """The same of the skews, ppb²."""
        return mesh.independent(self.table["skew_variance"], self.label)

    def variance_to(self, reference: int, variance: Float64s, smoothed: bool = False) -> Float64s:
        """Variance of each clock's difference to the reference; infinite where nothing ties the two together.

        `variance` is about the components' means, for the first clocks of the table.
        """
        n = variance.size
        factor = self.calibration()[:n] ** (_SMOOTHED if smoothed else 1.0)
        total = mesh.independent(variance * factor, self.label[:n]) + self.table["misfit"][:n]
        total = total + total[reference]
        foreign = self.label[:n] != self.label[reference]
        total = total + np.where(foreign, self._grown()[:n], 0.0)
        return np.where(total >= 0.5 * _UNKNOWN_VARIANCE, np.inf, total)

    def status(self, at: float, err_ns: Float64s) -> Int64s:
        """0 synced, 1 holdover, 2 unsynced, 3 faulty, for the first clocks of the table."""
        c, t, n = self._config, self.table, err_ns.size
        fresh = t["sampled_at"][:n] >= at - c.holdover_after_ns
        settling = err_ns > np.where(t["settling"][:n] > 0.0, t["settling"][:n], c.unsynced_err_ns)
        if n == t.n:
            t["settling"] = np.where(settling, t["settling"], 0.0)
        status = np.where(settling, 2, np.where(fresh, 0, 1))
        return np.where((t["steps"][:n] >= _FAULTY_STEPS) | (t["accused"][:n] >= _ACCUSED), 3, status)

    def accuse(self, who: Bools) -> None:
        """These clocks' neighbours disagree about them now: two seconds of it make a clock faulty, two clear it."""
        accused = self.table["accused"] + np.where(who, 1.0, -1.0)
        self.table["accused"] = np.clip(accused, 0.0, 2.0 * _ACCUSED)

    def _grown(self) -> Float64s:
        """Variance that grew, unseen, between each island and the reference since they were last tied, ns².

        A clock that heard nobody meanwhile carries that doubt already.
        """
        t = self.table
        seconds = np.clip((self.at - t["tied_at"]) / NS_PER_S, 0.0, 1e6)
        grown = 2.0 * (t["skew_variance"] * seconds**2 + self.wander() ** 2 * seconds**3 / 3.0)
        grown = np.where(t["tied_at"] == NEVER, _UNKNOWN_VARIANCE, np.minimum(grown, _UNKNOWN_VARIANCE))
        return np.where(t["sampled_at"] >= t["tied_at"], grown, 0.0)

    def tie(self, a: Int64s, b: Int64s, reference: int) -> None:
        """Components by the pairs heard lately; an island that joins another time line doubts its own."""
        label = components(self.n, a, b)
        if not np.array_equal(label, self.label):
            strangers = mesh.strangers(self.label, label, reference)
            self.table["xx"] = self.table["xx"] + np.where(strangers, self._grown(), 0.0)
            self.label = label
            self._mix()

    def mark_tied(self, reference: int) -> None:
        """These clocks stand on the reference's time line now."""
        self.table["tied_at"][self.label == self.label[reference]] = self.at

    def best(self) -> Int64s:
        """The model each clock trusts most."""
        result: Int64s = self._weights().argmax(axis=0)
        return result

    def widen(self, size: Float64s) -> None:
        """A step of about `size` ns was seen: doubt the offset by that much, and the skew by a share of it."""
        t = self.table
        skew = np.minimum(STEP_SKEW * size, self._config.skew_limit_ppb)
        t["then_at"] = np.where(size > 0.0, NEVER, t["then_at"])
        t["xx"] = t["xx"] + size**2
        t["gg"] = t["gg"] + skew**2
        t["steps"] = t["steps"] + (size > 0.0)
        t["settling"] = np.maximum(t["settling"], _SETTLED * size)
        self._mix()

    def snapshot(self) -> kalman.State:
        """A copy of the bank as it stands."""
        return kalman.State(*(column.copy() for column in self.state()))

    def calibration(self) -> Float64s:
        """What the filters' variance has to be multiplied by to be the errors': from how far predictions strayed.

        Before anything is known, what is to be expected of overlapping windows (`overlap`); that weighs as much as
        `_PRIOR_TELLINGS` predictions.
        """
        t = self.table
        result: Float64s = (_PRIOR_TELLINGS * overlap(t["news"]) + t["strays"]) / (_PRIOR_TELLINGS + t["tellings"])
        return np.maximum(result, _LEAST_CALIBRATION * overlap(t["news"]))

    def heard(self, count: Int64s, news: Float64s) -> None:
        """So many samples (blocks' news) of each clock came in this tick, and the share of news in them."""
        t = self.table
        t["news"] = np.where(count > 0, t["news"] + 0.1 * (news - t["news"]), t["news"])
        self.table["samples"] = self.table["samples"] + count
        self.table["sampled_at"] = np.where(count > 0, self.at, self.table["sampled_at"])

    def keep(self, mask: Bools) -> None:
        """Forget the clocks whose mask is False."""
        self.table.keep(mask)
        # a label is the smallest number of its component; name it by the smallest kept one
        old = self.label[mask]
        first = np.unique(old, return_index=True)[1]
        self.label = first[np.unique(old, return_inverse=True)[1]]
        self._independent = None

    def save(self) -> dict[str, Any]:
        """The whole state."""
        return {"at": self.at, "label": self.label, "table": self.table.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `save` gave."""
        self.at = state["at"]
        self.label = state["label"]
        self.table.load(state["table"])
        self._independent = None
