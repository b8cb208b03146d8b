"""Who is there at all: agents that publish, NICs that exist, ports and their state.

No data is *unknown*: an agent that stopped makes what it watched unknown; a NIC that left its host is unknown and no
fault of the fabric. All ages are bus time: agents' clocks may be hours off.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.detect.sessions import Sessions
from sdfstream.numeric.table import Table
from sdfstream.records import columns
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S, TICK_NS

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_HISTORY = 256
"""Boundaries that `Presence` looks back: 25 s."""
_LEAST_GAP_NS, _MOST_GAP_NS = 300 * NS_PER_MS, 1500 * NS_PER_MS
_LATE_NS = 600 * NS_PER_MS
"""News this late comes from a starved agent, or over a congested link to the bus; a flush is 50 to 100 ms."""
_UNHEARD_NS = 800 * NS_PER_MS
_TROUBLE_NS = 5 * NS_PER_S
"""For so long after its last late news an agent is not relied on."""
_LATE_MEMORY_NS, _MOST_LATE_NS = 60 * NS_PER_S, 30 * NS_PER_S
PORT_STATES = ("unknown", "up", "down", "disabled", "absent")


class Presence:
    """Last signs of life of every host's agent, and the port state of every NIC."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.hosts = Table(
            {
                "received_at_ns": np.int64(ABSENT_NS),
                "liveness_at_ns": np.int64(ABSENT_NS),
                "reported_ns": np.int64(ABSENT_NS),
                "gap_ns": np.int64(0),
                "late_ns": np.int64(0),
                "late_at_ns": np.int64(ABSENT_NS),
                "trouble_ns": np.int64(ABSENT_NS),
                "awake_ns": np.int64(0),
                "awake_then_ns": np.zeros(_HISTORY, np.int64),
            }
        )
        """Per host: last message and last liveness statement, bus time; up to when it has reported (`bustime`);
        usual gap between messages; how late its news came at worst lately, and when; when it was last late or unheard;
        time awake so far, and that at each of the last boundaries (a ring)."""
        self.ports = Table({"state": np.uint8(0), "at_ns": np.int64(ABSENT_NS), "since_at_ns": np.int64(ABSENT_NS)})
        """Per NIC: its last port state (index into `PORT_STATES`), when it was read and since when, bus time."""
        self.boots: dict[str, str] = {}

    def ensure(self) -> None:
        """Have a row for every host and NIC."""
        self.hosts.ensure(len(self.sessions.hosts))
        self.ports.ensure(len(self.sessions.nics))

    def take_message(self, host: str, at_ns: int, boot_id: str, *, liveness: bool = False) -> bool:
        """An agent published; True when it is a new run of it."""
        number = self.sessions.hosts.add(host)
        self.ensure()
        if number < 0:
            return False
        self.hosts["awake_ns"][number] = self.awake(at_ns)[number]
        before_ns = int(self.hosts["received_at_ns"][number])
        if before_ns != ABSENT_NS:
            if at_ns - before_ns > max(_UNHEARD_NS, 4 * int(self.hosts["gap_ns"][number])):
                self.hosts["trouble_ns"][number] = at_ns
            gap_ns = int(self.hosts["gap_ns"][number])
            self.hosts["gap_ns"][number] = (7 * gap_ns + min(at_ns - before_ns, 2 * NS_PER_S)) // 8
        self.hosts["received_at_ns"][number] = at_ns
        if liveness:
            self.hosts["liveness_at_ns"][number] = at_ns
        if not boot_id or self.boots.get(host) == boot_id:
            return False
        before = self.boots.get(host)
        self.boots[host] = boot_id
        return before is not None

    def take_report(self, host: str, until_ns: int, at_ns: int) -> None:
        """An agent has reported, at `at_ns`, what it saw up to `until_ns`, both bus time."""
        number = self.sessions.hosts.find(host)
        if number < 0:
            return
        t = self.hosts
        t["reported_ns"][number] = max(int(t["reported_ns"][number]), until_ns)
        late_ns = at_ns - int(t["reported_ns"][number])
        if late_ns > _LATE_NS:
            t["trouble_ns"][number] = at_ns
            if late_ns >= t["late_ns"][number] or at_ns - t["late_at_ns"][number] > _LATE_MEMORY_NS:
                t["late_ns"][number], t["late_at_ns"][number] = late_ns, at_ns

    def troubled(self, now_ns: int) -> Bools:
        """(hosts,) agents whose news is late or missing, or was a moment ago: what they lose or delay proves nothing.

        A starved agent neither reads its sockets nor answers in time; its peers' probes suffer as its own do.
        """
        t = self.hosts
        patience_ns = np.maximum(_UNHEARD_NS, 4 * t["gap_ns"])
        mute = (t["received_at_ns"] != ABSENT_NS) & (now_ns - t["received_at_ns"] > patience_ns)
        result: Bools = mute | ((t["trouble_ns"] != ABSENT_NS) & (now_ns - t["trouble_ns"] <= _TROUBLE_NS))
        return result

    def take_ports(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take port states of a ``sdf.raw.port.v1`` message."""
        nic, nic_names = columns.names(batch, "nic")
        state, state_names = columns.names(batch, "state")
        for n, s in zip(nic.tolist(), state.tolist(), strict=True):
            number = self.sessions.nic(nic_names[n]) if n >= 0 else -1
            if number < 0:
                continue
            name = state_names[s] if s >= 0 else "unknown"
            code = PORT_STATES.index(name) if name in PORT_STATES else 0
            self.ensure()
            if self.ports["state"][number] != code or self.ports["at_ns"][number] == ABSENT_NS:
                self.ports["since_at_ns"][number] = at_ns
            self.ports["state"][number] = code
            self.ports["at_ns"][number] = at_ns

    def port_state(self, nic: int, now_ns: int, max_age_ns: int) -> str:
        """State of a NIC's port, ``unknown`` when it was not read lately."""
        at = self.ports["at_ns"][nic]
        fresh = at != ABSENT_NS and now_ns - at <= max_age_ns
        return PORT_STATES[int(self.ports["state"][nic])] if fresh else "unknown"

    def absent(self, now_ns: int, max_age_ns: int) -> Bools:
        """(nics,) True where a recent port reading says that the NIC is not in its host."""
        at = self.ports["at_ns"]
        fresh = (at != ABSENT_NS) & (now_ns - at <= max_age_ns)
        result: Bools = fresh & (self.ports["state"] == PORT_STATES.index("absent"))
        return result

    def awake(self, now_ns: int) -> Ints:
        """(hosts,) time each agent has been awake: bus time less the long gaps in which it published nothing.

        A starved agent neither sends nor answers nor listens; what falls silent meanwhile says nothing of the fabric.
        """
        take_message = self.hosts["received_at_ns"]
        cap_ns = np.clip(3 * self.hosts["gap_ns"], _LEAST_GAP_NS, _MOST_GAP_NS)
        since_ns = np.where(take_message == ABSENT_NS, 0, now_ns - take_message)
        result: Ints = self.hosts["awake_ns"] + np.minimum(since_ns, cap_ns)
        return result

    def mark(self, tick: int) -> None:
        """Remember how long every agent has been awake by this 100 ms boundary."""
        self.hosts["awake_then_ns"][:, tick % _HISTORY] = self.awake(tick * TICK_NS)

    def awake_since(self, hosts: Ints, since_ns: Ints, now_ns: int) -> Ints:
        """How long each of these hosts (−1: one without an agent) was awake between `since_ns` and now."""
        tick = now_ns // TICK_NS
        then = np.clip(-(-since_ns // TICK_NS), tick - _HISTORY + 1, tick) % _HISTORY
        passed: Ints = np.append(self.awake(now_ns), 0)[hosts] - self.hosts["awake_then_ns"][hosts, then]
        unheard = np.append(self.hosts["received_at_ns"] == ABSENT_NS, True)[hosts]
        return np.where(unheard, now_ns - since_ns, passed)

    def stale(self, now_ns: int, limit_ns: int) -> Bools:
        """(hosts,) True where an agent published before and then nothing for `limit_ns`.

        One whose news was late lately gets twice that lateness on top: it is probably late again.
        """
        t = self.hosts
        late_ns = np.where(now_ns - t["late_at_ns"] <= _LATE_MEMORY_NS, np.minimum(t["late_ns"], _MOST_LATE_NS), 0)
        late_ns[t["late_at_ns"] == ABSENT_NS] = 0
        at = t["received_at_ns"]
        result: Bools = (at != ABSENT_NS) & (now_ns - at > limit_ns + 2 * late_ns)
        return result

    def states_liveness(self, now_ns: int, limit_ns: int) -> Bools:
        """(hosts,) True where an agent's own liveness statements are fresh."""
        at = self.hosts["liveness_at_ns"]
        result: Bools = (at != ABSENT_NS) & (now_ns - at <= limit_ns)
        return result

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "hosts": self.hosts.snapshot(),
            "ports": self.ports.snapshot(),
            "boots": dict(sorted(self.boots.items())),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.hosts.restore(state["hosts"])
        self.ports.restore(state["ports"])
        self.boots = dict(state["boots"])
