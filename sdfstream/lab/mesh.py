"""The probe mesh of a lab: the configuration of one agent process that serves every lab host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from sdfstream.lab.plan import FabricPlan
from sdfstream.lab.spec import FabricSpec
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig, VirtualClock


@dataclass(frozen=True, slots=True)
class MeshSpec:
    """The probe mesh over a lab.

    Source ports are swept upward from `first_port`: no knowledge of the fabric's hash is used. With S spines the
    chance that n ports of one pair miss a given spine is (1 − 1/S)^n: 16 ports over 4 spines, 1 %.
    """

    peers_per_nic: int | None = None
    """Far NICs each NIC probes; None: every NIC of its rail."""
    cross_rail_peers: int = 0
    """Far NICs of the next rail that each NIC probes. With two pods whatever leaves a leaf over a spine goes on to the
    one other leaf of its rail: the two links lose alike, and only probes that turn off at the spine tell them apart."""
    ports_per_peer: int = 16
    """Source ports, hence paths, per peer and class."""
    first_port: int = 49_152
    dscps: tuple[int, ...] = (0,)
    rate_hz: float = 16.0
    """Probes per second on every path."""
    size_bytes: int = 128
    reflector_port: int = 862
    flush_ms: int = 50
    liveness_ms: int = 1000
    trace_interval_s: float = 60.0
    trace_rate_hz: float = 100.0
    """TTL-limited packets per second and host; a lab's routers answer all of them."""
    turnaround_ms: float = 4.0
    tick_ms: float = 5.0
    """Longer than that of an agent of one host: one process serves all hosts of a lab."""
    virtual_clocks: Mapping[str, VirtualClock] = field(default_factory=dict)
    """Clocks that are wrong on purpose, by host."""
    watch_rate_hz: float = 100.0
    watch_ports: int = 16
    watch_first_port: int = 49_600
    watch_liveness_ms: int = 50
    """Watch sessions, see `AgentConfig`."""
    large_hz: float = 0.0
    """Probes per second, with packets as large as the lab's MTU, of each NIC pair, see `AgentConfig`."""
    jobs_dir: str = ""
    """Drop directory of jobs, one for all lab hosts."""
    clock_pages: str = "off"
    """Folder of the clock pages of all lab hosts; lab hosts are not this machine, so nowhere by default."""


def peer_offsets(members: int, peers: int | None) -> list[int]:
    """Which members each member of a rail probes, as steps round the ring of hosts.

    The first step is as near to half-way round as keeps the mesh in one piece (coprime to the ring), so that it
    mostly crosses pods; then come the others, far ones first.

    >>> peer_offsets(8, 3)
    [3, 4, 5]
    """
    steps = sorted(range(1, members), key=lambda step: (abs(2 * step - members), step))
    wanted = len(steps) if peers is None else min(peers, len(steps))
    if wanted == 0:
        return []
    connecting = next(step for step in steps if gcd(step, members) == 1)
    chosen = [connecting] + [step for step in steps if step != connecting]
    return chosen[:wanted]


def agent_config(
    plan: FabricPlan, mesh: MeshSpec, netns_path: Callable[[str], str], hosts: Sequence[str]
) -> AgentConfig:
    """One agent process for `hosts` (all lab hosts, or some)."""
    chosen = [host for host in plan.spec.host_names if host in set(hosts)]
    return AgentConfig(
        hosts=tuple(_host(plan, mesh, host, netns_path(host)) for host in chosen),
        reflector_port=mesh.reflector_port,
        flush_ms=mesh.flush_ms,
        liveness_ms=mesh.liveness_ms,
        trace_interval_s=mesh.trace_interval_s,
        trace_rate_hz=mesh.trace_rate_hz,
        turnaround_ms=mesh.turnaround_ms,
        tick_ms=min(mesh.tick_ms, 1e3 / 3 / mesh.rate_hz),
        watch_rate_hz=mesh.watch_rate_hz,
        watch_ports=mesh.watch_ports,
        watch_first_port=mesh.watch_first_port,
        watch_liveness_ms=mesh.watch_liveness_ms,
        large_hz=mesh.large_hz,
        jobs_dir=mesh.jobs_dir,
        clock_pages=mesh.clock_pages,
        spill_bytes=0,  # the next lab has the same hosts, and must not get rows of this one
    )


def _host(plan: FabricPlan, mesh: MeshSpec, host: str, netns: str) -> HostConfig:
    ports = [port for port, _ in plan.ports[host]]
    return HostConfig(
        host=host,
        nics=tuple(NicConfig(p.end, p.device, p.address, netns, "backend") for p in ports),
        sessions=tuple(s for p in ports for s in _sessions(plan, mesh, host, p.device)),
        virtual_clock=mesh.virtual_clocks.get(host),
    )


def _sessions(plan: FabricPlan, mesh: MeshSpec, host: str, device: str) -> list[SessionConfig]:
    ports = tuple(range(mesh.first_port, mesh.first_port + mesh.ports_per_peer))
    return [
        SessionConfig(
            src=f"{host}/{device}",
            dst=peer,
            dst_address=plan.nic(peer).a.address,
            dst_port=mesh.reflector_port,
            source_ports=ports,
            dscp=dscp,
            size_bytes=mesh.size_bytes,
            rate_hz=mesh.rate_hz,
        )
        for peer in _peers(plan.spec, mesh, host, int(device[1:]))
        for dscp in mesh.dscps
    ]


def _peers(spec: FabricSpec, mesh: MeshSpec, host: str, rail: int) -> list[str]:
    names = spec.host_names
    own = names.index(host)

    def far(peers: int | None, rail: int) -> list[str]:
        return [f"{names[(own + step) % len(names)]}/r{rail}" for step in peer_offsets(len(names), peers)]

    crossing = far(mesh.cross_rail_peers, (rail + 1) % spec.rails) if spec.rails > 1 else []
    return far(mesh.peers_per_nic, rail) + crossing
