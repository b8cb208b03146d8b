"""A job as planned: its ranks, their queue pairs, and the source ports that those may use.

Source ports lie above those of probes (49152–49999). A job has a *block*: 64 queue pairs per NIC with 17 ports each,
one to begin with and 16 to be moved to, so that no two queue pairs of a NIC ever share a port, whatever their jobs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sdfstream.emulator.qp_header import MAX_CHUNK_BYTES, PORT
from sdfstream.errors import ConfigError
from sdfstream.records.fabric import QueuePair, host_of

COLLECTIVES: Final = ("all-reduce", "all-to-all")
FIRST_PORT: Final = 50_000
ALTERNATES: Final = 16
BLOCKS: Final = 14
_QPS_PER_NIC: Final = 64
_BLOCK_PORTS: Final = _QPS_PER_NIC * (1 + ALTERNATES)
_BLOCK_NUMBERS: Final = 10_000
_ELEMENT_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class JobSpec:
    """Configuration of an emulated training job.

    Raises
    ------
    ConfigError
        A value outside its limits.
    """

    name: str
    hosts: tuple[str, ...]
    """In order of ranks; one rank each."""
    rail: int = 0
    """Number of the NIC on every host."""
    collective: str = "all-reduce"
    qps: int = 2
    """Queue pairs from a rank to each of its peers."""
    chunk_kb: int = 64
    """KiB; a collective is cut into chunks of this size, each carried by one queue pair."""
    message_mb: float = 1.0
    """MiB that every rank brings to a collective."""
    ports: tuple[int, ...] = ()
    """Source ports to begin with, rank by rank, peer by peer; or those of one rank, the same for every rank."""
    seconds: float | None = None
    collectives: int | None = None
    """End after this many; None: go on."""
    rate_bps: int | None = None
    """Limit of every queue pair, Ethernet header included: the job's own, not a throttle."""
    dscp: int = 26
    block: int = 0
    """Which block of queue pair numbers and ports; jobs that share a NIC need different ones."""
    engine: bool = True
    """Carry its packets in C where there is a compiler; else in Python, the reference, at ten times the cost."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", self.name):
            raise ConfigError(f"job.name must be 1..64 letters, digits or _.-, not {self.name!r}")
        if len(set(self.hosts)) != len(self.hosts) or not 2 <= len(self.hosts) <= 64:
            raise ConfigError("job.hosts must be 2..64 different hosts")
        if self.collective not in COLLECTIVES:
            raise ConfigError(f"job.collective must be one of {', '.join(COLLECTIVES)}, not {self.collective!r}")
        for key, low, high in (
            ("rail", 0, 7),
            ("qps", 1, _QPS_PER_NIC // len(self.peers(0))),
            ("chunk_kb", 1, MAX_CHUNK_BYTES >> 10),
            ("message_mb", 0.001, 256),
            ("dscp", 0, 63),
            ("block", 0, BLOCKS - 1),
        ):
            if not low <= getattr(self, key) <= high:
                raise ConfigError(f"job.{key} must be {low}..{high}, not {getattr(self, key)}")
        for key in ("seconds", "collectives", "rate_bps"):
            if getattr(self, key) is not None and getattr(self, key) <= 0:
                raise ConfigError(f"job.{key} must be above 0, not {getattr(self, key)}")
        self._check_ports()

    def _check_ports(self) -> None:
        per_rank = self.qps * len(self.peers(0))
        if self.ports and len(self.ports) not in (per_rank, per_rank * len(self.hosts)):
            raise ConfigError(
                f"job.ports must be {per_rank} (of one rank) or {per_rank * len(self.hosts)}, not {len(self.ports)}"
            )
        if any(not 49_152 <= port <= 65_535 for port in self.ports):
            raise ConfigError("job.ports must be 49152..65535")
        if any(len(set(self.ports[i : i + self.qps])) < self.qps for i in range(0, len(self.ports), self.qps)):
            raise ConfigError("job.ports: queue pairs to one peer need different ports")

    @property
    def elements(self) -> int:
        """Numbers that every rank brings to a collective: a multiple of the number of ranks."""
        ranks = len(self.hosts)
        return max(1, round(self.message_mb * (1 << 20) / _ELEMENT_BYTES / ranks)) * ranks

    @property
    def chunk_elements(self) -> int:
        """Numbers in one chunk."""
        return (self.chunk_kb << 10) // _ELEMENT_BYTES

    def peers(self, rank: int) -> list[int]:
        """The ranks that `rank` sends to."""
        n = len(self.hosts)
        return [(rank + step) % n for step in (range(1, n) if self.collective == "all-to-all" else (1,))]


@dataclass(frozen=True, slots=True)
class NicEndpoint:
    """A rank's NIC: device, address, network namespace."""

    nic: str
    """NIC id host/nic."""
    device: str
    address: str
    netns: str | None = None
    """Path of the network namespace that holds it; None: our own."""

    @property
    def host(self) -> str:
        """Its host."""
        return host_of(self.nic)


@dataclass(frozen=True, slots=True)
class QpPlan:
    """One queue pair as planned."""

    number: int
    """Of the header; unique among jobs in different blocks."""
    rank: int
    peer_rank: int
    src: str
    dst: str
    dst_address: str
    dscp: int
    ports: tuple[int, ...]
    """Every source port that it may ever use; the first to begin with."""
    src_address: str = ""

    @property
    def id(self) -> str:
        """``host/nic#number``."""
        return f"{self.src}#{self.number}"

    def queue_pair(self, path: int, rate_bps: int | None) -> QueuePair:
        """Its entry in the job map, on source port `path`."""
        return QueuePair(
            qp=self.id,
            rank=self.rank,
            peer_rank=self.peer_rank,
            src=self.src,
            dst=self.dst,
            dst_address=self.dst_address,
            path=path,
            dst_port=PORT,
            dscp=self.dscp,
            steering="socket",
            alternates=tuple(port for port in self.ports if port != path),
            rate_bps=rate_bps,
            src_address=self.src_address,
        )


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job, its ranks' NICs, and its queue pairs."""

    spec: JobSpec
    nics: tuple[NicEndpoint, ...]
    """By rank."""
    qps: tuple[QpPlan, ...] = field(default=())


def plan(spec: JobSpec, nics: Sequence[NicEndpoint]) -> JobPlan:
    """Number the queue pairs and give them ports; the same input gives the same plan.

    Raises
    ------
    ConfigError
        The number of NICs is not that of hosts.
    """
    if len(nics) != len(spec.hosts):
        raise ConfigError(f"job {spec.name}: {len(spec.hosts)} hosts, but {len(nics)} NICs")
    qps: list[QpPlan] = []
    for rank, nic in enumerate(nics):
        chosen = _begin_with(spec, rank)
        free = iter(_block_ports(spec.block, set(chosen)))
        for slot, peer in enumerate(p for p in spec.peers(rank) for _ in range(spec.qps)):
            first = chosen[slot] if chosen else next(free)
            ports = (first, *(next(free) for _ in range(ALTERNATES)))
            number = spec.block * _BLOCK_NUMBERS + len(qps) + 1
            to = nics[peer]
            qps.append(QpPlan(number, rank, peer, nic.nic, to.nic, to.address, spec.dscp, ports, nic.address))
    return JobPlan(spec, tuple(nics), tuple(qps))


def _begin_with(spec: JobSpec, rank: int) -> tuple[int, ...]:
    per_rank = spec.qps * len(spec.peers(rank))
    if len(spec.ports) <= per_rank:
        return spec.ports
    return spec.ports[rank * per_rank : (rank + 1) * per_rank]


def _block_ports(block: int, taken: set[int]) -> list[int]:
    first = FIRST_PORT + block * _BLOCK_PORTS
    return [port for port in range(first, first + _BLOCK_PORTS) if port not in taken]
