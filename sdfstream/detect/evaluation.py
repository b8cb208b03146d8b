"""What is claimed of all that was heard, and in which order: the engines' claims into one ledger."""

from __future__ import annotations

import numpy as np

from sdfstream.detect.detections import Detection
from sdfstream.detect.engines import Engines
from sdfstream.detect.jobs import APART
from sdfstream.detect.silence import Silence
from sdfstream.records.fabric import host_of
from sdfstream.records.message import Output
from sdfstream.records.units import NS_PER_MS, NS_PER_S

_ASSESS_EVERY_NS = 20 * NS_PER_MS
"""Between two boundaries, news of silence is judged at most this often: a big fault brings a message per host."""
_NEWS_NS = 400 * NS_PER_MS
"""Silence younger than this (only fast probes tell of it) is judged at every message, not at boundaries alone."""
_LASTING_NS = 5 * NS_PER_S
"""A flapping link that stays down for this long is down."""
_FORGET_EVERY = 600
"""Ticks between two searches for sessions to forget."""


class Evaluation:
    """`Engines` asked at every boundary, and between two of them about silence alone."""

    def __init__(self, engines: Engines) -> None:
        self._on = engines
        self.assessed_ns = 0
        """When silence was last judged, bus time."""
        self.pending = False
        """Something fell silent lately: it is judged more often than at the boundaries."""

    def news(self, now_ns: int) -> list[Output]:
        """What is to be said of silence now; nothing, if that was asked a moment ago."""
        return self._silence(now_ns)[1] if now_ns - self.assessed_ns >= _ASSESS_EVERY_NS else []

    def boundary(self, tick: int, now_ns: int) -> list[Output]:
        """Everything that is judged at the 100 ms boundary number `tick`."""
        self._on.presence.mark(tick)
        self._on.cabling.refresh()
        verdict, out = self._silence(now_ns)
        self._on.inband.tick()
        self._on.jobs.refresh()
        troubled = self._on.troubled(now_ns)
        self._on.runs.wipe(np.flatnonzero(troubled))
        left_out = verdict.sightings.silent | troubled
        self._on.delays.tick()
        reported = self._on.ledger.reported("congestion")
        slow = self._on.congestion.detections(left_out, self._on.marks.share(now_ns), reported, now_ns)
        out += self._tell("congestion", slow, now_ns)
        congested = self._on.ledger.open_ids(("congestion",)) | {s for c in slow for s, _ in c.suspects}
        marks = self._on.marks.detections(left_out, self._on.delays.slow(now_ns), congested, now_ns)
        out += self._tell("marks", marks, now_ns)
        if tick % 2 == 0:
            everyone = np.arange(self._on.sessions.count)
            aftermath = np.flatnonzero(self._on.recent.touched(everyone, now_ns, surely=True))
            self._on.runs.wipe(aftermath)
            out += self._tell("loss", self._on.loss.detections(left_out, now_ns), now_ns)
        out += self._tell("flap", self._flapping(verdict, now_ns), now_ns)
        if tick % 5 == 0:
            out += self._tell("ports", self._on.ports.detections(now_ns), now_ns)
            out += self._tell("cabling", self._on.miscabled.detections(self._on.cabling.topology), now_ns)
            out += self._tell("clocks", self._on.clocks.detections(self._excused(verdict), now_ns), now_ns)
        out += self._in_band(now_ns)
        if tick % _FORGET_EVERY == 0:
            self._on.forget(now_ns)
        return out

    def _tell(self, engine: str, detections: list[Detection], now_ns: int) -> list[Output]:
        """What an engine claims now, with the jobs that it hurts and the queue pairs that it slows, into the ledger."""
        detections = self._on.jobs.annotate(detections)
        slow = self._on.inband.slow(now_ns) if detections else []
        if slow:
            detections = [self._on.slow_pairs.annotated(detection, slow) for detection in detections]
        return self._on.ledger.take(engine, detections, now_ns)

    def _in_band(self, now_ns: int) -> list[Output]:
        """Slow queue pairs and jobs that nothing else explains."""
        slow = self._on.inband.slow(now_ns)
        explained: set[int] = set()
        roots = [c for c in self._on.ledger.standing("inband") if c.kind not in APART] if slow else []
        for detection in roots:
            explained.update(self._on.slow_pairs.explained_by(detection, slow))
        detections = self._on.slow_pairs.detections(explained, self._on.ledger.reported("qp-slow"), now_ns)
        return self._on.ledger.take("inband", detections, now_ns)

    def _silence(self, now_ns: int) -> tuple[Silence, list[Output]]:
        self.assessed_ns = now_ns
        verdict = self._on.silence.assess(now_ns)
        seen = verdict.sightings
        self.pending = bool((seen.silent & (now_ns - seen.since_ns < _NEWS_NS)).any())
        out = self._tell("silence", self._without_flaps(verdict.detections, now_ns), now_ns)
        return verdict, out + self._on.health.update(verdict, now_ns)

    def _without_flaps(self, detections: list[Detection], now_ns: int) -> list[Detection]:
        """Leave out the short outages of what is told as flapping already."""

        def new(detection: Detection) -> bool:
            flapping = self._on.ledger.is_open("link-flap", detection.subject)
            lasting = now_ns - detection.since_ns >= _LASTING_NS or self._on.ledger.is_open(
                detection.kind, detection.subject
            )
            return not flapping or lasting

        return [detection for detection in detections if new(detection)]

    def _flapping(self, verdict: Silence, now_ns: int) -> list[Detection]:
        """Feed the flap record with what is down now and with gaps that closed; its claims."""
        live = self._on.liveness.table
        for gap in self._on.gaps.look(verdict.sightings.silent, live["ok_ns"], live["interval_ns"], now_ns):
            self._on.flaps.pulse(gap.subject, gap.down_ns, gap.up_ns)
        down = {c.subject: c.since_ns for c in verdict.detections if self._on.ledger.is_open(c.kind, c.subject)}
        down = {s: since for s, since in down.items() if s.type in ("nic", "host", "link", "switch")}
        self._on.flaps.update(down, now_ns)
        return self._on.flaps.detections(now_ns)

    def _excused(self, verdict: Silence) -> set[str]:
        """Hosts whose clocks cannot be bounded for a reason already told: agent stale, or a NIC down."""
        hosts = {self._on.sessions.hosts.list[h] for h in np.flatnonzero(verdict.stale).tolist()}
        return hosts | {host_of(c.subject.id) for c in verdict.detections if c.subject.type in ("nic", "host")}
