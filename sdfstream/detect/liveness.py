"""Which paths answer: from agents' own statements, and from probe rows where there are none.

Two witnesses watch every session. Its **sender** sees whether answers come back (round trip); its **reflector** sees
whether probes still arrive (forward direction only). Together they separate the directions: sender silent and reflector
alive is a broken reverse direction, both silent a broken forward one. Statements are trusted while their agent's
heartbeats are fresh; without them the rows decide: at least three time-outs after the last answer, and no answer for
the limit.

An agent goes by a limit of its own, which its statements name (`Presence.limits_ns`): what an *alive* path proves ends
that long before the last report, and what a silent one shows is as old. `DetectConfig.liveness_ms` is for rows alone.

Instants are bus time: what agents' clocks say is dated back to when it was seen, however late it came (`bustime`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.presence import UNSAID_LIMIT_NS, Presence
from sdfstream.detect.sessions import Sessions, session_key
from sdfstream.errors import FormatError
from sdfstream.numeric.table import Table
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S
from sdfstream.stats import Counters

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NONE, ALIVE, SILENT, UNKNOWN = 0, 1, 2, 3
_STATES = {"alive": ALIVE, "silent": SILENT, "unknown": UNKNOWN}

SLACK_NS = 150 * NS_PER_MS
"""How much later than it happened something may reach the bus: one flush of an agent and half as much again."""
_LONGEST_SLACK_NS = 2 * NS_PER_S
_FAST_NS, _OPEN_NS = 100 * NS_PER_MS, 200 * NS_PER_MS
"""Paths that are silent by less than the first are probed every 30 ms or sooner; by the second after a path's last
answer every agent has flushed rows of what else has passed since."""
_RESTART = 4096
"""A sequence number this far back is a sender that started afresh, not reordering."""
_TIMEOUTS = 3
_LONGEST_NS = 1 << 58
"""Nine years: an age or an interval is not taken for more, so that sums stay within 64 bits."""
_PROMPT_NS = 30 * NS_PER_MS


@dataclass(frozen=True, slots=True)
class Sightings:
    """The state of all sessions at one instant; every array is (sessions,)."""

    silent: Bools
    """The round trip fails."""
    since_ns: Ints
    """Last sign of a working round trip of the silent ones, bus time."""
    limit_ns: Ints
    """After how long without an answer each was called silent: its agent's limit, less of fast probes; or detect's."""
    slack_ns: Ints
    """How far beyond `since_ns` its fault may lie: two intervals of fast probes, `SLACK_NS`, or one of slow ones."""
    good_round_ns: Ints
    """The round trip was seen to work at this bus time or later; `ABSENT_NS`: never."""
    good_fwd_ns: Ints
    """The forward direction was seen to work at this bus time or later."""
    back_ns: Ints
    """Since when an alive one's round trip works again after silence, bus time; `ABSENT_NS`: it was never silent."""
    tried_ns: Ints
    """Until here a silent one is known to have failed: one probe interval before what its sender's agent has reported.
    It may work since; its next probe tells."""
    reported_round_ns: Ints
    """When a working round trip was last reported (rows may come late: this is for freshness, not for blame)."""
    reported_fwd_ns: Ints
    """The same of the forward direction."""
    reflector_silent: Bools
    """A fresh far end says that probes no longer arrive."""
    sender_unknown: Bools
    """A fresh sender does not know (its NIC is absent or cannot send)."""
    reflector_unknown: Bools
    sender_alive: Bools
    """A fresh sender says that answers come."""
    reflector_alive: Bools
    """A fresh far end says that probes arrive."""

    def young(self, now_ns: int) -> Bools:
        """(sessions,) Silent by fast probes, and so lately that not all is known yet of what else has passed since."""
        result: Bools = self.silent & (self.limit_ns < _FAST_NS) & (now_ns - self.since_ns < _OPEN_NS)
        return result


class SessionLiveness:
    """State of every session by its two witnesses and its rows."""

    def __init__(self, config: DetectConfig, sessions: Sessions, presence: Presence, counters: Counters) -> None:
        self.config, self.sessions, self.presence, self.counters = config, sessions, presence, counters
        stamp = np.int64(ABSENT_NS)
        self.table = Table(
            {
                "first_ns": stamp,
                "row_ns": stamp,
                "ok_ns": stamp,
                "ok_seen_ns": stamp,
                "ok_seq": np.int64(-1),
                "lost_seq": np.int64(-1),
                "lost": np.int64(0),
                "snd_state": np.uint8(NONE),
                "snd_since_ns": stamp,
                "snd_age_ns": np.int64(0),
                "back_ns": stamp,
                "rfl_state": np.uint8(NONE),
                "rfl_since_ns": stamp,
                "interval_ns": np.int64(0),
                "rfl_interval_ns": np.int64(0),
                "sent_ns": stamp,
                "sent_seq": np.int64(-1),
                "ever": np.bool_(False),
            }
        )

    def take_rows(self, slots: Ints, seq: Ints, t1_ns: Ints, answered: Bools, seen_ns: Ints, at_ns: Ints) -> Ints:
        """Take probe rows: session, sequence number, time of sending (sender's clock), whether an answer came.

        `seen_ns` is when the exchange ended, and `at_ns` of when its message speaks, bus time (see `bustime`). Rows of
        one session are of one message. Only rows that came count as time-outs: what was shed on its way may have been
        answered. Returns, at the first row of each session, how many probes it sent since its last rows; else 0.
        """
        due = self._intervals(slots, seq, t1_ns)
        t = self.table
        t["row_ns"][slots] = at_ns
        new = t["first_ns"][slots] == ABSENT_NS
        if new.any():
            t["first_ns"][slots[new]] = at_ns[new]
        again = seq < np.maximum(t["ok_seq"][slots], t["lost_seq"][slots]) - _RESTART
        if again.any():
            t["ok_seq"][slots[again]] = -1
            t["lost_seq"][slots[again]] = -1
        ok, lost = slots[answered], slots[~answered]
        t["ok_ns"][ok] = at_ns[answered]
        np.maximum.at(t["ok_seen_ns"], ok, seen_ns[answered])
        t["ever"][ok] = True
        np.maximum.at(t["ok_seq"], ok, seq[answered])
        t["lost"][ok[t["ok_seq"][ok] > t["lost_seq"][ok]]] = 0
        if lost.size:
            np.maximum.at(t["lost_seq"], lost, seq[~answered])
            np.add.at(t["lost"], lost, seq[~answered] > t["ok_seq"][lost])
        return due

    def _intervals(self, slots: Ints, seq: Ints, t1_ns: Ints) -> Ints:
        """Follow every session's probe interval: time between two probes over their sequence numbers.

        Returns, at the first row of each session, by how many sequence numbers it went on.
        """
        t = self.table
        before = t["sent_seq"][slots]
        ahead = seq - before
        passed_ns = t1_ns - t["sent_ns"][slots]
        sane = (t["sent_ns"][slots] != ABSENT_NS) & (ahead > 0) & (ahead < _RESTART) & (passed_ns > 0)
        each_ns = passed_ns[sane] // ahead[sane]
        old_ns = t["interval_ns"][slots[sane]]
        t["interval_ns"][slots[sane]] = np.where(old_ns > 0, (7 * old_ns + each_ns) // 8, each_ns)
        t["sent_ns"][slots], t["sent_seq"][slots] = t1_ns, seq
        on = t["sent_seq"][slots] - before
        on[(before < 0) | (np.abs(on) > _RESTART)] = 1
        if not (ahead == on).all():  # a session twice
            again = np.ones(slots.size, np.bool_)
            again[np.unique(slots, return_index=True)[1]] = False
            on[again] = 0
        return on

    def sent_all_along(self, slots: Ints, seq: Ints, t1_ns: Ints) -> bool:
        """Whether sequence numbers went on with time since these sessions' last rows: rows were shed, probes sent."""
        t = self.table
        ahead, passed_ns = seq - t["sent_seq"][slots], t1_ns - t["sent_ns"][slots]
        known = (t["sent_ns"][slots] != ABSENT_NS) & (ahead > 0) & (passed_ns > 0) & (t["interval_ns"][slots] > 0)
        if not known.any():
            return False
        sent_ns = ahead[known] * t["interval_ns"][slots[known]]
        return 2 * int(np.count_nonzero(sent_ns > passed_ns[known] * 0.7)) > int(known.sum())

    def restarted(self, host: str) -> None:
        """A host's agent is a new run: its sequence numbers start again."""
        number = self.sessions.hosts.find(host)
        mine = self.sessions.nic_host[self.sessions.table["src"]] == number
        mine &= self.sessions.table["src"] >= 0
        self.table["ok_seq"][mine] = -1
        self.table["lost_seq"][mine] = -1

    def take_statement(self, data: Mapping[str, Any], said_ns: int, at_ns: int) -> None:
        """Take one ``sdf.raw.liveness.v1`` payload, said at `said_ns`; what cannot be read is counted and left out."""
        changes = data.get("changes")
        if not isinstance(changes, Sequence):
            raise FormatError("liveness-changes", type(changes).__name__)
        stated: dict[str, list[Any]] = {"sender": [], "reflector": []}
        for change in changes:
            rows = stated.get(str(change.get("role"))) if isinstance(change, Mapping) else None
            row = self._read(change, data.get("seen_at_ns")) if rows is not None else None
            if rows is None or row is None:
                self.counters.add("refused", "liveness-change")
            else:
                rows.append(row)
        for role, prefix in (("sender", "snd"), ("reflector", "rfl")):
            if stated[role]:
                self._store(prefix, stated[role], said_ns, at_ns)

    @staticmethod
    def _read(
        change: Mapping[str, Any], seen_ns: object
    ) -> tuple[tuple[str, str, str, int, int], int, int, int] | None:
        """(session key, state, age of the state, probe interval) of one statement; None when it makes no sense."""
        try:
            key = session_key(change)
            state = _STATES[change["state"]]
            interval_ns = int(change.get("interval_ns") or 0)
            since = change.get("since_at_ns")
            age_ns = int(seen_ns) - int(since) if since is not None and seen_ns is not None else 0  # type: ignore[call-overload]
            if state == SILENT:  # "since" may name the verdict; the missed probes reach back to the last good one
                age_ns = max(age_ns, int(change.get("missed") or 0) * interval_ns)
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return key, state, min(max(0, age_ns), _LONGEST_NS), min(max(0, interval_ns), _LONGEST_NS)

    def _store(self, prefix: str, rows: list[Any], said_ns: int, at_ns: int) -> None:
        slots = self.sessions.of_names([r[0] for r in rows], at_ns)
        self.counters.add("refused", "paths-full", int((slots < 0).sum()))
        self.table.ensure(self.sessions.count)
        rest = np.array([r[1:] for r in rows], np.int64)[slots >= 0]
        slots = slots[slots >= 0]
        t = self.table
        if prefix == "snd":  # how old silence was when it was first stated: the limit that the agent goes by
            first = (rest[:, 0] == SILENT) & (t["snd_state"][slots] != SILENT)
            t["snd_age_ns"][slots[first]] = rest[first, 1]
            again = (rest[:, 0] == ALIVE) & (t["snd_state"][slots] == SILENT)
            t["back_ns"][slots[again]] = said_ns - rest[again, 1]
        t[f"{prefix}_state"][slots] = rest[:, 0]
        t[f"{prefix}_since_ns"][slots] = said_ns - rest[:, 1]
        interval = "interval_ns" if prefix == "snd" else "rfl_interval_ns"
        t[interval][slots] = np.where(rest[:, 2] > 0, rest[:, 2], t[interval][slots])
        first = slots[t["first_ns"][slots] == ABSENT_NS]
        t["first_ns"][first] = at_ns
        t["ever"][slots[rest[:, 0] == ALIVE]] = True

    def look(self, now_ns: int) -> Sightings:
        """What is known of every session at `now_ns`."""
        t, table = self.table, self.sessions.table
        stale_ns = int(self.config.agent_stale_s * NS_PER_S)
        speaks = np.append(self.presence.states_liveness(now_ns, stale_ns), False)
        host = np.append(self.sessions.nic_host, -1)
        sender, reflector = speaks[host[table["src"]]], speaks[host[table["dst"]]]
        stated = sender & (t["snd_state"] != NONE)
        limit_ns = np.maximum(self.config.liveness_ns, 3 * t["interval_ns"])
        limits_ns = np.append(self.presence.limits_ns(self.config.liveness_ns), UNSAID_LIMIT_NS)
        sender_ns = np.maximum(limits_ns[host[table["src"]]], 3 * t["interval_ns"])
        own_ns = np.where(
            stated & (t["snd_state"] == SILENT), np.clip(t["snd_age_ns"], 3 * t["interval_ns"], sender_ns), limit_ns
        )
        reached_ns = self.presence.reached_ns(now_ns)
        begun = t["ever"] | (now_ns - t["first_ns"] >= int(self.config.startup_grace_s * NS_PER_S))
        begun &= t["first_ns"] != ABSENT_NS

        fresh_rows = (t["row_ns"] != ABSENT_NS) & (reached_ns - t["row_ns"] <= stale_ns)
        timeouts = np.minimum(t["lost_seq"] - t["ok_seq"], t["lost"])
        reference_ns = np.where(t["ok_ns"] == ABSENT_NS, t["first_ns"], t["ok_ns"])
        by_rows = fresh_rows & (timeouts >= _TIMEOUTS) & (reached_ns - reference_ns >= limit_ns + SLACK_NS)
        silent = begun & np.where(stated, t["snd_state"] == SILENT, by_rows)
        seen_ns = np.where(t["ok_seen_ns"] == ABSENT_NS, t["first_ns"], t["ok_seen_ns"])
        since_ns = np.where(stated, t["snd_since_ns"], seen_ns)

        until = np.append(self.presence.hosts["reported_ns"], ABSENT_NS)
        alive, arrives = stated & (t["snd_state"] == ALIVE), reflector & (t["rfl_state"] == ALIVE)
        proven_ns = until[host[table["src"]]] - sender_ns - SLACK_NS
        good_round_ns = np.where(alive, np.maximum(t["ok_seen_ns"], proven_ns), t["ok_seen_ns"])
        # a reflector goes by the interval it has seen, and by a long one until it has seen any (0)
        seen_ns = np.where(t["rfl_interval_ns"] > 0, t["rfl_interval_ns"], NS_PER_S)
        proven_ns = until[host[table["dst"]]] - np.maximum(limits_ns[host[table["dst"]]], 3 * seen_ns) - SLACK_NS
        good_fwd_ns = np.where(arrives, np.maximum(good_round_ns, proven_ns), good_round_ns)
        return Sightings(
            silent=silent,
            since_ns=since_ns,
            limit_ns=own_ns,
            slack_ns=_slack_ns(t["interval_ns"]),
            good_round_ns=good_round_ns,
            good_fwd_ns=good_fwd_ns,
            back_ns=np.where(alive, t["back_ns"], ABSENT_NS),
            tried_ns=until[host[table["src"]]] - np.where(t["interval_ns"] > 0, t["interval_ns"], NS_PER_S),
            reported_round_ns=np.where(alive, np.maximum(good_round_ns, t["ok_ns"]), t["ok_ns"]),
            reported_fwd_ns=np.where(arrives, np.maximum(good_fwd_ns, t["ok_ns"]), t["ok_ns"]),
            reflector_silent=reflector & (t["rfl_state"] == SILENT),
            sender_unknown=sender & (t["snd_state"] == UNKNOWN),
            reflector_unknown=reflector & (t["rfl_state"] == UNKNOWN),
            sender_alive=alive,
            reflector_alive=arrives,
        )


def _slack_ns(interval_ns: Ints) -> Ints:
    """How far a session's fault may lie behind its last answer: the probe after it was lost, one interval later."""
    slack_ns = np.minimum(SLACK_NS, 2 * interval_ns + _PROMPT_NS)
    slack_ns = np.maximum(slack_ns, np.minimum(interval_ns + _PROMPT_NS, _LONGEST_SLACK_NS))
    return np.where(interval_ns > 0, slack_ns, SLACK_NS)
