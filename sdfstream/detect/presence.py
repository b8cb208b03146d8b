"""Who is there at all: agents that publish, NICs that exist, ports and their state.

No data is *unknown*: an agent that stopped makes what it watched unknown; a NIC that left its host is unknown and no
fault of the fabric. All ages are bus time: agents' clocks may be hours off.

An agent's silence is measured by the progress of all agents' reports (`watermark`) and not by bus time alone: while the
pipeline stands or reads a backlog, nobody is silent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.detect.sessions import Sessions
from sdfstream.detect.watermark import Watermark
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
_DOUBT_NS = NS_PER_S
"""For so long after the watermark stood it is open whether an agent slept meanwhile: its next reports show it."""
_COARSE_NS = 500 * NS_PER_MS
"""Progress of the watermark falls behind bus time by this at most: it moves by whole reports."""
_STANDS_TIMES = 3
"""A watermark that stands for so many times the limit of staleness: no agent publishes, or nothing gets through."""
_LATE_MEMORY_NS, _MOST_LATE_NS = 60 * NS_PER_S, 30 * NS_PER_S
UNSAID_LIMIT_NS = NS_PER_S
"""By what limit agents of releases judged that did not say so, unless told otherwise."""
_LEAST_LIMIT_NS, _MOST_LIMIT_NS = 50 * NS_PER_MS, 3_600 * NS_PER_S
"""What an agent lets itself be set to; what says another limit says none."""
_UNSAID, _GOES_ON, _STOPPING = -1, 0, 1
"""What an agent's last statement said of its end; those of earlier releases say nothing."""
PORT_STATES = ("unknown", "up", "down", "disabled", "absent")


class Presence:
    """Last signs of life of every host's agent, and the port state of every NIC."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.hosts = Table(
            {
                "received_at_ns": np.int64(ABSENT_NS),
                "progress_ns": np.int64(0),
                "liveness_said_ns": np.int64(ABSENT_NS),
                "limit_ns": np.int64(0),
                "stopping": np.int8(_UNSAID),
                "reported_ns": np.int64(ABSENT_NS),
                "gap_ns": np.int64(0),
                "late_ns": np.int64(0),
                "late_at_ns": np.int64(ABSENT_NS),
                "trouble_ns": np.int64(ABSENT_NS),
                "slept_ns": np.int64(ABSENT_NS),
                "doubt_ns": np.int64(ABSENT_NS),
                "awake_ns": np.int64(0),
                "awake_then_ns": np.zeros(_HISTORY, np.int64),
                "stale": np.bool_(False),
            }
        )
        """Per host: last message, bus time, and the watermark's progress then; when it made its last liveness
        statement, the limit that this says it judges by (0: none), and whether it was the last one; up to when it has
        reported (`bustime`); usual gap between messages; how late its news came at worst lately, and when; when it was
        last late; when it last was unheard for long, or may have been asleep; time awake so far, and that at each of
        the last boundaries (a ring); whether it was stale when last asked."""
        self.watermark = Watermark()
        self.ports = Table({"state": np.uint8(0), "at_ns": np.int64(ABSENT_NS), "since_at_ns": np.int64(ABSENT_NS)})
        """Per NIC: its last port state (index into `PORT_STATES`), when it was read and since when, bus time."""
        self.boots: dict[str, str] = {}

    def ensure(self) -> None:
        """Have a row for every host and NIC."""
        self.hosts.ensure(len(self.sessions.hosts))
        self.ports.ensure(len(self.sessions.nics))

    def take_message(self, host: str, at_ns: int, boot_id: str) -> bool:
        """An agent published; True when it is a new run of it."""
        number = self.sessions.hosts.add(host)
        self.ensure()
        if number < 0:
            return False
        before_ns = int(self.hosts["received_at_ns"][number])
        if before_ns != ABSENT_NS:
            gap_ns = int(self.hosts["gap_ns"][number])
            self.hosts["awake_ns"][number] += min(at_ns - before_ns, _longest_awake_ns(gap_ns))
            patience_ns = max(_UNHEARD_NS, 4 * gap_ns)
            if at_ns - before_ns > patience_ns:
                progress_ns = self.watermark.progress_ns - int(self.hosts["progress_ns"][number])
                why = "slept_ns" if progress_ns > patience_ns - _COARSE_NS else "doubt_ns"
                self.hosts[why][number] = at_ns
            self.hosts["gap_ns"][number] = (7 * gap_ns + min(at_ns - before_ns, 2 * NS_PER_S)) // 8
        self.hosts["received_at_ns"][number] = at_ns
        self.hosts["progress_ns"][number] = self.watermark.progress_ns
        if not boot_id or self.boots.get(host) == boot_id:
            return False
        before = self.boots.get(host)
        self.boots[host] = boot_id
        return before is not None

    def knows_run(self, host: str, boot_id: str) -> bool:
        """Whether a message of this run of a host's agent is nothing new: no first message, no restart."""
        return self.sessions.hosts.find(host) >= 0 and (not boot_id or self.boots.get(host) == boot_id)

    def take_report(self, host: str, until_ns: int, at_ns: int, *, liveness: bool = False) -> None:
        """An agent has reported, at `at_ns`, what it saw up to `until_ns`, both bus time; `liveness`: by a statement.

        Late is what comes later than all agents' reports together come; a gap in what it saw is a time it slept.
        """
        number = self.sessions.hosts.find(host)
        if number < 0:
            return
        t = self.hosts
        if liveness:
            t["liveness_said_ns"][number] = until_ns
        before_ns = int(t["reported_ns"][number])
        if before_ns != ABSENT_NS and until_ns - before_ns > max(_UNHEARD_NS, 4 * int(t["gap_ns"][number])):
            t["slept_ns"][number] = at_ns
        t["reported_ns"][number] = max(before_ns, until_ns)
        late_ns = at_ns - int(t["reported_ns"][number]) - self.watermark.excused_ns()
        if late_ns > _LATE_NS:
            self._note_late(number, late_ns, at_ns)

    def take_limit(self, host: str, limit_ns: object) -> None:
        """An agent's liveness statement said by which limit it calls a path silent; what is none: it did not."""
        number = self.sessions.hosts.find(host)
        if number >= 0:
            said = isinstance(limit_ns, int) and _LEAST_LIMIT_NS <= limit_ns <= _MOST_LIMIT_NS
            self.hosts["limit_ns"][number] = limit_ns if said else 0

    def take_stopping(self, host: str, stopping: object) -> None:
        """An agent's liveness statement said whether it is its last one; what is no truth value: it did not."""
        number = self.sessions.hosts.find(host)
        if number >= 0:
            said = (_STOPPING if stopping else _GOES_ON) if isinstance(stopping, bool) else _UNSAID
            self.hosts["stopping"][number] = said

    def limits_ns(self, expected_ns: int) -> Ints:
        """(hosts,) after how long without an answer each agent calls an ordinary path silent, or three intervals.

        One that does not say goes by `expected_ns`, or by `UNSAID_LIMIT_NS` if that is longer: a limit taken too short
        would let a path that nobody has missed yet prove that what it crosses works.
        """
        said_ns = self.hosts["limit_ns"]
        result: Ints = np.where(said_ns > 0, said_ns, max(expected_ns, UNSAID_LIMIT_NS))
        return result

    def _note_late(self, number: int, late_ns: int, at_ns: int) -> None:
        t = self.hosts
        t["trouble_ns"][number] = at_ns
        if late_ns >= t["late_ns"][number] or at_ns - t["late_at_ns"][number] > _LATE_MEMORY_NS:
            t["late_ns"][number], t["late_at_ns"][number] = late_ns, at_ns

    def take_together(self, hosts: Ints, until_ns: Ints, at_ns: Ints) -> Bools:
        """One message of each of these hosts, of runs that are known: `take_message`, `take_report`, `may_have_slept`.

        Parameters
        ----------
        hosts : (n,) int64
            Their numbers, no two alike.
        until_ns : (n,) int64
            Up to when each has reported; `ABSENT_NS`: its message has no rows.
        at_ns : (n,) int64
            When each message entered the bus.

        Returns
        -------
        (n,) bool
            Which of them may have slept.
        """
        self.ensure()
        self._receive(hosts, at_ns)
        t, has = self.hosts, until_ns != ABSENT_NS
        before_ns = t["reported_ns"][hosts]
        again = has & (before_ns != ABSENT_NS)
        slept = again & (np.where(again, until_ns - before_ns, 0) > np.maximum(_UNHEARD_NS, 4 * t["gap_ns"][hosts]))
        t["slept_ns"][hosts[slept]] = at_ns[slept]
        t["reported_ns"][hosts] = np.maximum(before_ns, until_ns)
        late_ns = np.where(has, at_ns - t["reported_ns"][hosts], 0) - self.watermark.excused_ns()
        for i in np.flatnonzero(late_ns > _LATE_NS).tolist():
            self._note_late(int(hosts[i]), int(late_ns[i]), int(at_ns[i]))
        result: Bools = (t["slept_ns"][hosts] != ABSENT_NS) | (t["doubt_ns"][hosts] != ABSENT_NS)
        return result

    def _receive(self, hosts: Ints, at_ns: Ints) -> None:
        """`take_message` of hosts, no two alike, whose runs are known."""
        t, progress_ns = self.hosts, self.watermark.progress_ns
        before_ns, gap_ns = t["received_at_ns"][hosts], t["gap_ns"][hosts]
        received = before_ns != ABSENT_NS
        since_ns = np.where(received, at_ns - before_ns, 0)
        t["awake_ns"][hosts] += np.minimum(since_ns, np.clip(3 * gap_ns, _LEAST_GAP_NS, _MOST_GAP_NS))
        patience_ns = np.maximum(_UNHEARD_NS, 4 * gap_ns)
        unheard = since_ns > patience_ns
        if unheard.any():
            went_on = progress_ns - t["progress_ns"][hosts] > patience_ns - _COARSE_NS
            for why, which in (("slept_ns", unheard & went_on), ("doubt_ns", unheard & ~went_on)):
                t[why][hosts[which]] = at_ns[which]
        t["gap_ns"][hosts] = np.where(received, (7 * gap_ns + np.minimum(since_ns, 2 * NS_PER_S)) // 8, gap_ns)
        t["received_at_ns"][hosts], t["progress_ns"][hosts] = at_ns, progress_ns

    def troubled(self, now_ns: int) -> Bools:
        """(hosts,) agents whose news is late or missing, or was a moment ago: what they lose or delay proves nothing.

        A starved agent neither reads its sockets nor answers in time; its peers' probes suffer as its own do.
        """
        t = self.hosts
        patience_ns = np.maximum(_UNHEARD_NS, 4 * t["gap_ns"])
        mute = (t["received_at_ns"] != ABSENT_NS) & (now_ns - t["received_at_ns"] > patience_ns)
        doubtful = (t["doubt_ns"] != ABSENT_NS) & (now_ns - t["doubt_ns"] <= _DOUBT_NS)
        result: Bools = mute | doubtful
        for why in ("trouble_ns", "slept_ns"):
            result |= (t[why] != ABSENT_NS) & (now_ns - t[why] <= _TROUBLE_NS)
        return result

    def may_have_slept(self, host: str) -> bool:
        """Whether an agent was unheard for long, and its rows have not shown yet that it was awake."""
        number = self.sessions.hosts.find(host)
        slept = number >= 0 and (self.hosts["slept_ns"][number], self.hosts["doubt_ns"][number]) != (ABSENT_NS,) * 2
        return bool(slept)

    def note_awake(self, host: str) -> None:
        """An agent's rows show that it sent probes all along: what was not received of it was shed, not slept."""
        number = self.sessions.hosts.find(host)
        if number >= 0:
            self.hosts["slept_ns"][number] = self.hosts["doubt_ns"][number] = ABSENT_NS

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
        cap_ns = np.clip(3 * self.hosts["gap_ns"], _LEAST_GAP_NS, _MOST_GAP_NS)  # as `_longest_awake_ns`
        since_ns = np.where(take_message == ABSENT_NS, 0, now_ns - take_message)
        result: Ints = self.hosts["awake_ns"] + np.minimum(since_ns, cap_ns)
        return result

    def mark(self, tick: int) -> None:
        """Move the watermark to this 100 ms boundary, and remember how long every agent has been awake by it."""
        self.watermark.advance(self.hosts["reported_ns"], tick * TICK_NS)
        self.hosts["awake_then_ns"][:, tick % _HISTORY] = self.awake(tick * TICK_NS)

    def awake_since(self, hosts: Ints, since_ns: Ints, now_ns: int) -> Ints:
        """How long each of these hosts (−1: one without an agent) was awake between `since_ns` and now."""
        tick = now_ns // TICK_NS
        then = np.clip(-(-since_ns // TICK_NS), tick - _HISTORY + 1, tick) % _HISTORY
        passed: Ints = np.append(self.awake(now_ns), 0)[hosts] - self.hosts["awake_then_ns"][hosts, then]
        unheard = np.append(self.hosts["received_at_ns"] == ABSENT_NS, True)[hosts]
        return np.where(unheard, now_ns - since_ns, passed)

    def stale(self, now_ns: int, limit_ns: int) -> Bools:
        """(hosts,) True where an agent published before and then nothing for `limit_ns`, while others went on.

        One whose news was late lately gets twice that lateness on top: it is probably late again. Where nobody goes on,
        all are stale after three times the limit. One that is stale and heard again stays so while it tells of what
        happened longer ago than the limit; if its first messages tell of nothing, for the limit.
        """
        t = self.hosts
        late_ns = np.where(now_ns - t["late_at_ns"] <= _LATE_MEMORY_NS, np.minimum(t["late_ns"], _MOST_LATE_NS), 0)
        late_ns[t["late_at_ns"] == ABSENT_NS] = 0
        patience_ns, at = limit_ns + 2 * late_ns, t["received_at_ns"]
        result: Bools = (at != ABSENT_NS) & (now_ns - at > patience_ns)
        if result.any() and not self.watermark.stands(now_ns, _STANDS_TIMES * limit_ns):
            result &= self.watermark.progress_ns - t["progress_ns"] > patience_ns - _COARSE_NS
        late = np.zeros_like(result)
        for why in ("trouble_ns", "slept_ns", "doubt_ns"):
            late |= (t[why] != ABSENT_NS) & (now_ns - t[why] <= limit_ns)
        result |= t["stale"] & late & (self.reached_ns(now_ns) - t["reported_ns"] > limit_ns)
        t["stale"][:] = result
        return result

    def broken_off(self, now_ns: int, stale: Bools) -> int:
        """The host whose agent, not `stale` yet (hosts,), broke off while all others went on; −1: there is none.

        That is one that would have said a last word, and whose news was not late within the last minute. Where several
        break off at once, what they share did: the bus, a process that serves them all, their rack.
        """
        t = self.hosts
        patience_ns = np.maximum(_UNHEARD_NS, 4 * t["gap_ns"])
        mute = ~stale & (t["received_at_ns"] != ABSENT_NS) & (now_ns - t["received_at_ns"] > patience_ns)
        if np.count_nonzero(mute) != 1:
            return -1
        host = int(mute.argmax())
        went_on_ns = self.watermark.progress_ns - int(t["progress_ns"][host])
        unsteady_ns = max(int(t[why][host]) for why in ("late_at_ns", "slept_ns", "doubt_ns"))
        steady = unsteady_ns == ABSENT_NS or now_ns - unsteady_ns > _LATE_MEMORY_NS
        known = steady and t["stopping"][host] == _GOES_ON
        return host if known and went_on_ns > int(patience_ns[host]) - _COARSE_NS else -1

    def reached_ns(self, now_ns: int) -> int:
        """The instant with which the age of reports is compared: `now_ns`, less what all of them are late together."""
        return now_ns - self.watermark.lag_ns(now_ns)

    def states_liveness(self, now_ns: int, limit_ns: int) -> Bools:
        """(hosts,) True where an agent's own liveness statements are fresh."""
        said_ns = self.hosts["liveness_said_ns"]
        result: Bools = (said_ns != ABSENT_NS) & (self.reached_ns(now_ns) - said_ns <= limit_ns)
        return result

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "hosts": self.hosts.snapshot(),
            "ports": self.ports.snapshot(),
            "boots": dict(sorted(self.boots.items())),
            "watermark": self.watermark.snapshot(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.hosts.restore(state["hosts"])
        self.ports.restore(state["ports"])
        self.boots = dict(state["boots"])
        self.watermark.restore(state["watermark"])


def _longest_awake_ns(gap_ns: int) -> int:
    """So much of the time since an agent's last message it counts as awake; `gap_ns`: usual between messages."""
    return min(max(3 * gap_ns, _LEAST_GAP_NS), _MOST_GAP_NS)
