"""Which paths a queue pair has, and what probes can say of them.

Agents say which probe paths there are and which are alive (`Probing`), sync how well the clocks behind their delays are
known (`ClockErrors`). From these and the routes a `Mapper` makes the *watch* of a queue pair's path. A *segment* is a
link direction that the queue pair's data or answers cross (but for the two NICs' own cables; and where the answers are
packets of a queue pair at the far end that can be moved, its own command sees to them). It is *covered* when probe
paths of the sending NIC cross it. A path can be watched when all its segments are covered; one that cannot be
watched is never armed, neither as the present path nor as an alternate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.jobs import OwnedQp, RunningJobs
from sdfstream.actuate.refusals import Doubt
from sdfstream.actuate.routes import ProbeKey, Routes
from sdfstream.records import columns
from sdfstream.records.fabric import Topology, answered, host_of
from sdfstream.records.units import NS_PER_MS, NS_PER_S

Watch = list[dict[str, Any]]

_LOOK_AGAIN_NS: Final = NS_PER_S
"""Routes that have become too old are noticed this late."""


@dataclass(frozen=True, slots=True)
class MappedPath:
    """One path of a queue pair with all that is known of it."""

    path: int
    data: tuple[str, ...]
    """Hops of its data, the sender's own cable first."""
    segments: tuple[str, ...]
    watch: Watch
    covered: int
    """Probe paths over its least covered segment."""


class Mapper:
    """Makes watches from routes and probe paths."""

    def __init__(self, config: ActuateConfig, jobs: RunningJobs, routes: Routes, probing: Probing) -> None:
        self.config, self.jobs, self.routes, self.probing = config, jobs, routes, probing
        self.topology = Topology()
        self._found: dict[tuple[str, str, str], list[ProbeKey]] = {}
        self._found_at = (-1, -1, -1)

    def path(self, owned: OwnedQp, path: int, now_ns: int) -> MappedPath | Doubt:
        """What is known of the queue pair on this source port."""
        pair = owned.pair
        data = self.routes.flow(pair.flow(path), now_ns)
        answers = self._answers(owned, path, now_ns)
        if data is None or answers is None:
            which = "data" if data is None else "answers"
            return Doubt("unknown-way", f"the way of its {which} on source port {path} is not known, or too old")
        crossed = segments(data, answers)
        if not crossed:
            return Doubt("no-other-way", "both NICs hang on one switch; there is no other way to move to")
        watch: Watch = []
        covered = self.config.most_watch_paths
        for segment in crossed:
            probes = self._probes(pair.src, pair.dst, segment, now_ns)
            if not probes:
                name = self.topology.direction(segment)
                return Doubt("uncovered", f"no probe path of {pair.src} crosses {name}, which source port {path} needs")
            covered = min(covered, len(probes))
            watch.append({"segment": segment, "paths": [[p.dst, p.path, p.dscp] for p in probes]})
        return MappedPath(path, data, crossed, watch, covered)

    def _answers(self, owned: OwnedQp, path: int, now_ns: int) -> tuple[str, ...] | None:
        """Hops of its answers; none: they are packets of a queue pair that is moved for itself; None: not known."""
        far = self.jobs.far_end(owned)
        if far is not None and far.pair.steering != "none":
            return ()
        pair = answered(owned.pair, None if far is None else far.pair)
        return self.routes.flow(pair.answers(path), now_ns)

    def _probes(self, nic: str, dst: str, segment: str, now_ns: int) -> list[ProbeKey]:
        """Probe paths to watch a segment by: fast ones, then slow ones; to the same far NIC before others.

        The agent judges by the quickest of them. Out of the others it makes quick what it needs: its candidates, which
        are the slowest, so these come first, and have half the list where there are as many.
        """
        at = (self.routes.version, self.probing.version, now_ns // _LOOK_AGAIN_NS)
        if at != self._found_at:
            self._found, self._found_at = {}, at
        known = self._found.get((nic, dst, segment))
        if known is None:
            known = self._found[nic, dst, segment] = self._choose_probes(nic, dst, segment, now_ns)
        return known

    def _choose_probes(self, nic: str, dst: str, segment: str, now_ns: int) -> list[ProbeKey]:
        found = []
        for key in self.routes.crossing(nic, segment, now_ns):
            interval_ns = self.probing.interval_ns(key)
            if interval_ns is not None:
                found.append((interval_ns, key))
        found.sort(key=lambda entry: (entry[1].dst != dst, -entry[0], entry[1]))
        quickest_ns = min((interval_ns for interval_ns, _ in found if interval_ns > 0), default=0)
        fast_ns = max(int(self.config.watch_interval_ms * NS_PER_MS), 2 * quickest_ns)
        fast = [key for interval_ns, key in found if 0 < interval_ns <= fast_ns]
        slow = [key for interval_ns, key in found if not 0 < interval_ns <= fast_ns]
        most = self.config.most_watch_paths
        chosen = fast[: most - min(len(slow), most // 2)]
        return chosen + slow[: most - len(chosen)]

    def unclean_segment(self, nic: str, mapped: MappedPath) -> str:
        """The first segment that no alive probe path shows to be clean; empty: all are."""
        for segment in mapped.watch:
            if not any(self.probing.alive(ProbeKey(nic, *path)) for path in segment["paths"]):
                return str(segment["segment"])
        return ""

    def alternates(self, owned: OwnedQp, now_ns: int) -> list[MappedPath]:
        """All other source ports of the queue pair whose route is known and can be watched."""
        ports = (port for port in owned.pair.alternates if port != owned.pair.path)
        mapped = (self.path(owned, port, now_ns) for port in dict.fromkeys(ports))
        return [m for m in mapped if isinstance(m, MappedPath)]


def draw(seed: int, *what: object) -> int:
    """A number that is the same for the same arguments and spread evenly otherwise: a lot without a state."""
    text = "|".join(str(segment) for segment in (seed, *what))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def segments(data: Sequence[str], answers: Sequence[str]) -> tuple[str, ...]:
    """The link directions that a queue pair depends on, but for its two NICs' own cables.

    The first hop of either route is met over the sender's own cable, which every other route of that NIC shares.

    >>> segments(("l0", "s1", "l1"), ("l1b", "s1b", "l0b"))
    ('s1', 'l1', 's1b', 'l0b')
    """
    return tuple(dict.fromkeys((*data[1:], *answers[1:])))


MAX_PATHS: Final = 200_000
_STATES: Final = ("alive", "silent", "unknown")


class Probing:
    """Hosts by last sign of life (bus time), and the probe paths that their agents send."""

    def __init__(self) -> None:
        self._last_received_at_ns: dict[str, int] = {}
        self._paths: dict[ProbeKey, tuple[str, int]] = {}
        """State and interval (ns) of every path that exists."""
        self._of_host: dict[str, dict[ProbeKey, None]] = {}
        self.version = 0
        """Grows whenever a probe path comes, goes or changes its pace."""
        self.shed = 0
        """Paths that there was no room for, since it was last read."""

    def received_from(self, host: str, at_ns: int) -> None:
        """Note a message of this host's agent."""
        if host:
            self._last_received_at_ns[host] = max(at_ns, self._last_received_at_ns.get(host, at_ns))

    def silence_ns(self, host: str, now_ns: int) -> int | None:
        """Time since the last message of the host's agent; None: there was none."""
        at_ns = self._last_received_at_ns.get(host)
        return None if at_ns is None else now_ns - at_ns

    def take(self, data: Mapping[str, Any]) -> tuple[set[str], bool]:
        """Take a liveness statement.

        Returns
        -------
        touched : set of str
            NICs whose set of probe paths changed, or how fast they are.
        unrest : bool
            Some path fell silent or came back.

        Raises
        ------
        KeyError, TypeError, ValueError, AttributeError
            The statement does not follow its schema.
        """
        host = str(data["host"])
        mine: dict[ProbeKey, tuple[str, int]] = {}
        for entry in data["changes"]:
            state = entry["state"]
            if state not in _STATES:
                raise ValueError(f"no state {state!r}")
            if entry["role"] == "sender":
                key = ProbeKey(str(entry["src"]), str(entry["dst"]), int(entry["path"]), int(entry["dscp"]))
                mine[key] = (state, int(entry["interval_ns"]))
        touched: set[str] = set()
        unrest = False
        known = len(self._paths)
        for key, (state, interval_ns) in mine.items():
            before = self._paths.get(key)
            if before is None or before[1] != interval_ns:
                touched.add(key.src)
            if before is not None and {before[0], state} == {"alive", "silent"}:
                unrest = True
            self._put(host, key, state, interval_ns)
        if data["complete"]:
            for key in [k for k in self._of_host.get(host, {}) if k not in mine]:
                del self._of_host[host][key]
                self._paths.pop(key, None)
                touched.add(key.src)
        self.version += bool(touched) or len(self._paths) != known
        return touched, unrest

    def _put(self, host: str, key: ProbeKey, state: str, interval_ns: int) -> None:
        if key not in self._paths and len(self._paths) >= MAX_PATHS:
            self.shed += 1
            return
        self._paths[key] = (state, interval_ns)
        self._of_host.setdefault(host, {})[key] = None

    def interval_ns(self, key: ProbeKey) -> int | None:
        """Interval between the path's probes; None: it is not probed."""
        found = self._paths.get(key)
        return None if found is None else found[1]

    def alive(self, key: ProbeKey) -> bool:
        """Whether its sender receives answers on it."""
        found = self._paths.get(key)
        return found is not None and found[0] == "alive"

    def forget(self, before_ns: int) -> None:
        """Drop hosts without a message since."""
        for host in [h for h, at_ns in self._last_received_at_ns.items() if at_ns < before_ns]:
            del self._last_received_at_ns[host]
            for key in self._of_host.pop(host, {}):
                self._paths.pop(key, None)
                self.version += 1

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        of = {key: host for host, keys in self._of_host.items() for key in keys}
        return {
            "heard": list(self._last_received_at_ns.items()),
            "paths": [[*key, *about, of.get(key, host_of(key.src))] for key, about in self._paths.items()],
            "shed": self.shed,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._last_received_at_ns = {host: at_ns for host, at_ns in state["heard"]}
        self._paths, self._of_host = {}, {}
        for src, dst, path, dscp, name, interval_ns, host in state["paths"]:
            key = ProbeKey(src, dst, path, dscp)
            self._paths[key] = (name, interval_ns)
            self._of_host.setdefault(host, {})[key] = None
        self.shed = state["shed"]


UNKNOWN_NS: Final = float(3600 * NS_PER_S)
"""Error bar of a clock without a row, or one that is not trusted."""
_CLOCK_FRESH_NS: Final = 3 * NS_PER_S
_MOST_CLOCKS: Final = 200_000


class ClockErrors:
    """Error bar of every clock by its last causal row."""

    def __init__(self) -> None:
        self._err: dict[str, tuple[float, int]] = {}

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take clock states; FormatError when a column cannot be read."""
        clock, clocks = columns.names(batch, "clock")
        status, states = columns.names(batch, "status")
        kind, kinds = columns.names(batch, "kind")
        err = columns.values(batch, "err_ns").astype(np.float64)
        causal = np.array([name == "causal" for name in kinds] + [False])[kind]
        for row in np.flatnonzero(causal & (clock >= 0) & (status >= 0)).tolist():
            name = clocks[clock[row]]
            trusted = states[status[row]] in ("synced", "holdover")
            if name in self._err or len(self._err) < _MOST_CLOCKS:
                self._err[name] = (float(err[row]) if trusted else UNKNOWN_NS, at_ns)

    def err_ns(self, nic: str, now_ns: int) -> float:
        """Error bar of the clock of a NIC: its own, or its host's."""
        for name in (nic, host_of(nic)):
            found = self._err.get(name)
            if found is not None and now_ns - found[1] <= _CLOCK_FRESH_NS:
                return found[0]
        return UNKNOWN_NS

    def forget(self, before_ns: int) -> None:
        """Drop clocks without a row since."""
        self._err = {name: row for name, row in self._err.items() if row[1] >= before_ns}

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [[name, *row] for name, row in self._err.items()]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._err = {name: (err, at_ns) for name, err, at_ns in state}
