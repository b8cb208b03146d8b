"""Health of every NIC, sending and receiving side apart: healthy, unhealthy or unknown (``sdf.state.nic.v1``).

- unhealthy: silence was laid to it for as long as evidence takes to settle, or its port has no carrier;
- healthy: something passed it lately;
- unknown: neither. Its agent stopped, the NIC is absent, nobody probes it, or nothing passes it for a reason that
  lies elsewhere. Unknown is never drawn as healthy and never counted as a fault.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.presence import Presence
from sdfstream.detect.root.settling import Settling
from sdfstream.detect.sessions import Sessions
from sdfstream.detect.silence import Silence
from sdfstream.numeric.table import Table
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import NIC
from sdfstream.records.units import ABSENT_NS, NS_PER_S

Ints = npt.NDArray[np.int64]

SIDES = ("tx", "rx")
STATES = ("unknown", "healthy", "unhealthy")
UNKNOWN, HEALTHY, UNHEALTHY = 0, 1, 2


class Health:
    """State per NIC and side, and the events of its changes."""

    def __init__(self, config: DetectConfig, sessions: Sessions, presence: Presence, cabling: Cabling) -> None:
        self.config, self.sessions, self.presence, self.cabling = config, sessions, presence, cabling
        self.settling = Settling(config, presence, cabling)
        two = np.full(2, ABSENT_NS)
        self.table = Table({"state": np.full(2, -1, np.int8), "since_ns": two, "blamed_ns": two, "first_ns": two})
        self._said = 0

    def update(self, verdict: Silence, now_ns: int) -> list[Output]:
        """Bring every NIC up to `now_ns`; one event per side that changed."""
        nics = len(self.sessions.nics)
        self.table.ensure(nics)
        if not nics:
            return []
        good_ns = self._last_good(verdict)
        blamed, since_ns = self._blamed(verdict, now_ns)
        state, before = np.full((nics, 2), UNKNOWN, np.int8), self.table["state"]
        reached_ns = self.presence.reached_ns(now_ns)
        recent = (good_ns != ABSENT_NS) & (reached_ns - good_ns <= int(self.config.agent_stale_s * NS_PER_S))
        clean = good_ns > self.table["blamed_ns"]
        state[recent & (clean | (before != UNHEALTHY))] = HEALTHY
        state[recent & ~clean & (before == UNHEALTHY)] = UNHEALTHY
        port = self.presence.ports
        lost = (port["at_ns"] != ABSENT_NS) & (reached_ns - port["at_ns"] <= 5 * NS_PER_S)
        lost &= (port["state"] == 2) | (port["state"] == 3)
        state[blamed | (lost[:nics, None] & (good_ns != ABSENT_NS))] = UNHEALTHY
        self.table["blamed_ns"][state == UNHEALTHY] = now_ns
        stale = np.append(verdict.stale, False)[self.sessions.nic_host]
        unknown = stale | np.resize(verdict.absent, nics)
        state[unknown] = UNKNOWN
        return self._say(state, since_ns, good_ns, stale, verdict, now_ns)

    def _last_good(self, verdict: Silence) -> Ints:
        """(nics, 2) bus time at which something last passed each side."""
        seen, table = verdict.sightings, self.sessions.table
        used = table["src"] >= 0
        src, dst = table["src"][used], table["dst"][used]
        round_ns, fwd_ns = seen.reported_round_ns[used], seen.reported_fwd_ns[used]
        good = np.full((len(self.sessions.nics), 2), ABSENT_NS)
        tx, rx = good[:, 0], good[:, 1]
        np.maximum.at(tx, src, fwd_ns)
        np.maximum.at(rx, dst, fwd_ns)
        np.maximum.at(rx, src, round_ns)
        np.maximum.at(tx, dst, round_ns)
        return good

    def _blamed(self, verdict: Silence, now_ns: int) -> tuple[npt.NDArray[np.bool_], Ints]:
        """Sides to which silence has been laid for the settling time, and since when they are silent."""
        nics = len(self.sessions.nics)
        blamed = np.zeros((nics, 2), np.bool_)
        since_ns, settle_ns = np.full((nics, 2), now_ns), np.zeros((nics, 2), np.int64)
        for found in verdict.locations:
            if found.probability < 0.5:
                continue
            for name in found.nics:
                nic = self.sessions.nics.find(name)
                for column, side in enumerate(SIDES):
                    element = self.cabling.nic_element(name, side)
                    if element >= 0 and self.cabling.direction(element) in found.directions:
                        blamed[nic, column] = True
                        since_ns[nic, column] = verdict.sightings.since_ns[found.slots].min()
                        settle_ns[nic, column] = self.settling.time_ns(found, verdict.sightings, now_ns)
        first = self._first_blamed(blamed, now_ns)
        return blamed & (now_ns - first >= settle_ns), since_ns

    def _first_blamed(self, blamed: npt.NDArray[np.bool_], now_ns: int) -> Ints:
        """Start of the unbroken blame of every side."""
        start = self.table["first_ns"]
        start[~blamed] = ABSENT_NS
        start[blamed & (start == ABSENT_NS)] = now_ns
        return np.where(start == ABSENT_NS, now_ns, start)

    def _say(
        self,
        state: npt.NDArray[np.int8],
        since_ns: Ints,
        good_ns: Ints,
        stale: npt.NDArray[np.bool_],
        verdict: Silence,
        now_ns: int,
    ) -> list[Output]:
        before = self.table["state"]
        out = []
        for nic, side in np.argwhere(state != before).tolist():
            new = int(state[nic, side])
            if new == UNHEALTHY:
                at, why = int(since_ns[nic, side]), "no probe passes"
            elif new == HEALTHY:
                at, why = int(good_ns[nic, side]), "probes pass"
            elif stale[nic]:
                at, why = now_ns, "its agent is silent"
            elif nic < verdict.absent.size and verdict.absent[nic]:
                at, why = now_ns, "the NIC is absent"
            else:
                at, why = now_ns, "no probe tells"
            before[nic, side] = new
            self.table["since_ns"][nic, side] = at
            out.append(self._event(nic, SIDES[side], STATES[new], at, why, now_ns))
        return out

    def _event(self, nic: int, side: str, state: str, since_ns: int, why: str, now_ns: int) -> Output:
        name = self.sessions.nics.list[nic]
        self._said += 1
        data = {
            "nic": name,
            "direction": side,
            "state": state,
            "since_at_ns": since_ns,
            "seen_at_ns": now_ns,
            "why": why,
        }
        event = Event(NIC.name, "detect", f"nic-{self._said}", now_ns, data)
        return Output(NIC.name, f"{name} {side}", event)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {"table": self.table.snapshot(), "said": self._said}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.table.restore(state["table"])
        self._said = int(state["said"])
