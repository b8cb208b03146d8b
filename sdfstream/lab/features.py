"""What this machine allows the lab to do, and what is missing, in sentences."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

_EXACT_PATHS = ("fib_multipath_hash_policy", "fib_multipath_hash_fields")


@dataclass(frozen=True, slots=True)
class Features:
    """What a running lab can do."""

    ce_marks: Literal["backlog", "packet-rate"] | None
    """CE by the queue's true backlog (eBPF), by packet rate (nf_tables), or not at all."""
    drops: Literal["ebpf", "nft"] | None
    """What drops packets for black holes and gray loss."""
    exact_paths: bool
    """ECMP hashes the five-tuple and nothing else, so `Fabric.path` is exact."""
    fixed_hash_seed: bool
    """The port-to-path map is the same after every rebuild and on every machine."""
    missing: tuple[str, ...] = ()
    """What is not there, and why."""


def describe(
    drops: Literal["ebpf", "nft"] | None, marks: bool, absent_sysctls: Set[str], reasons: tuple[str, ...]
) -> Features:
    """Features from the engine in use, whether it marks, the settings this kernel lacks, and what was refused."""
    exact = not any(name.endswith(_EXACT_PATHS) for name in absent_sysctls)
    seed = not any(name.endswith("fib_multipath_hash_seed") for name in absent_sysctls)
    missing = list(reasons)
    if not exact:
        missing.append("ECMP by the five-tuple alone (Linux 5.12): paths of connected sockets are not exact")
    if not seed:
        missing.append("a fixed ECMP seed (Linux 6.11): the port-to-path map differs between boots")
    by_engine: dict[str | None, Literal["backlog", "packet-rate"]] = {"ebpf": "backlog", "nft": "packet-rate"}
    return Features(by_engine.get(drops) if marks else None, drops, exact, seed, tuple(missing))
