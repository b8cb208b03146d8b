"""Settings of the detectors; every default with the reason for it."""

from __future__ import annotations

from dataclasses import dataclass

from sdfstream.errors import ConfigError

_FAST_SETTLE_NS, _LEAST_SETTLE_NS, _MOST_SETTLE_NS = 50_000_000, 250_000_000, 300_000_000
_FAST_NS = 200_000_000


@dataclass(frozen=True, slots=True)
class DetectConfig:
    """Thresholds of all detectors. Times are in the unit of the name."""

    liveness_ms: int = 600
    """A path without an answer for this long (or 3 probe intervals, if longer) is silent where its agent says nothing:
    by rows alone. Agents go by their own `liveness_ms`, and say by which; it need not be the same."""
    settle_ms: int | None = None
    """How long evidence is gathered after the first path fell silent, before blame is laid: the paths of one fault
    fall silent within one probe interval of each other. None: a quarter of the limit that the silent paths' agents go
    by, within 250..300 ms, for a gray loss takes three probes in a row now and then; half of it, at most 50 ms, where
    it is below 200 ms: probes that show silence so soon are that much closer."""
    agent_stale_s: float = 3.0
    """An agent that published nothing for this long is stale; what it watches is unknown."""
    startup_grace_s: float = 10.0
    """A path that never had an answer counts as silent only after this long: its far end may not be up yet."""
    max_paths: int = 200_000
    """Sessions held at once; more are refused and counted."""
    forget_s: float = 3600.0
    """A session without rows and statements for this long is forgotten."""

    excess_us: float | None = None
    """Delay over the path's own floor that counts as a queue. None: learnt, three times the 99th percentile of all
    quiet paths' noise, within 20 µs .. 2 ms."""
    excess_sigmas: float = 8.0
    """The excess must also be this many of the path's own standard deviations: single probes are heavy-tailed."""
    excess_windows: int = 3
    """Windows (of 100 ms) net above the threshold that make a path slow."""
    excess_release: int = 6
    """Windows at rest that make it well again."""
    max_err_us: float = 2000.0
    """A clock error bar wider than this leaves the path's delay unjudged (unknown)."""

    ce_share: float = 0.05
    """Lower bound of the share of marked packets that counts as marks."""
    ce_only_s: float = 1.5
    """Marks without excess delay are reported after this long (the delay estimate comes later than the mark)."""
    loss_share: float = 0.002
    """The most that is taken for the normal loss of a path: until the fabric's own has been learnt, and ever after."""
    loss_normal_least: float = 2e-4
    """The least that is taken for it: healthy round trips lose 0.03-0.08 % of their probes."""
    loss_false_alarm: float = 1e-9
    """Bound on the probability that a normal component looks lossy at one evaluation of one window."""
    rewrite_share: float = 0.5
    """Share of arrivals with another DSCP or ECN than sent that counts as a rewriting device."""

    flap_count: int = 8
    """Urgent when a link went down more often than this within `flap_window_s`."""
    flap_window_s: float = 3600.0
    flap_longest_s: float = 7.0
    """One outage as long as an RDMA transport's retries last (about 7 s) ends jobs."""
    flap_total_s: float = 30.0
    """Outage time in sum within `flap_window_s`."""
    flap_min_downs: int = 2
    """The two outage rules speak of repeated outages only: from this many downs on (1: also of a single one)."""

    port_error_rate_hz: float = 10.0
    """Errors, discards and symbol errors per second from which a port is reported."""
    port_quiet_s: float = 30.0
    """A port's report is resolved after this long without a rise."""
    pause_rate_hz: float = 100.0
    """Pause frames per second from which a port that sends them, where a queue stands, is the root of a PFC storm. A
    frame of the longest pause stops a 10 Gbit/s port for 3.4 ms: 100 a second keep it still for a third of the time."""
    clock_grace_s: float = 15.0
    """A clock that has never been synced is reported after this long."""

    hop_s: float = 1.0
    """Queue and utilisation of each direction of a link are said for spans of this length (``sdf.derived.hop.v1``); 0:
    never. Shorter spans have fewer probes each, and wider errors."""

    update_s: float = 5.0
    """An open finding is repeated with newer evidence at most this often."""
    hold_s: float = 1.0
    """A finding is resolved once its condition has been absent for this long."""

    def __post_init__(self) -> None:
        if self.liveness_ms < 50:
            raise ConfigError("detect.liveness_ms: must be at least 50 ms")
        if self.excess_release < self.excess_windows or self.excess_windows < 1:
            raise ConfigError("detect.excess_release: must be at least detect.excess_windows, which is at least 1")
        if not 0 < self.loss_share < 1 or not 0 < self.loss_false_alarm < 1:
            raise ConfigError("detect.loss_share, detect.loss_false_alarm: must lie between 0 and 1")
        if self.hop_s != 0 and not 0.2 <= self.hop_s <= 60:
            raise ConfigError("detect.hop_s: must be 0, or lie between 0.2 and 60")
        if not 0 < self.loss_normal_least <= self.loss_share:
            raise ConfigError("detect.loss_normal_least: must lie between 0 and detect.loss_share")

    @property
    def liveness_ns(self) -> int:
        """`liveness_ms` in ns."""
        return self.liveness_ms * 1_000_000

    def settle_ns(self, limit_ns: int) -> int:
        """How long blame must stand for paths that are silent by this limit: `settle_ms`, or its default, in ns."""
        if self.settle_ms is not None:
            return self.settle_ms * 1_000_000
        if limit_ns < _FAST_NS:
            return min(limit_ns // 2, _FAST_SETTLE_NS)
        return min(max(limit_ns // 4, _LEAST_SETTLE_NS), _MOST_SETTLE_NS)
