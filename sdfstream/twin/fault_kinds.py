"""Kinds of fault: what each happens to, what it does to the conditions of a cell, and its parameters' defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from sdfstream.twin.conditions import Conditions
from sdfstream.twin.fabric import TwinFabric

if TYPE_CHECKING:
    from sdfstream.twin.faults import TwinFault


def _lose(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.loss[fault.links] = np.maximum(now.loss[fault.links], fault.value("share"))


def _cut(fault: TwinFault, at_s: float, now: Conditions, fabric: TwinFabric) -> None:
    now.loss[fault.links] = 1.0
    if fault.target in fabric.nics and fault.direction == "both":
        now.ports[fabric.nics.index(fault.target)] = "down"
    if fault.spec.reroute_s is not None and at_s >= fault.spec.at + fault.spec.reroute_s:
        now.away |= {k ^ side for k in fault.links for side in (0, 1)}


def _host_down(fault: TwinFault, _: float, now: Conditions, fabric: TwinFabric) -> None:
    now.loss[fault.links] = 1.0
    now.down[fabric.hosts.index(fault.target)] = True


def _cross(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.cross[fault.links] += fault.value("share")


def _incast(fault: TwinFault, _: float, now: Conditions, fabric: TwinFabric) -> None:
    now.incasts.append((fabric.nics.index(fault.target), fault.spec.senders))


def _stick(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.stuck[fault.links] = True
    now.capacity[fault.links] = fault.value("share")


def _slow(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.capacity[fault.links] = fault.value("share")


def _mistune(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    """Traffic besides shows it: thresholds too high need a queue, of those too low a link that is in use is enough."""
    now.thresholds[fault.links] = fault.value("share")
    now.cross[fault.links] += 1.1 if fault.value("share") > 1 else 0.4


def _inband(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.inband_us = fault.value("us")


def _nothing(_: TwinFault, __: float, ___: Conditions, ____: TwinFabric) -> None:
    """Acts elsewhere: a clock's step or drift is part of the clock, swapped cables are part of the fabric."""


def _mute(fault: TwinFault, _: float, now: Conditions, fabric: TwinFabric) -> None:
    now.mute[fabric.hosts.index(fault.target)] = True


def _late(fault: TwinFault, _: float, now: Conditions, fabric: TwinFabric) -> None:
    now.late_s[fabric.hosts.index(fault.target)] = fault.value("us") / 1e6


def _busy(fault: TwinFault, _: float, now: Conditions, fabric: TwinFabric) -> None:
    now.busy[fabric.hosts.index(fault.target)] = True


def _rehash(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.salts[fault.target] = 1


def _polarise(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.polarised[fault.target] = fault.value("share")


def _drop_by_hash(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.hashed |= dict.fromkeys(fault.links, fault.value("share"))


def _pass_small(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.largest |= dict.fromkeys(fault.links, int(fault.value("octets")))


def _degrade(fault: TwinFault, at_s: float, now: Conditions, __: TwinFabric) -> None:
    """Loss rises from 0 to the share over the fault's time, or over `DEGRADES_S` and stays, where it has no end."""
    over_s = DEGRADES_S if fault.spec.lasts is None else fault.spec.lasts
    share = fault.value("share") * min((at_s - fault.spec.at) / over_s, 1.0)
    now.loss[fault.links] = np.maximum(now.loss[fault.links], share)
    now.corrupting |= set(fault.links)


def _remark(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.rewritten |= set(fault.links)


def _lengthen(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.longer_us |= dict.fromkeys(fault.links, fault.value("us"))


def _surge(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.surge = fault.value("share")


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault: what it happens to, what it does, and its parameters where a scenario gives none."""

    about: str
    on: str
    """link, nic, inbound (a NIC's own ingress), cables (of a NIC and of one on another leaf), host, switch, leaf,
    hashing leaf (its links are the uplink that its flows crowd on), job or fabric."""
    act: Callable[[TwinFault, float, Conditions, TwinFabric], None]
    benign: bool = False
    share: float = 1.0
    us: float = 0.0
    every_s: float = 0.0
    up_s: float = 0.0
    octets: int = 0


DEGRADES_S: Final = 30.0
KINDS: Final[Mapping[str, FaultKind]] = {
    "nic-down": FaultKind("a NIC passes nothing, its port loses its carrier", "nic", _cut),
    "host-down": FaultKind("a host is dead, its agent with it", "host", _host_down),
    "link-down": FaultKind("a fabric link passes nothing; healed by rerouting where reroute_s says so", "link", _cut),
    "switch-down": FaultKind("a switch passes nothing", "switch", _cut),
    "flap": FaultKind("a NIC's cable goes down and comes back", "nic", _cut, every_s=2.0, up_s=0.6),
    "link-flap": FaultKind("a fabric link goes down and comes back", "link", _cut, every_s=2.0, up_s=0.6),
    "gray-loss": FaultKind("a link loses a share of what crosses it", "link", _lose, share=0.02),
    "hash-loss": FaultKind("a link drops all packets of a share of five-tuples", "link", _drop_by_hash, share=1 / 3),
    "mtu": FaultKind("a link drops packets larger than so many octets", "link", _pass_small, octets=1500),
    "optic-degrading": FaultKind("a link loses more and more by bit errors", "link", _degrade, share=0.02),
    "remark": FaultKind("a link sets the DSCP of all packets to 0", "link", _remark),
    "miscabled": FaultKind("two NICs are plugged into each other's leaf, from the start", "cables", _nothing),
    "congested-link": FaultKind("unresponsive traffic takes a link", "link", _cross, share=1.1),
    "incast": FaultKind("many senders, one receiver, for as long as the fault lasts", "inbound", _incast),
    "bursts": FaultKind("an incast of 200 ms every 30 s", "inbound", _incast, every_s=30.0, up_s=0.2),
    "pfc-storm": FaultKind("a NIC sends pause frames without end; pauses spread", "inbound", _stick, share=0.02),
    "slow-nic": FaultKind("a NIC moves its data at a share of its speed", "nic", _slow, share=0.1),
    "ecn-mistuned": FaultKind("a congested link marks far too late", "link", _mistune, share=20.0),
    "ecn-early": FaultKind("a link marks packets that hardly waited", "link", _mistune, share=0.001),
    "ecmp-imbalance": FaultKind("a leaf hashes most flows to one uplink", "hashing leaf", _polarise, share=0.8),
    "rocev1": FaultKind("queue pairs take RoCEv1: 250 µs in band, 10 µs for probes", "job", _inband, us=240.0),
    "clock-step": FaultKind("a host's clock steps", "host", _nothing, us=250.0),
    "clock-faulty": FaultKind("a host's clock runs off, so many µs a second", "host", _nothing, us=50.0),
    "agent-dead": FaultKind("an agent publishes nothing more; its reflector answers", "host", _mute),
    "agent-late": FaultKind("what an agent publishes comes late", "host", _late, us=2e6),
    "reroute": FaultKind("a leaf hashes its flows anew", "leaf", _rehash, benign=True),
    "asymmetry": FaultKind("a direction takes longer, by another route", "link", _lengthen, benign=True, us=20.0),
    "load-surge": FaultKind("planned load: all flows ask for more", "fabric", _surge, benign=True, share=2.0),
    "busy-cpu": FaultKind("a host's processors are taken by others", "host", _busy, benign=True),
}
BENIGN: Final = frozenset(name for name, kind in KINDS.items() if kind.benign)
