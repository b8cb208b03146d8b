"""Probe messages of a healthy mesh: periods with jitter, delays with tails, clocks apart, nothing lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sdfstream.records import columns
from sdfstream.records.message import Message
from sdfstream.records.topics import PROBE
from sdfstream.records.units import NS_PER_MS, NS_PER_S

EPOCH_NS = 1_700_000_000 * NS_PER_S
"""In the past: an archive does not age rows that lie ahead of the wall clock."""


@dataclass(frozen=True)
class Load:
    """Hosts × NICs × peers × ports paths at one rate; each host flushes every `flush_s`."""

    hosts: int = 64
    nics: int = 8
    peers: int = 10
    ports: int = 4
    rate_hz: int = 16
    flush_s: float = 1.0
    seconds: int = 10
    wait_ms: int = 20
    """From the end of what a flush gathers to the bus: at least the follow-up's wait, where that matters."""
    apart_ns: float = 1e6
    """Standard deviation of the clocks' offsets."""
    nic_clocks: bool = False
    """Stamps are of a clock in each NIC, not of one in each host; sessions cannot tell."""

    @property
    def paths(self) -> int:
        return self.hosts * self.nics * self.peers * self.ports


def messages(load: Load, rng: np.random.Generator) -> Iterator[Message]:
    """Messages in bus order; every row is answered, with kernel stamps."""
    nic_names = [f"h{h:02d}/r{n}" for h in range(load.hosts) for n in range(load.nics)]
    host_names = [f"h{h:02d}" for h in range(load.hosts)]
    clock_names = nic_names if load.nic_clocks else host_names
    offset_ns = rng.normal(0, 1e6, len(clock_names)) * (load.apart_ns / 1e6)
    skew = rng.normal(0, 5e-6, len(clock_names))
    floor_ns = rng.integers(20_000, 40_000, load.paths)
    per_host = load.paths // load.hosts
    flush_ns = int(load.flush_s * NS_PER_S)
    # the sending times of all probes of one host in one flush, alike for all hosts but for jitter
    period_ns = NS_PER_S // load.rate_hz
    phase_ns = rng.integers(0, period_ns, load.paths)
    number = 0
    for flush in range(int(load.seconds / load.flush_s)):
        for host in range(load.hosts):
            local = np.arange(per_host)
            path = host * per_host + local
            low = flush * flush_ns + host * flush_ns // load.hosts  # every host flushes at a moment of its own
            first = -(-(low - phase_ns[path]) // period_ns)
            count = -(-(low + flush_ns - phase_ns[path]) // period_ns) - first
            which = np.repeat(local, count)
            step = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            seq = first[which] + step
            sent_ns = phase_ns[path[which]] + seq * period_ns + rng.integers(0, period_ns // 8, which.size)
            order = np.argsort(sent_ns, kind="stable")
            body = _batch(
                load, rng, host, path[which][order], seq[order], sent_ns[order], offset_ns, skew, floor_ns, nic_names,
                clock_names,
            )  # fmt: skip
            at_ns = EPOCH_NS + low + flush_ns + load.wait_ms * NS_PER_MS
            yield Message(PROBE.name, host_names[host], body, at_ns, number, f"boot-{host}", flush)
            number += 1


def _batch(load, rng, host, path, seq, sent_ns, offset_ns, skew, floor_ns, nic_names, clock_names):
    n, per_host = path.size, load.paths // load.hosts
    src, dst, far = _ends(load, host, path)
    of_all = _ends(load, host, np.arange(host * per_host, (host + 1) * per_host))

    def stamp(true_ns, clocks):
        return EPOCH_NS + true_ns + np.rint(offset_ns[clocks] + skew[clocks] * true_ns).astype(np.int64)

    t2 = sent_ns + floor_ns[path] + rng.exponential(4_000, n).astype(np.int64)
    t3 = t2 + 30_000 + rng.exponential(10_000, n).astype(np.int64)
    t4 = t3 + floor_ns[path] + rng.exponential(4_000, n).astype(np.int64)
    here, here_of_all = (src, of_all[0]) if load.nic_clocks else (np.full(n, host), [host])
    there, there_of_all = (dst, of_all[1]) if load.nic_clocks else (far, of_all[2])
    octet = np.uint8
    return columns.build(
        PROBE.columns,
        {
            "src": _names(src, of_all[0], nic_names),
            "dst": _names(dst, of_all[1], nic_names),
            "clock_src": _names(here, here_of_all, clock_names),
            "clock_dst": _names(there, there_of_all, clock_names),
            "transport": columns.name_column(np.zeros(n, int), ["udp"]),
            "path": (49_152 + path % load.ports).astype(np.uint32),
            "seq": seq.astype(np.uint32),
            "t1_ns": stamp(sent_ns, here), "t4_ns": stamp(t4, here),
            "t2_ns": stamp(t2, there), "t3_ns": stamp(t3, there),
            **{f"t{i}_kind": np.ones(n, octet) for i in (1, 2, 3, 4)},
            "dscp_sent": np.zeros(n, octet), "dscp_fwd": np.zeros(n, octet), "dscp_rev": np.zeros(n, octet),
            "ecn_sent": np.full(n, 2, octet), "ecn_fwd": np.full(n, 2, octet), "ecn_rev": np.full(n, 2, octet),
            "size_bytes": np.full(n, 128, np.uint16),
            "ttl_fwd": np.full(n, 62, octet), "ttl_rev": np.full(n, 62, octet),
            "tx_host_ns": rng.integers(3_000, 9_000, n).astype(np.int32),
            "rx_host_ns": rng.integers(3_000, 19_000, n).astype(np.int32),
            "plane": columns.name_column(np.zeros(n, int), ["backend"]),
        },
    )  # fmt: skip


def _ends(load, host, path):
    """Source NIC, destination NIC and far host of each path."""
    src = path // (load.peers * load.ports)
    far = (host + 1 + path // load.ports % load.peers * 5) % load.hosts
    # where each NIC has a clock, half of the probes cross to the next rail: what is not compared is on no time line
    rail = src + path // load.ports % 2 if load.nic_clocks else src
    return src, far * load.nics + rail % load.nics, far


def _names(codes, all_codes, names):
    """A name column whose dictionary holds the names of all of the host's sessions, as an agent's does."""
    used = np.unique(all_codes)
    return columns.name_column(np.searchsorted(used, codes), [names[i] for i in used.tolist()])
