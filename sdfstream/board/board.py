"""The state now, from the messages on the bus: the read model of `top`, `status` and `findings`.

Sans-IO: `take` reads messages, `view` gives one plain JSON object. Two rules: a NIC or path without messages for a
while is unknown, never healthy; and memory is bounded, what is shed is counted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from sdfstream.board.fabric_board import FabricBoard
from sdfstream.board.finding_notes import FindingNotes
from sdfstream.board.lateness import HostLateness
from sdfstream.board.mesh import MeshBoard
from sdfstream.board.nic_grid import STATES, grid
from sdfstream.board.nic_state import NicState
from sdfstream.board.notes_text import silenced_count
from sdfstream.board.paths import STALE_NS, PathTable
from sdfstream.board.topic_rates import TopicRate
from sdfstream.errors import FormatError
from sdfstream.records import topics
from sdfstream.records.bounds import is_known
from sdfstream.records.fabric import host_of
from sdfstream.records.hostclock import UTC
from sdfstream.records.mesh import HOST_TYPE
from sdfstream.records.message import Event, Message
from sdfstream.records.switches import is_switch
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

MOST_HOSTS: Final = 65_536
MOST_NICS: Final = 524_288
MOST_PORTS: Final = 64
"""Of one NIC."""
MOST_RESOLVED: Final = 1000
"""Resolved findings remembered; older ones are in the archive."""
MOST_SILENT: Final = 50_000
"""Silent paths remembered per host."""
_PATH_FIELDS: Final = ("src", "dst", "transport", "path", "dscp")
_LOST: Final = frozenset({"refused", "shed", "dropped", "late", "lost"})
_ASIDE: Final = frozenset({"set-aside", "tick-raised", "finish-raised", "begun-anew"})
"""Where a stage's code raised: messages set aside, steps left out, states lost."""


class Board:
    """The live state. `take` messages as they come; `view` whenever somebody asks."""

    reads: tuple[str, ...] = tuple(t.name for t in topics.ARCHIVED.values() if t is not topics.PROBE)

    def __init__(self) -> None:
        self.counters = Counters("board")
        self.paths = PathTable(self.counters)
        self._nics: dict[str, NicState] = {}
        self._clocks: dict[str, dict[str, Any]] = {}
        self._findings: dict[str, dict[str, Any]] = {}
        self._resolved: dict[str, dict[str, Any]] = {}
        self._hosts: dict[str, int] = {}
        """When each host's last message, or the last delays from its probes, would have come on time: bus time."""
        self._lateness = HostLateness()
        self._taken_at_ns = 0
        """Bus time of the last message taken."""
        self._silent: dict[str, set[tuple[Any, ...]]] = {}
        """Paths that each host, as their sender, last reported silent."""
        self._rates: dict[str, TopicRate] = {}
        self.mesh = MeshBoard()
        self.fabric = FabricBoard(self.counters)
        self.notes = FindingNotes(self.counters)
        self._takers = {
            topics.OWD.name: self._take_owd,
            topics.CLOCK.name: self._take_clocks,
            topics.PORT.name: self._take_ports,
            topics.LIVENESS.name: self._take_liveness,
            topics.NIC.name: self._take_nic,
            topics.FINDING.name: self._take_finding,
            topics.TOPOLOGY.name: self._take_topology,
            topics.MESH.name: self._take_mesh,
            topics.OVERRIDE.name: self.notes.take,
            topics.OUTCOME.name: self.notes.take,
        }

    def take(self, messages: Iterable[Message]) -> None:
        """Take messages; one that cannot be read is counted and changes nothing else. Switches' are left out."""
        for message in (m for m in messages if not is_switch(m.boot_id)):
            self._taken_at_ns = message.bus_at_ns
            self._rates.setdefault(message.topic, TopicRate()).add(message.rows, message.bus_at_ns)
            if message.topic.startswith("sdf.raw.") or message.topic == topics.OWD.name:
                self._note_host(message)
            taker = self._takers.get(message.topic)
            if taker is None:
                continue
            if isinstance(message.body, Event) and not is_known(message.topic, message.body.type):
                self.counters.add("ignored", "type-unknown")  # of no shape that was checked
                continue
            try:
                taker(message)
            except MemoryError:
                raise
            except Exception as error:  # whatever a message says, the others are taken
                self.counters.add("refused", f"{message.topic}.{getattr(error, 'reason', type(error).__name__)}")

    def view(
        self,
        now_ns: int,
        *,
        counters: Mapping[str, int] | None = None,
        lag: Mapping[str, int] | None = None,
        run: Mapping[str, Any] | None = None,
        known_ns: int | None = None,
        hosts: int = 64,
        worst: int = 20,
        full: bool = False,
    ) -> dict[str, Any]:
        """The whole board as plain JSON.

        Parameters
        ----------
        now_ns : int, ns since the Unix epoch, bus time
        counters : mapping of dotted name to count, optional
            Of the whole process.
        lag : mapping of reader to messages not read yet, optional
        run : mapping, optional
            The pipeline itself (mode, started_at_ns, data folder).
        known_ns : int, optional
            Bus time of which the findings speak (`known_ns`); None: now.
        hosts : int
            Rows of the NIC grid; further hosts are summed up.
        worst : int
            Number of paths and clocks listed.
        full : bool
            List every NIC as well.
        """
        nics, opened = self.nics(now_ns), self.findings(open_only=True, now_ns=now_ns)
        board = {
            "at_ns": now_ns,
            "known_at_ns": now_ns if known_ns is None else known_ns,
            "run": dict(run or {}),
            "nics": {state: sum(n["state"] == state for n in nics) for state in STATES} | {"known": len(nics)},
            "grid": grid(nics, hosts),
            "paths": self.paths.view(now_ns + self.late_ns(now_ns), worst) | {"silent": self._silent_paths(now_ns)},
            "clocks": self._clocks_view(now_ns, worst),
            "mesh": self.mesh.view(),
            "findings": {"open": opened, "silenced": silenced_count(opened), "resolved": len(self._resolved)},
            "pipeline": self._pipeline_view(now_ns, counters or {}, lag or {}),
        }
        if full:
            board["nic_list"] = sorted(nics, key=lambda n: n["nic"])
        return board

    def nics(self, now_ns: int, only: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Every NIC that is known; with `only`, those of them that have these names."""
        known = self._nics.values() if only is None else [self._nics[nic] for nic in only if nic in self._nics]
        return [self._nic_view(nic, now_ns) for nic in known]

    def age_ns(self, now_ns: int) -> int | None:
        """Age of the newest that any host reported; None: none has."""
        return min((now_ns - at_ns for at_ns in self._hosts.values()), default=None)

    def known_ns(self, now_ns: int, reached_ns: int | None = None, *, behind: bool = False) -> int:
        """Bus time of which the board speaks: as far as all was read, less what half of the hosts are late.

        Parameters
        ----------
        now_ns : int
            Bus time now.
        reached_ns : int, optional
            Bus time that detect has reached; None: not known, taken for now.
        behind : bool
            Messages wait for the board itself.
        """
        read_ns = min(now_ns, now_ns if reached_ns is None else reached_ns)
        read_ns = min(read_ns, self._taken_at_ns) if behind and self._taken_at_ns else read_ns
        return read_ns - self.late_ns(now_ns)

    def late_ns(self, now_ns: int) -> int:
        """How late the messages of half of the hosts are: what came just now speaks of so long ago."""
        there = [host for host, at_ns in self._hosts.items() if now_ns - at_ns - self._lateness.of(host) <= STALE_NS]
        return self._lateness.of_half(there)

    def pipeline(self, now_ns: int, lag: Mapping[str, int]) -> dict[str, Any]:
        """Rates of the topics, `lag` of the readers, hosts, and what the board itself lost."""
        return self._pipeline_view(now_ns, {}, lag)

    def findings(self, *, open_only: bool = False, now_ns: int | None = None) -> list[dict[str, Any]]:
        """Findings as last stated, the newest first; with `now_ns` (bus time) also what operators say of them then."""
        known = [*self._findings.values(), *(() if open_only else self._resolved.values())]
        known = known if now_ns is None else self.notes.mark(known, now_ns)
        return sorted(known, key=lambda f: (-int(f.get("since_at_ns") or 0), str(f["id"])))

    def resolved_at_ns(self, key: str) -> int | None:
        """When the finding of id `key` was resolved; None: it is open, or nothing of it is remembered."""
        found = self._resolved.get(key, {}).get("resolved_at_ns")
        return found if isinstance(found, int) else None

    def _note_host(self, message: Message) -> None:
        """A host spoke. Beyond `MOST_HOSTS` the one unheard of for longest is forgotten: made-up ones speak once."""
        if message.topic == topics.LIVENESS.name and isinstance(message.body, Event):
            self._lateness.take(message.key, message.body.data.get("seen_at_ns"), message.bus_at_ns)
        self._hosts.pop(message.key, None)
        self._hosts[message.key] = message.bus_at_ns - self._lateness.of(message.key)
        if len(self._hosts) > MOST_HOSTS:
            self._hosts.pop(forgotten := next(iter(self._hosts)))
            self._silent.pop(forgotten, None)
            self.counters.add("shed", "host")

    def _take_owd(self, message: Message) -> None:
        self.paths.take(_batch(message), message.bus_at_ns)

    def _take_clocks(self, message: Message) -> None:
        for row in _batch(message).to_pylist():
            if row["kind"] == "causal":
                self._clocks[row["clock"]] = row | {"seen_at_ns": message.bus_at_ns}

    def _take_ports(self, message: Message) -> None:
        batch = _batch(message)
        names = [batch.column(name).to_pylist() for name in ("nic", "port", "state")]
        for nic, port, state in zip(*names, strict=True):
            ports = self._nic(nic).ports
            if port in ports or len(ports) < MOST_PORTS:
                ports[port] = state
            else:
                self.counters.add("shed", "port")

    def _take_liveness(self, message: Message) -> None:
        data = _event(message).data
        changes = data.get("changes")
        if not isinstance(changes, list):
            raise FormatError("changes", str(changes)[:80])
        silent = self._silent.setdefault(str(data["host"]), set())
        if data.get("complete"):
            silent.clear()
        for change in changes:
            if isinstance(change, Mapping) and change.get("role") == "sender":
                path = tuple(change.get(field) for field in _PATH_FIELDS)
                if change.get("state") != "silent":
                    silent.discard(path)
                elif len(silent) < MOST_SILENT:
                    silent.add(path)
                else:
                    self.counters.add("shed", "silent-path")

    def _take_nic(self, message: Message) -> None:
        data = _event(message).data
        nic = self._nic(data["nic"])
        if data["direction"] not in ("tx", "rx") or data["state"] not in ("healthy", "unhealthy", "unknown"):
            raise FormatError("nic-state", str(data)[:80])
        setattr(nic, data["direction"], dict(data))
        nic.last_received_at_ns = message.bus_at_ns

    def _take_finding(self, message: Message) -> None:
        data = dict(_event(message).data)
        key = str(data["id"])
        if data["status"] == "resolved":
            self._findings.pop(key, None)
            self._resolved[key] = data
            while len(self._resolved) > MOST_RESOLVED:
                del self._resolved[next(iter(self._resolved))]
        else:
            self._findings[key] = data

    def _take_mesh(self, message: Message) -> None:
        self.mesh.take_plan(_event(message))

    def _take_topology(self, message: Message) -> None:
        if _event(message).type == HOST_TYPE:
            self.mesh.take_agent(_event(message))
        self.fabric.take(_event(message))
        for nic in _event(message).data.get("nics", ()):
            known = self._nic(nic["id"])
            known.rail = nic.get("rail", known.rail)

    def _nic(self, nic: str) -> NicState:
        if not isinstance(nic, str) or not host_of(nic):
            raise FormatError("nic-id", str(nic)[:80])
        known = self._nics[nic] = self._nics.pop(nic) if nic in self._nics else NicState(nic)
        if len(self._nics) > MOST_NICS:
            del self._nics[next(iter(self._nics))]
            self.counters.add("shed", "nic")
        return known

    def _nic_view(self, nic: NicState, now_ns: int) -> dict[str, Any]:
        host = host_of(nic.nic)
        last_received_at_ns = max(self._hosts.get(host, 0), nic.last_received_at_ns)
        stale = now_ns - last_received_at_ns > STALE_NS
        tx, rx = ("unknown" if stale else str(d.get("state", "unknown")) for d in (nic.tx, nic.rx))
        absent = not stale and bool(nic.ports) and set(nic.ports.values()) == {"absent"}
        worst = nic.tx if tx == "unhealthy" else nic.rx if rx == "unhealthy" else nic.tx or nic.rx
        return {
            "nic": nic.nic,
            "host": host,
            "rail": nic.rail,
            "tx": "absent" if absent else tx,
            "rx": "absent" if absent else rx,
            "state": "absent" if absent else _both(tx, rx),
            "port": "unknown" if stale else _one_port(nic.ports),
            "why": _no_news(now_ns - last_received_at_ns, last_received_at_ns) if stale else str(worst.get("why", "")),
            "since_at_ns": worst.get("since_at_ns"),
            "age_ns": now_ns - last_received_at_ns if last_received_at_ns else None,
        }

    def _silent_paths(self, now_ns: int) -> int:
        """Silent paths of hosts that still publish; the last report of a silent host does not count."""
        return sum(len(paths) for host, paths in self._silent.items() if now_ns - self._hosts.get(host, 0) <= STALE_NS)

    def clocks(self, now_ns: int) -> list[dict[str, Any]]:
        """Every clock but UTC, worst first."""
        rows = [
            {
                "clock": name,
                "offset_ns": row["offset_ns"],
                "skew_ppb": row["skew_ppb"],
                "err_ns": row["err_ns"],
                "status": row["status"] if now_ns - row["seen_at_ns"] <= STALE_NS else "unknown",
                "age_ns": now_ns - row["seen_at_ns"],
            }
            for name, row in self._clocks.items()
            if name != UTC
        ]
        return sorted(rows, key=lambda r: (r["status"] == "synced", -_number(r["err_ns"]), r["clock"]))

    def _clocks_view(self, now_ns: int, worst: int) -> dict[str, Any]:
        rows = self.clocks(now_ns)
        statuses: dict[str, int] = {}
        for row in rows:
            statuses[row["status"]] = statuses.get(row["status"], 0) + 1
        errors = [_number(r["err_ns"]) for r in rows if r["status"] == "synced"]
        return {
            "known": len(rows),
            "by_status": statuses,
            "worst_err_ns": max(errors, default=math.nan),
            "worst": rows[:worst],
            **self._utc_view(now_ns),
        }

    def _utc_view(self, now_ns: int) -> dict[str, Any]:
        """UTC against the reference, under its name; nothing when no host disciplined to it is named."""
        row = self._clocks.get(UTC)
        if row is None:
            return {}
        age_ns = now_ns - row["seen_at_ns"]
        figures = {name: row[name] for name in ("offset_ns", "skew_ppb", "err_ns")}
        return {UTC: figures | {"status": row["status"] if age_ns <= STALE_NS else "unknown", "age_ns": age_ns}}

    def _pipeline_view(self, now_ns: int, counters: Mapping[str, int], lag: Mapping[str, int]) -> dict[str, Any]:
        everything = {**counters, **self.counters.as_dict()}
        lost = {k: n for k, n in everything.items() if _LOST & set(k.split("."))}
        aside = {k: n for k, n in everything.items() if _ASIDE & set(k.split("."))}
        ages = [now_ns - at_ns for at_ns in self._hosts.values()]
        return {
            "rates": {topic: rate.view(now_ns) for topic, rate in sorted(self._rates.items())},
            "lag": dict(lag),
            "age_ns": min(ages, default=None),
            "hosts": len(ages),
            "hosts_stale": sum(age > STALE_NS for age in ages),
            "lost": dict(sorted(lost.items(), key=lambda item: -item[1])),
            "aside": dict(sorted(aside.items(), key=lambda item: -item[1])),
        }


def _both(tx: str, rx: str) -> str:
    return "unhealthy" if "unhealthy" in (tx, rx) else "healthy" if tx == rx == "healthy" else "unknown"


def _one_port(ports: Mapping[str, str]) -> str:
    states = set(ports.values())
    return states.pop() if len(states) == 1 else "mixed" if states else "unknown"


def _no_news(age_ns: int, last_received_at_ns: int) -> str:
    return f"nothing heard for {age_ns / NS_PER_S:.0f} s" if last_received_at_ns else "nothing heard yet"


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not math.isnan(value) else math.inf


def _batch(message: Message) -> pa.RecordBatch:
    if not isinstance(message.body, pa.RecordBatch):
        raise FormatError("body", "an event on a bulk topic")
    return message.body


def _event(message: Message) -> Event:
    if not isinstance(message.body, Event):
        raise FormatError("body", "a batch on an event topic")
    return message.body
