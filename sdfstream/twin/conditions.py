"""What holds during one cell of time: what faults leave of links, hosts, agents and load."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.twin.fabric import TwinFabric, mixed


@dataclass(slots=True)
class Conditions:
    """What holds during one cell of time; `links` + 1 values each (the last stands for no link), or one per host."""

    loss: Float64s
    """Share of packets lost on the link direction, 0..1."""
    capacity: Float64s
    """Share of the speed that is left."""
    cross: Float64s
    """Unresponsive traffic besides, as a share of the speed."""
    thresholds: Float64s
    """ECN thresholds are this many times what they should be."""
    stuck: npt.NDArray[np.bool_]
    """Directions whose far end sends pause frames without end."""
    down: npt.NDArray[np.bool_]
    """(hosts,) the host sends, answers and publishes nothing."""
    mute: npt.NDArray[np.bool_]
    """(hosts,) the agent publishes nothing; its reflector goes on."""
    busy: npt.NDArray[np.bool_]
    """(hosts,) the processor is taken by others."""
    late_s: Float64s
    """(hosts,) what the agent publishes enters the bus so much later."""
    incasts: list[tuple[int, int]] = field(default_factory=list)
    """(receiving NIC, senders)."""
    surge: float = 1.0
    """Factor on the background's demand."""
    inband_us: float = 0.0
    """Queue pairs' packets take so much longer than probes."""
    away: set[int] = field(default_factory=set)
    """Directions that switches send nothing over."""
    salts: dict[str, int] = field(default_factory=dict)
    """Switches that hash anew."""
    polarised: dict[str, float] = field(default_factory=dict)
    """Switches whose hash gives this share of all flows the same value."""
    ports: dict[int, str] = field(default_factory=dict)
    """NIC to the state of its port."""
    hashed: dict[int, float] = field(default_factory=dict)
    """Link direction to the share of all five-tuples of which it drops every packet."""
    largest: dict[int, int] = field(default_factory=dict)
    """Link direction to the largest IP packet that it passes, bytes."""
    longer_us: dict[int, float] = field(default_factory=dict)
    """Link direction to the constant delay that it adds."""
    rewritten: set[int] = field(default_factory=set)
    """Directions on which DSCP is set to 0."""
    corrupting: set[int] = field(default_factory=set)
    """Directions that lose what `loss` says by bit errors, which the port at their far end counts."""

    def stops(self, link: int, flow: np.uint64) -> bool:
        """Whether a direction drops every packet of the five-tuple whose hash is `flow`."""
        share = self.hashed.get(link, 0.0)
        return bool(self.loss[link] >= 1 or (share and is_hit(np.array([flow]), link, share)[0]))


def is_hit(flow: npt.NDArray[np.uint64], link: Int64s | int, share: npt.NDArray[np.floating] | float) -> Bools:
    """Whether a direction's own hash of each five-tuple, uniform over [0, 1), lies below `share`."""
    below: Bools = (mixed(flow, link) >> np.uint64(11)) / 2.0**53 < share
    return below


def calm(fabric: TwinFabric) -> Conditions:
    """Nothing is wrong."""
    n, h = fabric.links + 1, len(fabric.hosts)
    zeros = np.zeros
    return Conditions(
        zeros(n), np.ones(n), zeros(n), np.ones(n), zeros(n, bool), zeros(h, bool), zeros(h, bool), zeros(h, bool),
        zeros(h),
    )  # fmt: skip
