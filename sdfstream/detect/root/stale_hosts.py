"""Hosts whose agents fell silent: gone as a whole, where no peer reaches their NICs either, or the agent alone.

An agent counts as gone after `DetectConfig.agent_stale_s`, since a busy machine, a restart and the way to the bus make
it late as well. One that breaks off from one moment to the next with all of its host's NICs, alone of all, without the
last word of an agent that is stopped, is told at once, as a warning: the host is gone, or its agent was killed, since
the reflector is part of it. What is silent still when the agent counts as gone is the host.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.detections import MAX_SYMPTOMS, Detection, symptom
from sdfstream.detect.liveness import Sightings
from sdfstream.detect.presence import Presence
from sdfstream.detect.sessions import Sessions
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S

Bools = npt.NDArray[np.bool_]

_OR_ITS_AGENT = "or its agent was killed: its NICs answer no probe since the same moment"
_LEAST_PEERS = 2
"""Hosts whose probes one that broke off no longer answers."""
_ANSWERS_NS = 300 * NS_PER_MS
"""An answer so long after an agent's last message shows that its reflector lives; agents flush every 50 to 100 ms."""


class StaleHosts:
    """Findings about agents that published nothing for a while."""

    def __init__(self, config: DetectConfig, sessions: Sessions, presence: Presence) -> None:
        self.config, self.sessions, self.presence = config, sessions, presence

    def detections(self, seen: Sightings, stale: Bools, now_ns: int) -> list[Detection]:
        """What is to be said at `now_ns` of the hosts whose agents are `stale`, (hosts,), and of one that broke off."""
        broken = self.presence.broken_off(now_ns, stale)
        if broken < 0 and not stale.any():
            return []
        if stale.all() and stale.size > 1:
            newest = int(self.presence.hosts["received_at_ns"].max())
            return [self._detection("agent-stale", "bus", newest, 0.9, now_ns)]
        host = np.append(self.sessions.nic_host, -1)
        src_host, dst_host = host[self.sessions.table["src"]], host[self.sessions.table["dst"]]
        watched = ~np.append(stale, True)[src_host]
        detections = []
        for number in np.flatnonzero(stale).tolist():
            received_ns = self._newest_ns(number, now_ns)
            to_it = watched & (dst_host == number)
            answered = to_it & (seen.good_round_ns > received_ns + NS_PER_S)
            dead = bool((to_it & seen.silent).any() and not answered.any())
            kind = "host-silent" if dead else "agent-stale"
            detections.append(
                self._detection(kind, self.sessions.hosts.list[number], received_ns, 0.95, now_ns, int(to_it.sum()))
            )
        if broken >= 0:
            detections += self._broken_off(broken, seen, watched & (dst_host == broken), now_ns)
        return detections

    def _broken_off(self, number: int, seen: Sightings, to_it: Bools, now_ns: int) -> list[Detection]:
        """Of a host whose agent broke off: that it is silent, where none of its NICs answers anybody any more."""
        received_ns, table = int(self.presence.hosts["received_at_ns"][number]), self.sessions.table
        lost = to_it & seen.silent
        peers, nics = (np.unique(table[end][lost]) for end in ("src", "dst"))
        few = np.unique(self.sessions.nic_host[peers]).size < _LEAST_PEERS
        answered = (to_it & (seen.good_round_ns > received_ns + _ANSWERS_NS)).any()
        if few or answered or nics.size < np.unique(table["dst"][to_it]).size:
            return []
        paths = int(np.count_nonzero(lost))
        found = self._detection("host-silent", self.sessions.hosts.list[number], received_ns, 0.6, now_ns, paths)
        return [replace(found, severity="warning", confirm_ns=0, detail=_OR_ITS_AGENT)]

    def _newest_ns(self, host: int, now_ns: int) -> int:
        """Of when the newest is that is known of a host: its last message, or what it told of if it is heard again."""
        received_ns, reported_ns = (int(self.presence.hosts[one][host]) for one in ("received_at_ns", "reported_ns"))
        received = now_ns - received_ns <= int(self.config.agent_stale_s * NS_PER_S)
        return min(received_ns, reported_ns) if received and reported_ns != ABSENT_NS else received_ns

    def _detection(
        self, kind: str, host: str, received_ns: int, confidence: float, now_ns: int, paths: int = 0
    ) -> Detection:
        number = self.sessions.hosts.find(host)
        symptoms: tuple[dict[str, Any], ...] = ()
        if kind == "host-silent":
            nics = [n for n, h in zip(self.sessions.nics.list, self.sessions.nic_host, strict=True) if h == number]
            symptoms = tuple(symptom("nic-down", Subject("nic", n), received_ns) for n in nics[:MAX_SYMPTOMS])
        evidence = [Evidence("unheard-for", round((now_ns - received_ns) / NS_PER_S, 1), "s", host, 0.1)]
        if kind == "host-silent":
            evidence.append(Evidence("silent-paths", float(paths), "paths", f"to {host}", 0.0))
        every = number < 0
        return Detection(
            kind,
            Subject("process", host) if every else Subject("host", host),
            received_ns,
            "host-gone",
            confidence,
            tuple(evidence),
            suspects=((host, confidence),),
            symptoms=symptoms,
            severity="urgent" if kind == "host-silent" else "warning",
            confirm_ns=300 * NS_PER_MS,  # a host that comes back publishes within a flush
            hold_ns=int(self.config.hold_s * NS_PER_S),
            detail="no agent is heard: the bus, or what collects for it, is away" if every else "",
        )
