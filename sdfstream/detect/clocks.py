"""Clocks by which no delay should be trusted: faulty ones, those whose rate jumped, and those without an error bound.

A clock that loses its bound because its host stopped or its NICs are down is a symptom of that and no detection of its
own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import pyarrow as pa

from sdfstream.detect.compare.clock_rates import ClockRates
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.detections import MAX_SYMPTOMS, Detection, symptom
from sdfstream.detect.instant import Instant
from sdfstream.records import columns
from sdfstream.records.fabric import host_of
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.hostclock import UTC
from sdfstream.records.units import NS_PER_S

_MOST = 65_536
_FRESH_NS = 3 * NS_PER_S
_FAULTY_NS = 500_000_000
_UNSYNCED_NS = 5 * NS_PER_S
_LEARNT_ANEW_NS = 10 * NS_PER_S
"""After its rate has come back a clock may need so long until its bounds have."""


@dataclass(slots=True)
class _ClockState:
    status: str
    since_ns: int
    """Bus time since when it has this status."""
    seen_ns: int
    first_ns: int
    err_ns: float
    offset_ns: float
    n: int
    was_synced: bool = False


_FIELDS: Final = tuple(f.name for f in fields(_ClockState))
"""Plain values, which `asdict` would copy deep, at ten times the cost."""


class ClockDetector:
    """Last causal state of every clock."""

    def __init__(self, config: DetectConfig) -> None:
        self.config = config
        self.rates = ClockRates()
        self._clocks: dict[str, _ClockState] = {}
        self._jumped: dict[str, tuple[int, float, int]] = {}
        """Clocks whose rate jumped: since when, by how much (ppb), until when it was seen; bus time."""

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take a ``sdf.state.clock.v1`` message; smoothed rows speak of the past and are passed over."""
        self.rates.take(batch, at_ns)
        clock, clocks = columns.names(batch, "clock")
        status, statuses = columns.names(batch, "status")
        kind, kinds = columns.names(batch, "kind")
        figures = zip(*(columns.values(batch, c).tolist() for c in ("err_ns", "offset_ns", "n")), strict=True)
        for c, s, k, (err, offset, n) in zip(clock.tolist(), status.tolist(), kind.tolist(), figures, strict=True):
            if c < 0 or s < 0 or (k >= 0 and kinds[k] == "smoothed"):
                continue
            name, state = clocks[c], statuses[s]
            if name == UTC:  # no clock of the cluster's; without it every delay is as true as before
                continue
            old = self._clocks.get(name)
            if old is None:
                if len(self._clocks) >= _MOST:
                    continue
                old = self._clocks[name] = _ClockState(state, at_ns, at_ns, at_ns, err, offset, n)
            if old.status != state:
                old.status, old.since_ns = state, at_ns
            old.seen_ns, old.err_ns, old.offset_ns, old.n = at_ns, err, offset, n
            old.was_synced |= state == "synced"

    def offset_ns(self, clock: str) -> float | None:
        """That clock − reference as last told; None: it is not synced (holdover included), or never was."""
        known = self._clocks.get(clock)
        return known.offset_ns if known is not None and known.status in ("synced", "holdover") else None

    def detections(self, now: Instant) -> list[Detection]:
        """Clocks that are faulty or unsynced for no reason that a silence detection gives already."""
        now_ns, excused = now.now_ns, now.silence.hosts
        self.rates.tick(now_ns)
        self._jumped |= {name: (*found, now_ns) for name, found in self.rates.jumped(now_ns).items()}
        sick: dict[str, tuple[str, _ClockState]] = {}
        watched = 0
        for name, clock in self._clocks.items():
            if now_ns - clock.seen_ns > _FRESH_NS or host_of(name) in excused:
                continue
            watched += 1
            reported = now.findings.is_open("clock-unsynced", Subject("clock", name))
            kind = (
                "clock-faulty"
                if self._has_jumped(name, clock, now_ns)
                else self._kind(clock, now_ns, reported=reported)
            )
            if kind:
                sick[name] = (kind, clock)
        unsynced = [name for name, (kind, _) in sick.items() if kind == "clock-unsynced"]
        if watched > 2 and len(unsynced) == watched:
            return [self._all(unsynced)]
        return [self._detection(name, kind, clock) for name, (kind, clock) in sick.items()]

    def _has_jumped(self, name: str, clock: _ClockState, now_ns: int) -> bool:
        """Whether its rate is another, or was and its bounds have not come back since."""
        if name not in self._jumped:
            return False
        if now_ns - self._jumped[name][2] <= _LEARNT_ANEW_NS or clock.status in ("unsynced", "faulty"):
            return True
        del self._jumped[name]
        return False

    def _kind(self, clock: _ClockState, now_ns: int, *, reported: bool) -> str:
        """What it is; `reported`: that it is unsynced is a finding, which a moment of another status does not end."""
        age_ns = now_ns - clock.since_ns
        if clock.status == "faulty" and age_ns >= _FAULTY_NS:
            return "clock-faulty"
        grace_ns = 0 if reported else _UNSYNCED_NS if clock.was_synced else int(self.config.clock_grace_s * NS_PER_S)
        return "clock-unsynced" if clock.status == "unsynced" and age_ns >= grace_ns else ""

    def _detection(self, name: str, kind: str, clock: _ClockState) -> Detection:
        evidence: tuple[Evidence, ...] = (
            Evidence("error-bar", round(clock.err_ns / 1e3, 1), "µs", name),
            Evidence("offset", round(clock.offset_ns / 1e3, 1), "µs", name),
            Evidence("samples", float(clock.n), "1", name),
        )
        since_ns, detail = clock.since_ns, clock.status
        if kind == "clock-faulty" and name in self._jumped:
            since_ns, rate_ppb, _ = self._jumped[name]
            detail = f"its rate jumped by {rate_ppb / 1e3:.0f} ppm"
            evidence = (Evidence("rate-jump", round(rate_ppb / 1e3, 1), "ppm", name, 0.0), *evidence)
        return Detection(
            kind, Subject("clock", name), since_ns, "clock", 0.9, evidence, suspects=((name, 1.0),), detail=detail
        )

    def _all(self, names: list[str]) -> Detection:
        """No clock has a bound: the time line as a whole is missing, one statement is enough."""
        since_ns = min(self._clocks[n].since_ns for n in names)
        evidence = (Evidence("unsynced-clocks", float(len(names)), "clocks", "all clocks", 0.0),)
        symptoms = tuple(symptom("clock-unsynced", Subject("clock", n), since_ns) for n in names[:MAX_SYMPTOMS])
        return Detection(
            "clock-unsynced", Subject("clock", "all clocks"), since_ns, "clock", 0.9, evidence, symptoms=symptoms
        )

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        states = [[name, {field: getattr(c, field) for field in _FIELDS}] for name, c in self._clocks.items()]
        jumped = [[name, *found] for name, found in self._jumped.items()]
        return {"clocks": states, "rates": self.rates.snapshot(), "jumped": jumped}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._clocks = {name: _ClockState(**saved) for name, saved in state["clocks"]}
        if "rates" in state:  # a release before had none
            self.rates.restore(state["rates"])
        self._jumped = {str(name): (int(a), float(b), int(c)) for name, a, b, c in state.get("jumped", ())}
