"""Configuration of a lab fabric: sizes, rates, ECMP hash, mis-cabling."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sdfstream.errors import ConfigError

MAX_HOSTS = 256
MAX_LEAVES = 256
MAX_SPINES = 128
MAX_CABLES = 4096
"""Two file descriptors and about 1.5 ms of set-up per node, one veth pair per cable: more is not a laptop's lab."""


@dataclass(frozen=True, slots=True)
class FabricSpec:
    """A leaf-spine fabric; the defaults are those of the demo and most tests.

    A pod is `rails` leaves; rail r of every host of pod p hangs on leaf ``p·rails + r``, so ``leaves`` must be a
    multiple of ``rails``. Hosts are dealt to the pods in blocks. A host reaches each rail by its NIC there; a socket
    bound to another NIC crosses to it over a spine.

    Raises
    ------
    ConfigError
        A size outside its limits (hosts 2..256, rails 1..8, leaves 1..256, spines 1..128, cables ≤ 4096) or
        sizes that do not fit together.
    """

    hosts: int = 8
    rails: int = 2
    leaves: int = 4
    spines: int = 4
    rate_bps: int = 50_000_000
    """Rate of every leaf-spine direction, Ethernet header included (a token bucket in front of a byte queue)."""
    queue_bytes: int = 250_000
    """Byte queue of every leaf-spine direction; 250 kB at 50 Mbit/s is 40 ms."""
    burst_bytes: int = 5_000
    """Token bucket depth; below two full frames every full frame is dropped, above it the delay is blurred."""
    host_rate_bps: int | None = None
    """Rate of the leaf->host directions (for incast); None: not limited."""
    ce_threshold_bytes: int = 50_000
    """Backlog above which ECN-capable packets leave with CE; 0: no marking."""
    hash_seed: int = 1
    """Seed of the ECMP hash: the same seed gives the same port-to-path map after every rebuild."""
    hash_ignores_source_port: bool = False
    """Leave the source port out of the ECMP hash: a source port then selects no path."""
    class_dscp: int | None = None
    """Packets with this DSCP get a class of their own (HTB) in every leaf-spine queue; None: one queue for all."""
    class_rate_bps: int = 20_000_000
    """Rate of that class; all other packets have a class with the rest of the link."""
    miscabled_hosts: tuple[str, ...] = ()
    """Hosts whose cables of rail 0 and rail 1 are swapped at the leaves."""
    ip_version: int = 4
    """4 or 6, of the whole fabric."""
    name: str = "lab"
    """Name of the lab; the command line finds a running lab by it."""

    def __post_init__(self) -> None:
        for key, low, high in (
            ("hosts", 2, MAX_HOSTS),
            ("rails", 1, 8),
            ("leaves", 1, MAX_LEAVES),
            ("spines", 1, MAX_SPINES),
            ("rate_bps", 100_000, 100_000_000_000),
            ("queue_bytes", 3_000, 1 << 30),
            ("burst_bytes", 3_028, 1 << 24),
            ("ce_threshold_bytes", 0, 1 << 30),
            ("hash_seed", 0, 0xFFFFFFFF),
            ("class_rate_bps", 100_000, 100_000_000_000),
        ):
            _check_range(key, getattr(self, key), low, high)
        if self.host_rate_bps is not None:
            _check_range("host_rate_bps", self.host_rate_bps, 100_000, 100_000_000_000)
        if self.class_dscp is not None:
            _check_range("class_dscp", self.class_dscp, 0, 63)
            if self.class_rate_bps >= self.rate_bps:
                raise ConfigError("lab.class_rate_bps must be below lab.rate_bps: the other classes need the rest")
        self._check_shape()

    def _check_shape(self) -> None:
        if self.leaves % self.rails:
            raise ConfigError(f"lab.leaves ({self.leaves}) must be a multiple of lab.rails ({self.rails})")
        if self.hosts < self.pods:
            raise ConfigError(f"lab.hosts ({self.hosts}) must be at least the number of pods ({self.pods})")
        cables = self.hosts * self.rails + self.leaves * self.spines
        if cables > MAX_CABLES:
            raise ConfigError(f"lab: {cables} cables are more than {MAX_CABLES}")
        if self.ip_version not in (4, 6):
            raise ConfigError(f"lab.ip_version must be 4 or 6, not {self.ip_version}")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}", self.name):
            raise ConfigError(f"lab.name must be 1..32 letters, digits or _.-, not {self.name!r}")
        unknown = set(self.miscabled_hosts) - set(self.host_names)
        if unknown:
            raise ConfigError(f"lab.miscabled_hosts: no such host: {', '.join(sorted(unknown))}")
        if self.miscabled_hosts and self.rails < 2:
            raise ConfigError("lab.miscabled_hosts: swapping cables needs two rails")

    @property
    def pods(self) -> int:
        """Pods: groups of `rails` leaves."""
        return self.leaves // self.rails

    @property
    def host_names(self) -> tuple[str, ...]:
        """``h00``, ``h01``, …"""
        return tuple(f"h{h:02d}" for h in range(self.hosts))

    @property
    def leaf_names(self) -> tuple[str, ...]:
        """``l0``, ``l1``, …"""
        return tuple(f"l{i}" for i in range(self.leaves))

    @property
    def spine_names(self) -> tuple[str, ...]:
        """``s0``, ``s1``, …"""
        return tuple(f"s{p}" for p in range(self.spines))

    def pod_of(self, host: int) -> int:
        """Pod of the host with this index: hosts are dealt in blocks as even as can be."""
        return host * self.pods // self.hosts

    def leaf_of(self, host: int, rail: int) -> int:
        """Index of the leaf that this host's NIC on `rail` is planned on."""
        return self.pod_of(host) * self.rails + rail


def _check_range(key: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(f"lab.{key} must be {low}..{high}, not {value}")
