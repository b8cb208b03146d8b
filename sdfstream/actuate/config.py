"""The controller's settings; every threshold with its unit and with what breaks when it is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sdfstream.errors import ConfigError
from sdfstream.records.finding import FINDING_KINDS
from sdfstream.records.units import NS_PER_S

Mode = Literal["off", "observe", "dry-run", "approve", "enforce"]


@dataclass(frozen=True, slots=True)
class ActuateConfig:
    """Policies, guards and leases of the controller. Times are in the unit of the name."""

    mode: Mode = "dry-run"
    """off: no controller; observe: nothing is published; dry-run: commands say what would be done, agents do not obey;
    approve: each waits for a person; enforce. An operator's override may change it while the controller runs."""

    failover: bool = True
    """Arm agents beforehand, so that they move a queue pair whose path they find dead."""
    steer_on: tuple[str, ...] = ("congestion", "ecn-marks", "loss")
    """Kinds of finding on a link that queue pairs are moved away from. Kinds about dead links do not belong
    here: the agents deal with those themselves, sooner."""
    steer_collisions: bool = True
    """Also move queue pairs that share a link, without a finding, when a queue stands there and another path is
    free."""
    throttle_incast: bool = False
    """Limit queue pairs that converge on one NIC to their fair share. Off: a limit costs throughput when the senders
    would have shared by themselves."""
    least_confidence: float = 0.5
    """A finding less sure than this moves nothing. Lower: queue pairs leave links that were not to blame."""
    opt_out: tuple[str, ...] = ()
    """Jobs (id or name) that are left alone."""

    lease_s: float = 30.0
    """A command's force without renewal (renewed every third of it). Shorter than an outage of the bus: every such
    outage takes limits away and moves flows back; longer: what a lost controller did stays longer."""
    hold_down_ms: int = 5_000
    """A failed-over queue pair goes back when its former path was clean for this long. Shorter: a flapping link drags
    it along; it is doubled with every move within `breaker_window_s`, up to 64 times."""
    clean_probes: int = 50
    """Probes of the former path that must have been answered before it is called clean again."""
    most_alternates: int = 3
    """Alternates in an armed failover. Each costs its watch in the command's size."""
    most_watch_paths: int = 8
    """Probe paths named per segment of a watch. Fewer: one host's silence looks like a dead segment more easily."""
    watch_interval_ms: float = 25.0
    """Probe paths at least this fast, or half as fast as the fastest, come first in a watch: agents judge by those."""
    rearm_s: float = 1.0
    """A queue pair's armed command is remade for new traces at most this often: while a fault moves paths about,
    every trace changes the picture."""

    route_max_age_s: float = 300.0
    """A route that was not traced again for this long is unknown. Less than two of the agents' `trace_interval_s`
    (60 s), and routes are forgotten while they are still true; more, and a silent re-routing is noticed late."""
    selectable_ports: int = 8
    """Source ports of one NIC pair, all traced on one route, from which the path counts as not selectable. Fewer: an
    unlucky hash looks like one that ignores the port (4 routes: 1 in 4^7 with 8)."""
    selectable_traces: int = 4
    """Complete traces of a NIC pair, both directions together, before its path counts as selectable. Fewer: a fabric
    that sprays packets may have looked consistent by chance."""
    spray_memory_s: float = 600.0
    """For how long a five-tuple that changed its route without a cause counts as evidence of spraying."""
    explain_s: float = 3.0
    """A path that fell silent or came back within this long of a changed route explains it. Shorter than detection
    takes (`liveness_ms` and the bus), and every repair looks like spraying."""

    least_gain: float = 0.2
    """Predicted gain below which nothing is moved (0.2: 20 %). Lower: moves that only exchange queue pairs."""
    kept_gain: float = 0.05
    """Measured gain below which a move is taken back."""
    noise_errors: float = 2.0
    """The gain must also exceed this many standard errors of the measured windows."""
    effect_s: float = 2.0
    """Windows before and after a move that are compared, in seconds of throughput."""
    settle_s: float = 0.5
    """Left out after a move: what was in flight on the old path still counts there."""
    effect_wait_s: float = 15.0
    """A move whose effect could not be measured after this long is taken back."""
    path_ban_s: float = 60.0
    """A path without gain is not tried again by that queue pair for this long; also after a failed command."""
    excess_us: float = 500.0
    """Median delay over their own floor of the probes that cross a link, from which a queue stands there. Near the
    noise of the stamps (user space on a busy host: 100 µs), links look congested by chance."""
    excess_packets: int = 8
    """And at least the time that so many packets of 1,500 octets take at the link's speed: of one that is well used a
    few always wait. Fewer: slow links look congested at half their load."""
    max_err_us: float = 2_000.0
    """Delays with a wider error bar decide nothing. Keep it equal to `detect.max_err_us`."""
    busy_share: float = 0.02
    """A queue pair that moves less than this share of a link's speed is no load on it and gains nothing by a move."""

    stale_s: float = 2.5
    """An agent without a message for this long is not commanded. Agents publish a heartbeat every second: less than
    two of them, and commands are refused by chance."""
    dwell_s: float = 10.0
    """A queue pair is steered at most once in this time: transports need some round trips to find their rate."""
    job_share: float = 0.05
    """Share of a job's queue pairs that may be steered within `dwell_s` (always at least one): a wrong map must not
    hit a whole job at once. Armed failovers do not count."""
    bucket_rate_hz: float = 2.0
    """Steers and limits per second over everything, in the long run."""
    bucket_burst: int = 10
    """And at once."""
    max_leases: int = 20_000
    """Commands in force at once; their renewals must fit into the controller's time (about 0.5 ms each)."""
    breaker_window_s: float = 300.0
    """Time over which the breaker counts outcomes."""
    breaker_bad: int = 5
    """Failed, refused and taken-back commands in that time that may open it …"""
    breaker_share: float = 0.5
    """… when they are also at least this share of all. Open: nothing new is done until a person resets it."""
    approval_s: float = 300.0
    """How long a command waits for approval; what the guard found then is old afterwards."""
    refused_every_s: float = 10.0
    """The same refusal of the same target is published at most this often, and more seldom the longer it lasts."""
    throttle_headroom: float = 0.95
    """Share of the fair share that an incast limit grants. 1: the queue that stands is never drained."""
    throttle_max_s: float = 120.0
    """A limit is not renewed for longer than this, however long its finding is open."""

    seed: int = 1
    """Of the choices among equals."""

    def __post_init__(self) -> None:
        if unknown := [kind for kind in self.steer_on if kind not in FINDING_KINDS]:
            raise ConfigError(f"actuate.steer_on: no finding kind '{unknown[0]}'")
        if self.lease_s < 3:
            raise ConfigError("actuate.lease_s: must be at least 3 s, for it is renewed every third of it")
        if not 0 < self.kept_gain <= self.least_gain:
            raise ConfigError("actuate.kept_gain: must lie between 0 and actuate.least_gain")
        if not 1 <= self.most_alternates <= 8 or self.most_watch_paths < 2:
            raise ConfigError("actuate.most_alternates must be 1..8, actuate.most_watch_paths at least 2")
        if self.selectable_ports < 2 or self.selectable_traces < 1:
            raise ConfigError("actuate.selectable_ports must be at least 2, actuate.selectable_traces at least 1")
        positive = ("effect_s", "excess_us", "bucket_rate_hz", "stale_s", "route_max_age_s", "rearm_s", "approval_s")
        for name in positive:
            if not getattr(self, name) > 0:
                raise ConfigError(f"actuate.{name}: must be above 0")
        if not 0 < self.throttle_headroom <= 1 or not 0 < self.job_share <= 1:
            raise ConfigError("actuate.throttle_headroom, actuate.job_share: must lie between 0 and 1")

    @property
    def lease_ns(self) -> int:
        """`lease_s` in ns."""
        return ns(self.lease_s)

    @property
    def renew_ns(self) -> int:
        """Between two renewals: a third of the lease."""
        return self.lease_ns // 3


def ns(seconds: float) -> int:
    """`seconds` of a setting in ns.

    >>> ns(0.5)
    500000000
    """
    return int(seconds * NS_PER_S)
