"""The detectors asked in their order, at every 100 ms boundary of bus time; their detections go into one ledger.

Silence is also evaluated between boundaries: when agents say that something fell silent, some ms later if more of them
said so meanwhile, and in every slice while that is news. With probes every 10 ms all of it lies between two boundaries.
So, while silence of such fast probes is young, it is also evaluated at the instant (`due_ns`) at which blame has stood
for its time, and, until something is reported, as often as probes are sent: every message may tell elements apart.
"""

from __future__ import annotations

from sdfstream.detect.detections import Detection
from sdfstream.detect.engines import Engines
from sdfstream.detect.instant import Instant
from sdfstream.detect.ledger import NEVER_NS
from sdfstream.detect.silence import Silence
from sdfstream.records.message import Output
from sdfstream.records.slices import start_of_slice
from sdfstream.records.units import NS_PER_MS, NS_PER_S

_SILENCE_EVERY_NS, _YOUNG_EVERY_NS = 20 * NS_PER_MS, 10 * NS_PER_MS
"""Between two boundaries statements of silence are evaluated at most this often: a big fault brings one per host. While
only fast probes show it, they come within one of their intervals."""
_NEWS_NS = 400 * NS_PER_MS
"""Silence younger than this (only fast probes show it) is evaluated in every slice, not at boundaries alone."""
_LASTING_NS = 5 * NS_PER_S
"""A flapping link that stays down for this long is down."""
_FORGET_EVERY = 600
"""Boundaries between two searches for sessions to forget."""


class Evaluation:
    """Silence first, since it explains what other detectors see; then each detector of `Engines.detectors`."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._silence, self._health = engines.silence, engines.health
        self._jobs, self._slow_pairs, self._ledger = engines.jobs, engines.slow_pairs, engines.ledger
        self.assessed_ns = 0
        """When silence was last evaluated, bus time."""
        self.pending = False
        """Something fell silent lately: silence is evaluated more often than at the boundaries."""
        self.young = False
        """Silence of fast probes is young."""
        self.due_ns = NEVER_NS
        """When silence is to be evaluated again, messages or none: blame has settled then, or news waited that long."""

    def news(self, now_ns: int) -> list[Output]:
        """Silence alone, between two boundaries; later, if it was evaluated a moment ago."""
        every_ns = _YOUNG_EVERY_NS if self.young else _SILENCE_EVERY_NS
        if now_ns - self.assessed_ns >= every_ns:
            return self._assess(now_ns)[1]
        self.due_ns = min(self.due_ns, self.assessed_ns + every_ns)
        return []

    def due(self) -> list[Output]:
        """Silence alone, at `due_ns`."""
        return self._assess(self.due_ns)[1]

    def news_of_slice(self, now_ns: int) -> list[Output]:
        """Silence alone, at the first message of a slice in which it was not evaluated yet."""
        return self._assess(now_ns)[1] if start_of_slice(now_ns) > self.assessed_ns else []

    def boundary(self, tick: int, now_ns: int) -> list[Output]:
        """Every detector that is due at the 100 ms boundary number `tick`."""
        self._engines.begin(tick)
        silence, out = self._assess(now_ns)
        late = self._engines.advance(now_ns)
        reached_ns = self._engines.presence.reached_ns(now_ns)
        left_out = silence.sightings.silent | silence.excused | late
        instant = Instant(now_ns, reached_ns, silence, self._ledger, left_out, late)
        for name, every, detector in self._engines.detectors:
            if tick % every == 0:
                instant.found[name] = detector.detections(instant)
                out += self._report(name, instant.found[name], now_ns)
        out += self._engines.hops.boundary()
        if tick % _FORGET_EVERY == 0:
            self._engines.forget(now_ns)
        return out

    def _report(self, detector: str, detections: list[Detection], now_ns: int) -> list[Output]:
        """Detections with the jobs that they hurt, what they slow, the rows they lack, their symptoms; recorded."""
        presence = self._engines.presence
        detections = self._slow_pairs.annotate(self._jobs.annotate(detections), presence.reached_ns(now_ns))
        detections = self._engines.completeness.weaken(detections)
        detections, explained = self._engines.roots.gather(detections, self._ledger, detector, now_ns)
        stands = presence.watermark.stands(now_ns)
        return self._ledger.take(detector, detections, now_ns, stands=stands, explained=explained)

    def _assess(self, now_ns: int) -> tuple[Silence, list[Output]]:
        self.assessed_ns = now_ns
        silence = self._silence.assess(now_ns)
        seen = silence.sightings
        self.pending = bool((seen.silent & (now_ns - seen.since_ns < _NEWS_NS)).any())
        self.young = bool(seen.young(now_ns).any())
        out = self._report("silence", self._without_flaps(silence.detections, now_ns), now_ns)
        reported = {detection.subject for detection in self._ledger.published("silence")}
        self.due_ns = self._ledger.due_ns("silence", now_ns) if self.young else NEVER_NS
        if self.young and not (silence.locations and {x.subject for x in silence.locations} <= reported):
            self.due_ns = min(self.due_ns, now_ns + _YOUNG_EVERY_NS)
        for found in (x for x in silence.locations if x.subject in reported and x.subject.type != "path"):
            for name in found.members or (found.subject.id,):
                self._engines.recent.note(name, now_ns, reported=True)
        return silence, out + self._health.update(silence, now_ns)

    def _without_flaps(self, detections: list[Detection], now_ns: int) -> list[Detection]:
        """All but the short outages of subjects with an open ``link-flap`` finding."""

        def new(detection: Detection) -> bool:
            flapping = self._ledger.is_open("link-flap", detection.subject)
            lasting = now_ns - detection.since_ns >= _LASTING_NS
            return not flapping or lasting or self._ledger.is_open(detection.kind, detection.subject)

        return [detection for detection in detections if new(detection)]
