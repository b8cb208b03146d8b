"""Why a machine has no RDMA device that a program could use, as a sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RdmaFacts:
    """What is there and what is not."""

    devices: tuple[str, ...]
    """In ``/sys/class/infiniband``."""
    has_core: bool
    """The kernel has RDMA at all (``/sys/class/infiniband`` is there)."""
    has_user_access: bool
    """``/dev/infiniband`` has a uverbs device."""
    library: str
    """Why pyverbs cannot be used; empty: it can."""


def why_no_device(facts: RdmaFacts) -> str:
    """The first thing that is missing; empty: a program can use RDMA here."""
    if not facts.has_core:
        return (
            "no RDMA device: the kernel has no RDMA core loaded (module ib_core), so no driver has found a NIC for it"
        )
    if not facts.devices:
        return "no RDMA device: the kernel's RDMA core is loaded, but no driver has registered a device"
    named = ", ".join(facts.devices)
    if not facts.has_user_access:
        return f"RDMA devices ({named}), but programs cannot open them: no /dev/infiniband/uverbs* (module ib_uverbs)"
    if facts.library:
        return f"RDMA devices ({named}), but {facts.library}"
    return ""
