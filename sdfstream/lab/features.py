"""Features of a running lab on this machine, and the missing ones in sentences."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Literal, Protocol

from sdfstream.lab.spec import FabricSpec


class PacketEngine(Protocol):
    """The engine that drops and marks packets (`kernel.wire_io`), as far as needed here."""

    @property
    def name(self) -> Literal["ebpf", "nft"]:
        """Its name in `Features.drops`."""

    def marks(self, spec: FabricSpec) -> bool:
        """Whether it can set CE in this fabric's packets."""


_EXACT_PATHS = ("fib_multipath_hash_policy", "fib_multipath_hash_fields")


@dataclass(frozen=True, slots=True)
class Features:
    """Features of a running lab."""

    ce_marks: Literal["backlog", "packet-rate"] | None
    """CE by the queue's true backlog (eBPF), by packet rate (nf_tables), or not at all."""
    drops: Literal["ebpf", "nft"] | None
    """The engine that drops packets for black holes and gray loss."""
    exact_paths: bool
    """ECMP hashes the five-tuple and nothing else, so `Fabric.path` is exact."""
    fixed_hash_seed: bool
    """The port-to-path map is the same after every rebuild and on every machine."""
    missing: tuple[str, ...] = ()
    """Missing features, and why."""


def describe(
    spec: FabricSpec, engine: PacketEngine | None, absent_sysctls: Set[str], reasons: Sequence[str]
) -> Features:
    """Features from the engine in use, the kernel settings that are absent, and why better engines were refused."""
    exact = not any(name.endswith(_EXACT_PATHS) for name in absent_sysctls)
    seed = not any(name.endswith("fib_multipath_hash_seed") for name in absent_sysctls)
    marks = engine is not None and engine.marks(spec) and spec.ce_threshold_bytes > 0
    missing = list(reasons)
    if engine is not None and not engine.marks(spec):
        missing.append(f"CE marks over IPv{spec.ip_version} ({engine.name})")
    if not exact:
        missing.append("ECMP by the five-tuple alone (Linux 5.12): paths of connected sockets are not exact")
    elif spec.ip_version == 6:
        missing.append("exact IPv6 paths of connected sockets: their random hash goes into ECMP")
    if not seed:
        missing.append("a fixed ECMP seed (Linux 6.11): the port-to-path map differs between boots")
    by_engine: dict[str, Literal["backlog", "packet-rate"]] = {"ebpf": "backlog", "nft": "packet-rate"}
    ce_marks = by_engine[engine.name] if engine is not None and marks else None
    return Features(ce_marks, engine.name if engine else None, exact, seed, tuple(missing))
