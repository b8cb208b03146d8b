"""Probe messages of a mesh in which things change all the time: for `soak` and `day`.

Every host flushes twice a second unless told otherwise. Hosts restart (a new run, sequence numbers from 0), NICs fall
silent and come back, NICs lose probes or mark them for a while, now and then a host takes its other source ports (its
sessions are others then) or is replaced by one of another name, which comes back later. All of it on a schedule, so
that ten minutes are like the next ten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sdfstream.records import columns
from sdfstream.records.message import Message
from sdfstream.records.topics import PROBE
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S
from tests.bench.probe_load import EPOCH_NS

FLUSH_NS = 500 * NS_PER_MS
_NAMES = 4
"""Names for each host."""


@dataclass
class Host:
    """One simulated agent."""

    name: str
    boot: int = 0
    sent: int = 0
    """Rounds of probes sent in this run."""
    batches: int = 0
    first_port: int = 49_152


@dataclass(frozen=True)
class Schedule:
    """Seconds between two changes of a kind."""

    restart_s: int = 45
    silence_s: int = 30
    loss_s: int = 70
    marks_s: int = 50
    ports_s: int = 60
    rename_s: int = 600


class Churn:
    """The mesh: `flush` gives what all agents say of the half second before.

    Parameters
    ----------
    hosts, nics, peers, ports : int
        Every NIC probes so many peers over so many source ports.
    rate_hz : int
        Of every path; whole rounds in `flush_ns`.
    flush_ns : int
        From one flush of an agent to its next; a second in whole flushes, or whole seconds.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        hosts: int = 8,
        nics: int = 2,
        peers: int = 4,
        ports: int = 4,
        rate_hz: int = 16,
        flush_ns: int = FLUSH_NS,
    ) -> None:
        self.rng, self.nics, self.peers, self.ports, self.rate_hz = rng, nics, peers, ports, rate_hz
        self.flush_ns = flush_ns
        self.hosts = [Host(f"h{n:03}") for n in range(hosts)]
        self.schedule = Schedule()
        self.offset_ns = rng.normal(0, 1e6, hosts).astype(np.int64)
        self.skew = rng.normal(0, 5e-6, hosts)
        self.floor_ns = rng.integers(20_000, 40_000, hosts * nics)
        self._number = 0
        self._names = hosts

    @property
    def paths(self) -> int:
        return len(self.hosts) * self.nics * self.peers * self.ports

    def run(self, seconds: int) -> Iterator[Message]:
        """Messages of so many seconds of bus time."""
        told_s = 0
        for step in range(1, seconds * NS_PER_S // self.flush_ns + 1):
            now_s = step * self.flush_ns // NS_PER_S
            for second in range(told_s + 1, now_s + 1):
                self._change(second)
            told_s = now_s
            for number in range(len(self.hosts)):
                yield self._flush(number, step * self.flush_ns)

    def _change(self, second: int) -> None:
        plan, host = self.schedule, self.hosts[second // 7 % len(self.hosts)]
        if second % plan.restart_s == 0:
            host.boot, host.sent, host.batches = host.boot + 1, 0, 0
        if second % plan.ports_s == 0:
            host.first_port = 49_152 + (host.first_port - 49_152 + self.ports) % (2 * self.ports)
        if second % plan.rename_s == 0:
            host.name, host.boot = self._another_name(), 0

    def _another_name(self) -> str:
        """The next of the names that no host has now; they come round, since an agent that is gone stays known."""
        used = {host.name for host in self.hosts}
        while (name := f"h{self._names % (_NAMES * len(self.hosts)):03}") in used:
            self._names += 1
        self._names += 1
        return name

    def _flush(self, number: int, end_ns: int) -> Message:
        host, rng = self.hosts[number], self.rng
        rounds = self.rate_hz * self.flush_ns // NS_PER_S
        path = np.tile(np.arange(self.nics * self.peers * self.ports), rounds)
        turn = np.repeat(np.arange(rounds), path.size // rounds)
        period_ns = NS_PER_S // self.rate_hz
        n = path.size
        sent_ns = end_ns - self.flush_ns + turn * period_ns + rng.integers(0, period_ns // 2, n)
        nic = path // (self.peers * self.ports)
        far = (number + 1 + path // self.ports % self.peers) % len(self.hosts)
        lost, marked = self._faults(number, far, nic, end_ns)
        floor_ns = self.floor_ns[number * self.nics + nic]
        t2 = sent_ns + floor_ns + rng.exponential(4_000, n).astype(np.int64)
        t3 = t2 + 30_000 + rng.exponential(10_000, n).astype(np.int64)
        t4 = t3 + floor_ns + rng.exponential(4_000, n).astype(np.int64)
        here = np.full(n, number)
        stamps = {
            "t1_ns": self._stamp(sent_ns, here),
            **{f"t{i}_ns": np.where(lost, ABSENT_NS, self._stamp(t, c)) for i, t, c in ((2, t2, far), (3, t3, far))},
            "t4_ns": np.where(lost, ABSENT_NS, self._stamp(t4, here)),
        }
        names = [h.name for h in self.hosts]
        far_nics = [f"{name}/r{k}" for name in names for k in range(self.nics)]
        seen = lambda value: columns.nullable(np.full(n, value, np.uint8), ~lost, PROBE_U8)  # noqa: E731
        body = columns.build(
            PROBE.columns,
            {
                "src": columns.name_column(nic, [f"{host.name}/r{k}" for k in range(self.nics)]),
                "dst": columns.name_column(far * self.nics + nic, far_nics),
                "clock_src": columns.name_column(np.zeros(n, int), [host.name]),
                "clock_dst": columns.name_column(far, names),
                "transport": columns.name_column(np.zeros(n, int), ["udp"]),
                "path": (host.first_port + path % self.ports).astype(np.uint32),
                "seq": (host.sent + turn).astype(np.uint32),
                **stamps,
                **{f"t{i}_kind": np.ones(n, np.uint8) for i in (1, 2, 3, 4)},
                "dscp_sent": np.zeros(n, np.uint8), "dscp_fwd": seen(0), "dscp_rev": seen(0),
                "ecn_sent": np.full(n, 2, np.uint8),
                "ecn_fwd": columns.nullable(np.where(marked, 3, 2).astype(np.uint8), ~lost, PROBE_U8),
                "ecn_rev": seen(2),
                "size_bytes": np.full(n, 128, np.uint16),
                "ttl_fwd": seen(62), "ttl_rev": seen(62),
            },
        )  # fmt: skip
        host.sent, host.batches, self._number = host.sent + rounds, host.batches + 1, self._number + 1
        at_ns = EPOCH_NS + end_ns + 20 * NS_PER_MS + number * NS_PER_MS
        boot = f"{host.name}-{host.boot}"
        return Message(PROBE.name, host.name, body, at_ns, self._number - 1, boot, host.batches - 1)

    def _faults(self, number: int, far: np.ndarray, nic: np.ndarray, end_ns: int) -> tuple[np.ndarray, np.ndarray]:
        """Which probes are lost, and which are marked on the way there."""
        plan, second = self.schedule, end_ns // NS_PER_S
        total = len(self.hosts) * self.nics

        def hit(every_s: int, lasting_s: int) -> np.ndarray:
            turn, passed = divmod(second, every_s)
            victim = turn * 5 % total
            mine = (number * self.nics + nic == victim) | (far * self.nics + nic == victim)
            return mine & (passed < lasting_s) & (turn > 0)

        gray = hit(plan.loss_s, 20) & (self.rng.random(nic.size) < 0.1)
        lost = hit(plan.silence_s, 6) | gray
        return lost, hit(plan.marks_s, 10) & (self.rng.random(nic.size) < 0.5)

    def _stamp(self, true_ns: np.ndarray, clocks: np.ndarray) -> np.ndarray:
        return EPOCH_NS + true_ns + self.offset_ns[clocks] + np.rint(self.skew[clocks] * true_ns).astype(np.int64)


PROBE_U8 = PROBE.columns.field("ecn_fwd").type
