"""What is known of one job at one instant: the input of `why.explain`, made by `jobs.JobBoard.facts`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sdfstream.records.finding import FINDING_KINDS
from sdfstream.records.units import NS_PER_S

STRETCH_S: Final = 5
"""Throughput is compared over stretches of this length; shorter ones show a training step's own rhythm."""
BEFORE_S: Final = 300
LEAST_STRETCHES: Final = 3
"""Fewer stretches before make no usual throughput."""
SLOW: Final = 0.8
"""A job below this share of its own median is slow; closer to 1, its own rhythm is called slow."""
STALE_NS: Final = 5 * NS_PER_S
"""Agents publish liveness every second."""
STALE_SHARD_NS: Final = 25 * NS_PER_S
"""Where only job shards come (every ten seconds)."""


@dataclass(frozen=True, slots=True)
class JobThroughput:
    """Payload acknowledged of all the job's queue pairs together, in stretches of 5 s of reference time."""

    now_bps: float | None = None
    """Over the newest stretch; None: nothing was sent in it."""
    before_bps: float | None = None
    """Median over the stretches before it (before the trouble began, where there is some)."""
    before_n: int = 0
    """How many stretches that median is of; those without anything sent are left out."""
    low_bps: float | None = None
    """The slowest second since the trouble began in which it sent something."""
    age_ns: int | None = None
    """Since the newest window entered the bus; None: none ever did."""


@dataclass(frozen=True, slots=True)
class QpFacts:
    """One queue pair over the newest stretch."""

    qp: str
    src: str
    dst: str
    path: int | None
    rank: int
    peer_rank: int
    rate_bps: float | None
    """Payload acknowledged over the time in which it had something to send; None: it had nothing."""
    owd_ns: float | None
    """Mean of the windows' median one-way delays."""
    err_ns: float | None
    ce_share: float | None
    """Of its packets; None: not reported."""
    resent_share: float | None
    chunks: int
    elements: frozenset[str] = frozenset()
    """Elements of the fabric that its data and answers cross, as suspects of findings are named."""
    armed: bool = False
    """A failover is armed for it."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """Everything that `why.explain` decides by."""

    job: str
    at_ns: int
    state: Literal["running", "ended", "unknown"]
    known: tuple[str, ...] = ()
    """Every job that is known, running ones first."""
    known_at_ns: int | None = None
    """Bus time of which findings and windows speak; None: `at_ns`."""
    name: str = ""
    since_at_ns: int | None = None
    """In this state since."""
    ranks: int = 0
    hosts: tuple[str, ...] = ()
    stale: Mapping[str, int | None] = field(default_factory=dict)
    """Hosts of the job whose agent is silent now, with the age [ns] of its last message."""
    throughput: JobThroughput = JobThroughput()
    qps: tuple[QpFacts, ...] = ()
    findings: tuple[Mapping[str, Any], ...] = ()
    """Open ones that touch the job, the gravest first."""
    ended_findings: tuple[Mapping[str, Any], ...] = ()
    """Those that were resolved within the last ten minutes."""
    elsewhere: int = 0
    """Open findings about the network that do not touch the job."""
    commands: tuple[Mapping[str, Any], ...] = ()
    """Views of `commands` that aim at the job or stand on its findings, the newest first."""
    others: tuple[str, ...] = ()
    """Other running jobs that its findings name, or that are slow now."""


def is_idle(rate: JobThroughput) -> bool:
    """Whether no window of its queue pairs came for a while: none had anything to send, or nobody measures."""
    return rate.age_ns is None or rate.age_ns > 2 * STALE_NS


def is_slow(rate: JobThroughput) -> bool | None:
    """Whether it is below `SLOW` of its own median; None: no median, or no new window."""
    if rate.now_bps is None or not rate.before_bps or rate.before_n < LEAST_STRETCHES or is_idle(rate):
        return None
    return rate.now_bps < SLOW * rate.before_bps


def is_network(finding: Mapping[str, Any]) -> bool:
    """Whether a finding is about links, NICs, ports or how they are set up: not hosts, clocks or our own agents."""
    return FINDING_KINDS[finding["kind"]][0] in ("link", "configuration")
