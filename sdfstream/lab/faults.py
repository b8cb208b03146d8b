"""Faults of a lab as data: what each kind does to ports and directions, and its line of truth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.errors import ConfigError
from sdfstream.lab.plan import Cable, FabricPlan, Port
from sdfstream.lab.setup import LEAST_MTU_BYTES, MTU_BYTES
from sdfstream.records.fabric import host_of

KINDS: Final[dict[str, str]] = {
    "link-down": "one end is set down by its administrator; both ends lose their carrier",
    "black-hole": "every packet is dropped, carrier stays up",
    "gray-loss": "a share of the packets is dropped, carrier stays up",
    "flap": "the link goes down and comes back, several times",
    "miscabled": "the cables of a host's rails 0 and 1 are swapped at the leaves",
    "mtu": "both ends have a smaller MTU: larger packets are dropped (none may be fragmented), smaller ones pass",
    "congestion": "cross traffic at a multiple of the link's rate",
}


FAULT_MTU_BYTES: Final = 1_300
"""MTU of a link with the fault ``mtu``, unless it is said: above the least of IPv6, below the lab's."""


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects of an active fault, by interface index, which survives re-cabling."""

    down: frozenset[int] = frozenset()
    """Ports set down."""
    loss: Mapping[int, float] = field(default_factory=dict)
    """Share of packets lost, 0..1, by sending port."""
    swapped: frozenset[str] = frozenset()
    """Hosts whose cables are swapped."""
    mtu_bytes: Mapping[int, int] = field(default_factory=dict)
    """MTU by port, where it is not the lab's."""


@dataclass(slots=True)
class Fault:
    """One injected fault; its fields are those of a line of ``truth/faults.jsonl``."""

    id: str
    kind: str
    target: str
    direction: str | None
    at_ns: int
    """Just before the first change, ns since the Unix epoch, the machine's clock."""
    healed_at_ns: int | None = None
    parameters: dict[str, Any] = field(default_factory=dict)

    def truth(self) -> dict[str, Any]:
        """The line of truth."""
        return {
            "id": self.id,
            "kind": self.kind,
            "target": self.target,
            "direction": self.direction,
            "at_ns": self.at_ns,
            "healed_at_ns": self.healed_at_ns,
            "parameters": self.parameters,
        }


def effects(
    plan: FabricPlan, kind: str, target: str, share: float, end: str | None, octets: int = FAULT_MTU_BYTES
) -> Effects:
    """The effects of a fault of `kind` on `target`.

    Parameters
    ----------
    plan : FabricPlan
        Cabling as it is now.
    kind : str
        One of `KINDS`, congestion excepted (that is traffic, not an effect on ports).
    target : str
        NIC, link, direction or node (all its links); for ``miscabled`` a host.
    share : float, 0..1
        Lost share for ``gray-loss``.
    end : str or None
        The end that is set down, as named in the link id; None: the leaf's (so that a NIC loses its carrier
        rather than being disabled).
    octets : int
        Largest IP packet that passes, for ``mtu``.

    Raises
    ------
    ConfigError
        The target does not exist or cannot have this fault.
    """
    if kind == "miscabled":
        return Effects(swapped=frozenset({_swappable(plan, target)}))
    cables = plan.targets(target)
    if kind in ("link-down", "flap"):
        if target in plan.by_direction:
            raise ConfigError(f"{kind} takes both directions of a link; use black-hole for {target} alone")
        return Effects(down=frozenset(_end(cable, end).ifindex for cable in cables))
    if kind == "mtu":
        return Effects(mtu_bytes=_small_mtus(plan, target, cables, octets))
    if kind == "black-hole":
        return Effects(loss=dict.fromkeys(_senders(plan, target, cables), 1.0))
    if kind == "gray-loss":
        if not 0.0 < share <= 1.0:
            raise ConfigError(f"the lost share of gray-loss must be above 0 and at most 1, not {share}")
        return Effects(loss=dict.fromkeys(_senders(plan, target, cables), share))
    raise ConfigError(f"no such fault: {kind!r}; one of {', '.join(KINDS)}")


def combined(held: Iterable[Effects]) -> Effects:
    """The effects of several faults together; independent losses combine to 1 − ∏(1 − share), MTUs to the least."""
    down: set[int] = set()
    swapped: set[str] = set()
    passed: dict[int, float] = {}
    mtus: dict[int, int] = {}
    for one in held:
        down |= one.down
        swapped |= one.swapped
        for ifindex, share in one.loss.items():
            passed[ifindex] = passed.get(ifindex, 1.0) * (1.0 - share)
        for ifindex, mtu_bytes in one.mtu_bytes.items():
            mtus[ifindex] = min(mtu_bytes, mtus.get(ifindex, mtu_bytes))
    return Effects(frozenset(down), {ifindex: 1.0 - p for ifindex, p in passed.items()}, frozenset(swapped), mtus)


def dead_ports(plan: FabricPlan, down: Iterable[int]) -> frozenset[int]:
    """Both ends of every cable that has an end set down: ports without carrier."""
    pairs = (plan.by_ifindex[ifindex] for ifindex in down)
    return frozenset(port.ifindex for pair in pairs for port in pair)


def _small_mtus(plan: FabricPlan, target: str, cables: list[Cable], octets: int) -> dict[int, int]:
    if target in plan.by_direction:
        raise ConfigError(f"mtu takes both directions of a link, not {target} alone")
    if not LEAST_MTU_BYTES <= octets < MTU_BYTES:
        raise ConfigError(f"the MTU of a fault must be {LEAST_MTU_BYTES}..{MTU_BYTES - 1} octets, not {octets}")
    return {port.ifindex: octets for cable in cables for port in (cable.a, cable.b)}


def _senders(plan: FabricPlan, target: str, cables: list[Cable]) -> list[int]:
    if target in plan.by_direction:
        return [plan.by_direction[target][0].ifindex]
    return [port.ifindex for cable in cables for port in (cable.a, cable.b)]


def _end(cable: Cable, end: str | None) -> Port:
    if end is None:
        return cable.a if cable.is_fabric else cable.b
    for port in (cable.a, cable.b):
        if end == port.end:
            return port
    raise ConfigError(f"{end!r} is no end of {cable.link}")


def _swappable(plan: FabricPlan, target: str) -> str:
    host = host_of(target)
    if plan.kinds.get(host) != "host":
        raise ConfigError(f"miscabled needs a host such as h03, not {target!r}")
    if plan.spec.rails < 2:
        raise ConfigError("miscabled needs two rails: it swaps two cables of one host")
    return host
