"""Links that go down and come back: three rules over the past hour, from three kinds of witness.

Witnesses of a down event: probes (silence laid to the subject, or a short gap on all its paths), and the counters
``carrier_changes`` and ``link_downed`` of its port. They see the same events, so the count is the largest of the three,
never their sum. Each counter is read by difference: a reset or a new boot starts it afresh, a null (``link_downed``
pinned at 255) is no reading at all.

Rules, each with its own limit, and the finding says which of them fired:

- **count**: more than `flap_count` downs within `flap_window_s`;
- **longest**: one outage of at least `flap_longest_s`;
- **total**: outages of at least `flap_total_s` in sum.

An outage is timed by probes to ± one probe interval, by port readings to ± one reading.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.detections import SOUND, Detection, symptom
from sdfstream.detect.inferred.hidden import evidence_of, is_inferred
from sdfstream.detect.instant import Instant
from sdfstream.detect.runs import Gap
from sdfstream.numeric.damping import Damping
from sdfstream.records import columns
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import NS_PER_MS, NS_PER_S

_MOST_EVENTS = 256
_MOST_LINKS = 10_000
_UP_AFTER_NS = 300 * NS_PER_MS
_SAME_NS = 600 * NS_PER_MS
"""Two witnesses' downs this close are one event."""
_NONE = -1


@dataclass(slots=True)
class Outage:
    """From the last probe that passed to the first that passed again."""

    down_ns: int
    up_ns: int = _NONE
    """−1 while it lasts."""
    seen_ns: int = _NONE
    """Last evaluation at which it was still down."""

    def lasted_ns(self, now_ns: int) -> int:
        """Length so far."""
        return (now_ns if self.up_ns == _NONE else self.up_ns) - self.down_ns


@dataclass(slots=True)
class _PortDowns:
    """Last counters of one NIC's port, and the downs that they showed."""

    carrier: int = _NONE
    was_down: bool = False
    downed: int = _NONE
    by_carrier: deque[list[int]] = field(default_factory=lambda: deque(maxlen=_MOST_EVENTS))
    by_downed: deque[list[int]] = field(default_factory=lambda: deque(maxlen=_MOST_EVENTS))
    """[bus time, downs] each."""


@dataclass(slots=True)
class _Placed:
    """By what an inferred link is known, which no map names, from its last outage."""

    nics: tuple[str, ...] = ()
    """On its switch."""
    paths: tuple[str, ...] = ()
    """That the outage hit."""
    suspects: tuple[tuple[str, float], ...] = ()
    """What it may have been, and how probably."""


class FlapDetector:
    """Outages per subject (``nic h03/r1``, ``link l0--s1``, ``switch s1``) and downs per port."""

    def __init__(self, config: DetectConfig, *closed: Callable[[Instant], list[Gap]]) -> None:
        self.config = config
        self._closed = closed
        """Outages that were told by nobody and have ended since the last evaluation, by who knows of them."""
        self.gaps: list[Gap] = []
        """Those that closed at the last evaluation."""
        self._outages: dict[str, deque[Outage]] = {}
        self._ports: dict[str, _PortDowns] = {}
        self._damping: dict[str, Damping] = {}
        self._placed: dict[str, _Placed] = {}
        """Of inferred links."""

    def take_ports(self, batch: pa.RecordBatch, at_ns: int) -> list[str]:
        """Take ``carrier_changes``, ``link_downed`` and state of a port message; the NICs that went down since."""
        fell: list[str] = []
        nic, names = columns.names(batch, "nic")
        state, states = columns.names(batch, "state")
        carrier = columns.filled(batch, "carrier_changes", 2**63).tolist()
        downed = columns.filled(batch, "link_downed", 2**63).tolist()
        for n, s, c, d in zip(nic.tolist(), state.tolist(), carrier, downed, strict=True):
            if n < 0:
                continue
            port = self._ports.get(names[n])
            if port is None:
                if len(self._ports) >= _MOST_LINKS:
                    continue
                port = self._ports[names[n]] = _PortDowns()
            down = s >= 0 and states[s] in ("down", "disabled")
            changes = _rise(port.carrier, c)
            # every change is one edge; from the states at both ends follows how many of them led down
            downs = max(0, (changes + down - port.was_down + 1) // 2) if changes else 0
            failures = _rise(port.downed, d)
            self._note(names[n], port.by_carrier, downs, at_ns)
            self._note(names[n], port.by_downed, failures, at_ns)
            if downs or failures or down:
                fell.append(names[n])
            port.carrier = int(c) if c < 2**63 else _NONE
            port.downed = int(d) if d < 2**63 else _NONE
            port.was_down = down
        return fell

    def restarted(self, host: str) -> None:
        """A host's agent is a new run; counters may have started again."""
        for nic, port in self._ports.items():
            if nic.startswith(f"{host}/"):
                port.carrier = port.downed = _NONE

    def _note(self, nic: str, downs: deque[list[int]], n: int, at_ns: int) -> None:
        if n:
            downs.append([at_ns, n])
            self._penalise(f"nic {nic}", n, at_ns)

    def _penalise(self, subject: str, n: int, at_ns: int) -> None:
        damping = self._damping.setdefault(subject, Damping())
        for _ in range(min(n, 8)):  # eight reach the ceiling
            damping.down(at_ns)

    def pulse(self, subject: Subject, down_ns: int, up_ns: int) -> None:
        """A short gap on all paths of a subject, over before it counted as silence."""
        self._begin(f"{subject.type} {subject.id}", down_ns, up_ns, up_ns)

    def update(self, down: dict[Subject, int], now_ns: int) -> None:
        """Take the subjects that are down at `now_ns`, the instant that reports have reached, and since when."""
        for subject, since_ns in down.items():
            self._begin(f"{subject.type} {subject.id}", since_ns, _NONE, now_ns)
        for outages in self._outages.values():
            last = outages[-1]
            if last.up_ns == _NONE and now_ns - last.seen_ns > _UP_AFTER_NS:
                last.up_ns = last.seen_ns

    def _begin(self, key: str, down_ns: int, up_ns: int, now_ns: int) -> None:
        outages = self._outages.get(key)
        if outages is None:
            if len(self._outages) >= _MOST_LINKS:
                return
            outages = self._outages[key] = deque(maxlen=_MOST_EVENTS)
        last = outages[-1] if outages else None
        if last is not None and (last.up_ns == _NONE or down_ns < last.up_ns or down_ns - last.down_ns < _SAME_NS):
            last.up_ns, last.seen_ns = up_ns, now_ns
            return
        outages.append(Outage(down_ns, up_ns, now_ns))
        self._penalise(key, 1, down_ns)

    def detections(self, now: Instant) -> list[Detection]:
        """Subjects to which at least one rule applies, once the gaps that closed and what is down now are taken."""
        self.gaps = [gap for closed in self._closed for gap in closed(now)]
        for gap in self.gaps:
            self.pulse(gap.subject, gap.down_ns, gap.up_ns)
            if gap.found.beside:
                placed = _Placed(gap.found.beside, gap.paths, tuple(gap.found.suspects))
                self._placed[f"{gap.subject.type} {gap.subject.id}"] = placed
        silent = [d for d in now.silence.detections if d.kind not in SOUND]
        down = {d.subject: d.since_ns for d in silent if now.findings.is_open(d.kind, d.subject)}
        down = {s: since_ns for s, since_ns in down.items() if s.type in ("nic", "host", "link", "switch")}
        for subject in now.silence.recovering:  # an outage ends with the first probe that passes
            down.pop(subject, None)
        self._note_suspects(d for d in silent if d.subject in down and is_inferred(d.subject))
        self.update(down, now.reached_ns)
        return self.flapping(now.now_ns)

    def _note_suspects(self, outages: Iterable[Detection]) -> None:
        """Keep what the outages of inferred links may have been, beside what short ones told."""
        for d in outages:
            key = f"{d.subject.type} {d.subject.id}"
            self._placed[key] = replace(self._placed.get(key, _Placed()), suspects=d.suspects)

    def flapping(self, now_ns: int) -> list[Detection]:
        """Subjects to which at least one rule applies at `now_ns`."""
        after_ns = now_ns - int(self.config.flap_window_s * NS_PER_S)
        self._prune(after_ns)
        keys = dict.fromkeys(
            [*self._outages, *(f"nic {n}" for n, p in self._ports.items() if p.by_carrier or p.by_downed)]
        )
        found = (self._evaluate(key, now_ns) for key in keys)
        return [detection for detection in found if detection is not None]

    def _prune(self, after_ns: int) -> None:
        for key, outages in list(self._outages.items()):
            while outages and outages[0].up_ns != _NONE and outages[0].up_ns < after_ns:
                outages.popleft()
            if not outages:
                del self._outages[key]
                self._placed.pop(key, None)
        for port in self._ports.values():
            for downs in (port.by_carrier, port.by_downed):
                while downs and downs[0][0] < after_ns:
                    downs.popleft()
        for key in [k for k, d in self._damping.items() if d.penalty_at(after_ns) < 1.0 and d.at_ns < after_ns]:
            del self._damping[key]

    def _evaluate(self, key: str, now_ns: int) -> Detection | None:
        kind, _, name = key.partition(" ")
        outages = list(self._outages.get(key, ()))
        port = self._ports.get(name, _PortDowns()) if kind == "nic" else _PortDowns()
        seen = {
            "probes": len(outages),
            "carrier": sum(n for _, n in port.by_carrier),
            "link-downed": sum(n for _, n in port.by_downed),
        }
        count = max(seen.values())
        lasted = [o.lasted_ns(now_ns) / NS_PER_S for o in outages]
        longest_s, total_s = max(lasted, default=0.0), sum(lasted)
        over = all(o.up_ns != _NONE for o in outages)  # a link still down is down, not flapping
        fired = self._fired(count, longest_s, total_s, over=over)
        if not fired:
            return None
        starts = [o.down_ns for o in outages] + [at for at, _ in (*port.by_carrier, *port.by_downed)]
        placed = self._placed.get(key, _Placed())
        penalty = self._damping.get(key, Damping()).penalty_at(now_ns)
        evidence = (
            Evidence("flaps", float(count), "1", name, float(self.config.flap_count)),
            *(Evidence(f"flaps-by-{witness}", float(n), "1", name) for witness, n in seen.items() if n),
            Evidence("longest-outage", round(longest_s, 2), "s", name, self.config.flap_longest_s),
            Evidence("outage-total", round(total_s, 2), "s", name, self.config.flap_total_s),
            Evidence("damping-penalty-above-1600", float(penalty > 1600), "1", name, 0.0),
            *evidence_of(placed.nics),
        )
        return Detection(
            "link-flap",
            Subject(kind, name),  # type: ignore[arg-type]
            min(starts),
            "link-failure",
            0.95,
            evidence,
            severity="urgent",
            suspects=placed.suspects or ((name, 1.0),),
            symptoms=tuple(symptom("path-down", Subject("path", path), min(starts)) for path in placed.paths),
            detail="; ".join(fired),
        )

    def _fired(self, count: int, longest_s: float, total_s: float, *, over: bool) -> list[str]:
        """The rules that apply, each as a sentence; `over`: no outage lasts still."""
        fired = []
        timed = over and count >= self.config.flap_min_downs
        if count > self.config.flap_count:
            fired.append(f"link has flapped more than {self.config.flap_count} times within the past {self._window()}")
        if timed and longest_s >= self.config.flap_longest_s:
            fired.append(f"one outage lasted {self.config.flap_longest_s:g} s or longer")
        if timed and total_s >= self.config.flap_total_s:
            fired.append(f"outages of {self.config.flap_total_s:g} s or more in sum within the past {self._window()}")
        return fired

    def _window(self) -> str:
        window_s = self.config.flap_window_s
        return "hour" if window_s == 3600 else f"{window_s:g} s"

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        ports = {
            nic: [p.carrier, p.was_down, p.downed, list(p.by_carrier), list(p.by_downed)]
            for nic, p in self._ports.items()
        }
        return {
            "outages": [[key, [asdict(o) for o in outages]] for key, outages in self._outages.items()],
            "ports": [[nic, saved] for nic, saved in ports.items()],
            "damping": [[key, asdict(d)] for key, d in self._damping.items()],
            "placed": [[key, list(p.nics), list(p.paths), list(p.suspects)] for key, p in self._placed.items()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._outages = {
            key: deque([Outage(**o) for o in outages], maxlen=_MOST_EVENTS) for key, outages in state["outages"]
        }
        self._ports = {}
        for nic, (carrier, was_down, downed, by_carrier, by_downed) in state["ports"]:
            port = self._ports[nic] = _PortDowns(carrier, was_down, downed)
            port.by_carrier.extend(by_carrier)
            port.by_downed.extend(by_downed)
        self._damping = {key: Damping(**d) for key, d in state["damping"]}
        self._placed = {}
        for key, nics, paths, *suspects in state.get("placed", ()):  # releases before had none, then no suspects
            likely = tuple((name, p) for name, p in (suspects[0] if suspects else ()))
            self._placed[key] = _Placed(tuple(nics), tuple(paths), likely)


def _rise(before: int, now: float) -> int:
    """Increase of a counter; 0 when either reading is missing or the counter went back (a reset)."""
    if before == _NONE or now >= np.float64(2**63) or now < before:
        return 0
    return int(now) - before
