"""Silent paths to root causes: which NIC, link, switch, host or path is down, and the health of every NIC side.

Order of the verdicts, each taking its paths away from the next:

1. a NIC that is absent, or an agent that stopped: what they touch is unknown;
2. a stale agent whose NICs no peer reaches: ``host-silent``; a stale agent alone: ``agent-stale``;
3. a NIC at which one transport is silent, where UDP of the same pairs of NICs lives: ``transport-silent``;
4. large packets where small ones pass: ``mtu-mismatch``;
5. everything else that is silent goes to `localise` together with every path that has worked since; single paths that
   cross a link with living ones: ``loss`` of that link (`gray.black_holes`).

A path counts as silent only once both its agents were awake for the limit meanwhile. So a dead host is one finding
(case 2) and not one per NIC, and a starved machine, whose agents stop for seconds, is none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.detections import MAX_SYMPTOMS, SOUND, Detection, symptom
from sdfstream.detect.gray import black_holes
from sdfstream.detect.gray.black_holes import with_black_holes
from sdfstream.detect.inferred.hidden import evidence_of
from sdfstream.detect.inferred.leaves import whole_leaves
from sdfstream.detect.liveness import SessionLiveness, Sightings
from sdfstream.detect.localise import Location, locate
from sdfstream.detect.presence import Presence
from sdfstream.detect.problem import Observations
from sdfstream.detect.recent import LocationCache, RecentFaults, came_back
from sdfstream.detect.root import packet_sizes, transports
from sdfstream.detect.root.carriers import Carriers
from sdfstream.detect.root.packet_sizes import large_silent, too_large
from sdfstream.detect.root.settling import Settling
from sdfstream.detect.root.stale_hosts import StaleHosts
from sdfstream.detect.root.transports import silent_transports
from sdfstream.detect.sessions import Sessions
from sdfstream.detect.switches.carriers import SwitchCarriers
from sdfstream.records.fabric import host_of
from sdfstream.records.finding import Evidence, Severity, Subject
from sdfstream.records.units import ABSENT_NS, NS_PER_S, TICK_NS

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_TRIALS = 8.0
"""A silent path counts as so many failed trials, a healthy one as so many passed: it is all or nothing here."""
_WEAK_TRIALS = 1.0
"""What a silent path counts whose agents have reported nothing since: it may help to choose among suspects, no more."""
_PORT_AGE_NS = 5 * NS_PER_S
_BACK_NS = 2 * NS_PER_S
"""What an absent NIC leaves behind takes so long at most: its peers' time-outs, and what they said meanwhile."""
_CLEAR = 0.6
"""A suspect at least this likely is named; what is less clear is named by what all suspects have in common."""


@dataclass(frozen=True, slots=True)
class Silence:
    """The verdict at one instant."""

    detections: list[Detection]
    sightings: Sightings
    bad: Bools
    """(sessions,) silent and laid to something: engines of delay and loss leave these out."""
    absent: Bools
    """(nics,) not in their host."""
    excused: Bools
    """(sessions,) an end is absent, or was a moment ago: what they lost and when they answered proves nothing."""
    stale: Bools
    """(hosts,) agent silent."""
    stale_hosts: frozenset[str]
    """Their names."""
    locations: list[Location]
    recovering: frozenset[Subject] = frozenset()
    """Of the subjects of `locations` those over which some paths work again."""

    @property
    def hosts(self) -> frozenset[str]:
        """Hosts that are unreachable as a whole or by a NIC: their agent is stale, or silence was laid to them."""
        subjects = (detection.subject for detection in self.detections if detection.kind not in SOUND)
        return self.stale_hosts | {host_of(s.id) for s in subjects if s.type in ("nic", "host")}


class SilenceDetector:
    """Lays silence to its root causes."""

    def __init__(
        self,
        config: DetectConfig,
        sessions: Sessions,
        presence: Presence,
        liveness: SessionLiveness,
        cabling: Cabling,
        recent: RecentFaults,
        switch_carriers: SwitchCarriers,
    ) -> None:
        self.config, self.sessions, self.presence = config, sessions, presence
        self.liveness, self.cabling, self.recent, self.switch_carriers = liveness, cabling, recent, switch_carriers
        self.settling = Settling(config, presence, cabling)
        self._stale_hosts = StaleHosts(config, sessions, presence)
        self.carriers = Carriers(config, sessions, presence, liveness, cabling)
        self.blamed: frozenset[str] = frozenset()
        self._sick: Ints = np.empty(0, np.int64)
        """Sessions whose silence was laid to `blamed`."""
        self._traces = 0
        """Version of the traces of silent paths that they were laid by."""
        self._odds: dict[str, tuple[float, list[tuple[str, float]]]] = {}
        """Probability and suspects of what is blamed, as they were when something fell silent last."""
        self.cache = LocationCache()
        self.moved: dict[str, list[str]] = {}
        """Dead links around which routers have sent their flows elsewhere, with those routers."""
        self.absent_ns = np.empty(0, np.int64)
        """(nics,) when each was last absent, bus time."""

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        saved = {"blamed": sorted(self.blamed), "cache": self.cache.snapshot(), "moved": self.moved, "odds": self._odds}
        return {**saved, "absent_ns": self.absent_ns.copy(), "sick": self._sick.copy(), "traces": self._traces}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.blamed = frozenset(state["blamed"])
        self.cache.restore(state["cache"])
        self.moved = {str(link): list(routers) for link, routers in state["moved"].items()}
        self.absent_ns = np.array(state["absent_ns"], np.int64)
        self._sick = np.array(state.get("sick", ()), np.int64)  # a release before had none of these three
        self._traces = int(state.get("traces", 0))
        odds = state.get("odds", {})
        self._odds = {name: (float(p), [(str(s), float(q)) for s, q in who]) for name, (p, who) in odds.items()}

    def assess(self, now_ns: int) -> Silence:
        """Claims and sightings at `now_ns`."""
        seen = self.liveness.look(now_ns)
        table = self.sessions.table
        src, dst = table["src"], table["dst"]
        absent = self._absent(seen, now_ns)
        lately = np.append(self._lately(absent, now_ns), True)
        excused = lately[src] | lately[dst]
        stale = self.presence.stale(now_ns, int(self.config.agent_stale_s * NS_PER_S))
        names = frozenset(self.sessions.hosts.list[h] for h in np.flatnonzero(stale).tolist())
        detections = self._stale_hosts.detections(seen, stale, now_ns)
        if not seen.silent.any():
            self.blamed, self._sick = frozenset(), np.empty(0, np.int64)
            self._heed_moves([], seen.silent, seen.silent, seen, now_ns)
            ports = self.carriers.down(seen, self._carrier_lost(now_ns), set())
            found = self.switch_carriers.attest(detections + ports, names, now_ns)
            return Silence(found, seen, seen.silent, absent, excused, stale, names, [])
        bad = seen.silent & ~excused
        host = np.append(self.sessions.nic_host, -1)
        gone = np.append(stale, False)
        for end in (host[src], host[dst]):
            bad &= ~gone[end]
        quiet = bad.copy()
        bad = self._grounded(bad, seen, host, now_ns)
        apart = silent_transports(self.sessions, seen, bad)
        rest = bad.copy()
        rest[[slot for one in apart for slot in one.slots.tolist()]] = False
        held = large_silent(self.sessions, seen, rest)
        rest &= ~held
        locations = self._locate(seen, rest, quiet & ~bad, now_ns) if rest.any() else []
        holes, locations = [x for x in locations if x.alive], [x for x in locations if not x.alive]
        self.blamed = frozenset(x.subject.id for x in locations)
        locations = whole_leaves(self.cabling, locations, seen.since_ns)
        recovering = frozenset(x.subject for x in locations if came_back(self.cabling, x, seen))
        locations = self._without_aftermath(locations, now_ns)
        hold_ns = 2 * int(self.config.hold_s * NS_PER_S)
        detections += [transports.detection(x, self.sessions, now_ns, hold_ns) for x in apart]
        large = too_large(self.cabling, self.sessions, seen, held, now_ns)
        # small probes, which are more frequent, are the first to show that an outage has ended
        large = [x for x in large if not self.recent.holds(x.location.subject.id, now_ns)]
        detections += [packet_sizes.detection(x, self.sessions, now_ns, hold_ns) for x in large]
        for nic in (name for x in apart for name in (x.nic, x.other) if name):
            self.recent.note(nic, now_ns, reported=True)
        detections += [self._detection(x, seen, now_ns) for x in locations]
        fresh = [x for x in holes if not self.recent.touched(x.slots, now_ns).all()]
        fresh = [x for x in fresh if not self.recent.was_found(x.subject.id, now_ns)]  # a dead link that heals
        detections += [black_holes.detection(x, self.cabling, seen.since_ns, now_ns, hold_ns) for x in fresh]
        said = {nic for x in locations for nic in x.nics}
        detections += self.carriers.down(seen, self._carrier_lost(now_ns), said)
        detections = self.switch_carriers.attest(detections, names, now_ns)
        return Silence(detections, seen, bad, absent, excused, stale, names, locations, recovering)

    def _grounded(self, bad: Bools, seen: Sightings, host: Ints, now_ns: int) -> Bools:
        """Silent sessions both of whose agents were awake for the limit meanwhile: starved agents prove nothing.

        Both must also have reported since: an agent that sleeps now looks like one that is cut off.
        """
        slots = np.flatnonzero(bad)
        limit_ns, since_ns = seen.limit_ns[slots], seen.since_ns[slots]
        reported_ns = np.append(self.presence.hosts["reported_ns"], ABSENT_NS)
        unheard = np.append(self.presence.hosts["received_at_ns"] == ABSENT_NS, True)
        for end in ("src", "dst"):
            agent = host[self.sessions.table[end][slots]]
            awake_ns = self.presence.awake_since(agent, since_ns, now_ns)
            asleep = awake_ns < limit_ns - 2 * TICK_NS
            news_ns = since_ns + np.where(limit_ns < 2 * TICK_NS, limit_ns, limit_ns // 2)
            mute = ~unheard[agent] & (reported_ns[agent] < news_ns)
            bad[slots[asleep | mute]] = False
        return bad

    def _without_aftermath(self, locations: list[Location], now_ns: int) -> list[Location]:
        """Note what is at fault; single paths that touch it, or touched it lately, are no finding of their own."""
        for found in locations:
            if found.subject.type != "path" and found.probability >= _CLEAR:
                for name in found.members or (found.subject.id,):
                    self.recent.note(name, now_ns)
        alone_or_named = []
        for found in locations:
            if found.subject.type == "path":
                alone = ~self.recent.touched(found.slots, now_ns)
                if not alone.any():
                    continue
                found = replace(
                    found,
                    slots=found.slots[alone],
                    path_directions=[w for w, yes in zip(found.path_directions, alone.tolist(), strict=True) if yes],
                )
            alone_or_named.append(found)
        return alone_or_named

    def _absent(self, seen: Sightings, now_ns: int) -> Bools:
        """NICs that a port reading calls absent, or of which their own agent only reports unknown."""
        n = len(self.sessions.nics)
        src, dst = self.sessions.table["src"], self.sessions.table["dst"]
        unknown = np.bincount(src[seen.sender_unknown], minlength=n) + np.bincount(
            dst[seen.reflector_unknown], minlength=n
        )
        absent = self.presence.absent(self.presence.reached_ns(now_ns), _PORT_AGE_NS)
        if not unknown.any():
            return absent
        knows = seen.sender_alive | (seen.silent & ~seen.sender_unknown)
        stated = np.bincount(src[knows], minlength=n)
        stated += np.bincount(dst[seen.reflector_alive | seen.reflector_silent], minlength=n)
        lost = self._carrier_lost(now_ns)
        result: Bools = absent | ((unknown > 0) & (stated == 0) & ~lost)
        return result

    def _lately(self, absent: Bools, now_ns: int) -> Bools:
        """(nics,) absent now or a moment ago; a NIC that moves into a container and back is never down."""
        if self.absent_ns.size < absent.size:
            self.absent_ns = np.append(self.absent_ns, np.full(absent.size - self.absent_ns.size, ABSENT_NS))
        self.absent_ns[: absent.size][absent] = now_ns
        result: Bools = self.absent_ns[: absent.size] >= max(0, now_ns - _BACK_NS)
        return result

    def _carrier_lost(self, now_ns: int) -> Bools:
        """(nics,) True where a recent port reading says down or disabled."""
        ports = self.presence.ports
        fresh = (ports["at_ns"] != ABSENT_NS) & (self.presence.reached_ns(now_ns) - ports["at_ns"] <= _PORT_AGE_NS)
        result: Bools = fresh & ((ports["state"] == 2) | (ports["state"] == 3))
        return result

    def _locate(self, seen: Sightings, bad: Bools, weak: Bools, now_ns: int) -> list[Location]:
        """Blame for the silence of `bad`; `weak` are silent too, but their agents have not proven themselves yet."""
        ended_ns = seen.since_ns + seen.slack_ns
        onset_ns = int(ended_ns[bad].max())
        # what came back after a silent path was last tried proves nothing about it: that may be back as well
        again = seen.back_ns > int(seen.tried_ns[bad].min())
        good = ~(bad | weak | again) & (seen.good_round_ns >= onset_ns)
        arrives = seen.good_fwd_ns >= np.where(bad | weak, ended_ns, onset_ns)
        observed = []
        for sick, trials in ((bad, _TRIALS), (weak, _WEAK_TRIALS)):
            fwd_broken = sick & seen.reflector_silent
            rev_broken = sick & ~fwd_broken & arrives
            for rows, direction in (
                (fwd_broken, "fwd"),
                (rev_broken, "rev"),
                (sick & ~fwd_broken & ~rev_broken, "both"),
            ):
                slots = np.flatnonzero(rows)
                observed.append(Observations.of(slots, direction, trials, trials, seen.since_ns[slots]))
        fwd_good = arrives & ~good & ~bad & ~weak & ~again
        for rows, direction, last_ns in ((good, "both", seen.good_round_ns), (fwd_good, "fwd", seen.good_fwd_ns)):
            slots = np.flatnonzero(rows)
            observed.append(Observations.of(slots, direction, 0.0, _TRIALS, last_ns[slots]))
        before, self._sick = self._sick, np.flatnonzero(bad | weak)
        is_new = not np.isin(self._sick, before).all() or self._traces != self.cabling.silent_traces.version
        self._traces = self.cabling.silent_traces.version
        # what was blamed a moment ago has no favour if it was before agents had flushed what tells it from others
        incumbents = frozenset[str]() if seen.young(now_ns)[self._sick].all() else self.blamed
        blame = partial(self._blame, not is_new, incumbents)
        locations = self.cache.recall(Observations.join(observed), now_ns, blame)
        self._heed_moves(
            [x for x in locations if bad[x.slots].any() and not x.alive], good, arrives & ~bad, seen, now_ns
        )
        return [x for x in locations if bad[x.slots].any()]

    def _heed_moves(self, locations: list[Location], good: Bools, arrives: Bools, seen: Sightings, now_ns: int) -> None:
        """Paths that were traced over a dead link and work have moved: the router before it sends flows elsewhere.

        So it does again when the link is back.
        """
        cabling = self.cabling
        dead = {x.subject.id: x for x in locations if x.subject.type == "link" and x.probability >= _CLEAR}
        for link in [link for link in self.moved if link not in dead]:
            for router in self.moved.pop(link):
                cabling.note_moves(router, now_ns)
        for link, found in dead.items():
            if link in self.moved:
                continue
            both = [d for d in found.directions for d in (d, "->".join(reversed(d.split("->"))))]
            routers = cabling.moved_off(cabling.numbers(both), (arrives, good))
            if routers:
                self.moved[link] = routers
                for router in routers:
                    cabling.note_moves(router, int(seen.since_ns[found.slots].max()) + 1)

    def _blame(self, nothing_new: bool, incumbents: frozenset[str], seen: Observations) -> list[Location]:
        located = locate(
            self.cabling, seen, noise=1e-3, least_share=0.99, kind="silence",
            incumbents=incumbents, nothing_new=nothing_new,
        )  # fmt: skip
        if nothing_new:  # that it is blamed already is no evidence
            odds = ((x, *self._odds.get(x.subject.id, (1.0, x.suspects))) for x in located)
            located = [x if p >= x.probability else replace(x, stated=p, suspects=who) for x, p, who in odds]
        else:
            self._odds = {x.subject.id: (x.probability, x.suspects) for x in located}
        return with_black_holes(self.cabling, seen, located)

    def _detection(self, found: Location, seen: Sightings, now_ns: int) -> Detection:
        since_ns = int(seen.since_ns[found.slots].min())
        kind = {"nic": "nic-down", "host": "nic-down", "path": "path-down"}.get(found.subject.type, "link-down")
        confidence = found.probability if found.stated is None else found.stated
        cause, severity = "link-failure", "urgent"
        where = " ".join(found.directions)
        subject = found.subject
        if kind == "path-down":
            cause, severity = "unknown", "warning"
        elif kind == "nic-down" and all(self._port(nic, now_ns) == "disabled" for nic in found.nics):
            cause = "port-disabled"
        evidence = (
            Evidence("silent-paths", float(found.slots.size), "paths", where, 0.0),
            Evidence("silent-for", round((now_ns - since_ns) / NS_PER_S, 1), "s", where, 0.0),
            *evidence_of(found.beside, subject),
        )
        paths = zip(found.slots.tolist(), found.path_directions, strict=True)
        symptoms = tuple(symptom("nic-down", Subject("nic", nic), since_ns) for nic in found.members)
        symptoms += tuple(
            symptom("path-down", Subject("path", str(self.sessions.path_id(s, "rev" if w == "rev" else "fwd"))), t)
            for (s, w), t in list(zip(paths, seen.since_ns[found.slots].tolist(), strict=True))[:MAX_SYMPTOMS]
        )
        if found.members:
            where = f"all {len(found.members)} NICs: {where}"
        sprayed = self.cabling.traced.is_sprayed(int(self.sessions.table["dscp"][found.slots[0]]))
        few = found.slots.size <= MAX_SYMPTOMS and (kind == "path-down" or sprayed)
        silent = found.slots if few else found.slots[:0]
        missed = (now_ns - seen.since_ns[silent]) // np.maximum(self.liveness.table["interval_ns"][silent], 1)
        return Detection(
            kind,
            subject,
            since_ns,
            cause,
            confidence,
            evidence,
            severity=_severity(severity),
            sessions=tuple(silent.tolist()),
            missed=int(missed.max(initial=0)),
            suspects=tuple(found.suspects),
            symptoms=symptoms,
            plane=self._plane(found.slots),
            confirm_ns=NS_PER_S if kind == "path-down" else self.settling.time_ns(found, seen, now_ns),
            hold_ns=2 * int(self.config.hold_s * NS_PER_S),
            detail=f"silent {where}" + ("" if found.direction_known else " (direction not told apart)"),
            directions=tuple(found.directions),
            direction_known=found.direction_known,
        )

    def _plane(self, slots: Ints) -> str | None:
        src = self.sessions.table["src"]
        names = {self.sessions.planes.get(int(src[s])) for s in slots[:64].tolist()}
        return next(iter(names)) if len(names) == 1 else None

    def _port(self, nic: str, now_ns: int) -> str:
        number = self.sessions.nics.find(nic)
        return (
            self.presence.port_state(number, self.presence.reached_ns(now_ns), _PORT_AGE_NS)
            if number >= 0
            else "unknown"
        )


def _severity(name: str) -> Severity:
    return "urgent" if name == "urgent" else "warning"
