"""What a person may choose about the mesh plan."""

from __future__ import annotations

from dataclasses import dataclass

from sdfstream.errors import ConfigError
from sdfstream.records.units import NS_PER_S


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """Settings of the mesh plan; durations in ns, rates in probes per second on one session."""

    mesh: str = "off"
    """``auto``: plan the mesh of all agents that say ``mesh: auto``; ``off``: no plan is published."""
    seed: int = 1
    """Another seed, another random graph."""
    degree: int = 10
    """Peers of every clock, at least; up to twice as many clocks all probe one another."""
    clock_rate_hz: float = 16.0
    clock_dscp: int = 0
    """Class of sessions for clocks; best one that queues before everything else."""
    cover_rate_hz: float = 1.0
    """Probes per second on a session that is there to cross a route."""
    cover_dscps: tuple[int, ...] = (0,)
    """Classes in which every route is crossed; none: no coverage. A probe speaks for its own class only."""
    transports: tuple[str, ...] = ("udp",)
    """With ``rocev2`` beside ``udp``, pairs of NICs that UDP probes and that both announce an RDMA device get a session
    by RoCEv2, too, one a pair and direction, at `cover_rate_hz`, as far as both hosts' budgets last."""
    paths_assumed: int = 8
    """Routes between two leaves where neither the declared cabling nor traces show them."""
    cover_probability: float = 0.9
    """Of having met every route with as many source ports as are tried while routes are not known."""
    cross_rail: bool = False
    """Whether NICs of different rails can reach one another through the fabric."""
    epoch_ns: int = 600 * NS_PER_S
    """The graph is redrawn a little this often."""
    redraw_share: float = 0.1
    """At most this share of the clocks' edges is replaced then; 0: never."""
    learn_ns: int = 75 * NS_PER_S
    """A first plan waits at most so long for agents that are alive but have not said yet what they have; they say it at
    their start and once a minute. Too short: a controller that starts anew tears the mesh apart."""
    settle_ns: int = NS_PER_S
    """Agents that come and go within this are one change."""
    trace_settle_ns: int = 30 * NS_PER_S
    """New traces change the plan at most this often, and beyond a thousand NICs in proportion less often."""
    leave_ns: int = 300 * NS_PER_S
    """An agent without a sign of life (or a NIC that was away) for so long has left. Too short: whoever reboots changes
    the mesh twice, and what has died is no longer probed while somebody looks into it."""
    repeat_ns: int = 600 * NS_PER_S
    """What is in force is said again this often; to an agent that obeys something else, as soon as it says so."""
    ways_keep_ns: int = 24 * 3600 * NS_PER_S
    """A trace that was not repeated for so long is forgotten."""
    max_hosts: int = 100_000
    """Agents known at a time; further ones are refused and counted."""
    max_ways: int = 500_000
    """Traces stored; further ones are refused and counted. About 400 bytes each."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work, naming the key."""
        if self.mesh not in ("auto", "off"):
            raise ConfigError(f"plan.mesh must be auto or off, not {self.mesh!r}.")
        if self.degree < 2:
            raise ConfigError(f"plan.degree must be at least 2, not {self.degree}: one edge can fail.")
        for name in ("clock_rate_hz", "cover_rate_hz"):
            if not 0.01 <= getattr(self, name) <= 10_000:
                raise ConfigError(f"plan.{name} must lie within 0.01 and 10000, not {getattr(self, name)}.")
        for dscp in (self.clock_dscp, *self.cover_dscps):
            if not 0 <= dscp <= 63:
                raise ConfigError(f"plan.clock_dscp and plan.cover_dscps must lie within 0 and 63, not {dscp}.")
        if len(set(self.cover_dscps)) < len(self.cover_dscps):
            raise ConfigError("plan.cover_dscps names a class twice.")
        _check_transports(self.transports)
        if not 1 <= self.paths_assumed <= 1024:
            raise ConfigError(f"plan.paths_assumed must lie within 1 and 1024, not {self.paths_assumed}.")
        if not 0 < self.cover_probability < 1:
            raise ConfigError(f"plan.cover_probability must lie between 0 and 1, not {self.cover_probability}.")
        if not 0 <= self.redraw_share <= 1:
            raise ConfigError(f"plan.redraw_share must lie within 0 and 1, not {self.redraw_share}.")
        for name in ("epoch_ns", "leave_ns", "repeat_ns", "ways_keep_ns", "max_hosts", "max_ways"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"plan.{name} must be greater than 0, not {getattr(self, name)}.")
        for name in ("learn_ns", "settle_ns", "trace_settle_ns"):
            if getattr(self, name) < 0:
                raise ConfigError(f"plan.{name} must not be negative, not {getattr(self, name)}.")


def _check_transports(transports: tuple[str, ...]) -> None:
    if "udp" not in transports or set(transports) - {"udp", "rocev2"}:
        raise ConfigError(f"plan.transports is [udp] or [udp, rocev2], not {list(transports)}.")
