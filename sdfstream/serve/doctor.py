"""What a host can do for an agent and a pipeline: facts in, one line each out, with what to do about it. Pure.

A check is ``good``, ``limited`` (it works, and less well) or ``missing`` (what needs it does not work); what could not
be found out is ``unknown``, never good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

State = Literal["good", "limited", "missing", "unknown"]
SHAPES: Final[dict[str, str]] = {"good": "●", "limited": "◐", "missing": "✖", "unknown": "?"}
WANTED_BUFFER_BYTES: Final = 4 << 20
"""Receive buffer of a probe socket: stamps of sent packets are charged to it."""
WANTED_FILES: Final = 4096
CAPABILITIES: Final[dict[int, tuple[str, str]]] = {
    12: ("CAP_NET_ADMIN", "hardware stamps are switched on and kernel flows are steered"),
    13: ("CAP_NET_RAW", "sockets are bound to NICs on old kernels, and routes of TCP flows are traced"),
    23: ("CAP_SYS_NICE", "an agent's packets go before other work"),
}
"""Number of a Linux capability: name, and what needs it."""
_NO_RDMA: Final = "an agent's RoCEv2 sessions wait for it, its UDP sessions do not; see `sdfstream rdma show`"
_SOFTWARE_TX, _SOFTWARE_RX, _HARDWARE = 0x02, 0x08, 0x45


@dataclass(frozen=True, slots=True)
class Check:
    """One line."""

    name: str
    state: State
    found: str
    do: str = ""
    """What to do about it; empty where nothing has to be."""

    def as_data(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What was found; None: it could not be found out."""

    nic_stamps: Mapping[str, int]
    """SOF_TIMESTAMPING bits that each NIC's driver offers."""
    stamped: bool | None
    """Whether the kernel stamped a packet over loopback."""
    buffer_bytes: int | None
    """Receive buffer that a socket got."""
    files: int | None
    """Most open files."""
    capabilities: int | None
    """Effective capabilities, a bit each."""
    rtprio: int | None
    """Highest real-time priority that may be asked for without a capability."""
    engine: str | None
    """Why there is no packet engine in C; empty: there is one."""
    rdma: str | None
    """Why there is no RDMA; empty: there is some."""
    namespaces: bool | None
    """Whether network namespaces can be made here."""
    clocksource: str | None


def checks(facts: HostFacts) -> Iterator[Check]:
    """Every check, the most needed first."""
    yield _stamps(facts)
    yield from _hardware(facts)
    yield _buffer(facts)
    yield _files(facts)
    yield from _privileges(facts)
    yield _priority(facts)
    yield _clock(facts)
    yield _reasoned(
        "packet engine",
        facts.engine,
        "compiled C",
        "numpy serves instead, at more CPU; needs cc (Debian: gcc libc6-dev) and a cache folder",
        "limited",
    )
    yield _reasoned("RDMA", facts.rdma, "there are devices", _NO_RDMA, "limited")
    yield _namespaces(facts)


def line_of(check: Check) -> str:
    """For people.

    >>> line_of(Check("open files", "limited", "1024", "raise it"))
    '◐ open files        1024: raise it'
    """
    return f"{SHAPES[check.state]} {check.name:<17} {check.found}" + (f": {check.do}" if check.do else "")


def _stamps(facts: HostFacts) -> Check:
    if facts.stamped is None:
        return Check("kernel stamps", "unknown", "no packet could be sent over loopback", "is the interface lo up?")
    if facts.stamped:
        return Check("kernel stamps", "good", "the kernel stamps packets as they arrive")
    return Check("kernel stamps", "missing", "none", "delays would hold the time of the scheduler: use another kernel")


def _hardware(facts: HostFacts) -> Iterator[Check]:
    if not facts.nic_stamps:
        yield Check("NIC stamps", "unknown", "no NIC but loopback is seen", "run it where the NICs are (host network)")
    for nic, offered in sorted(facts.nic_stamps.items()):
        name = f"NIC {nic}"
        if offered & _HARDWARE == _HARDWARE:
            yield Check(name, "good", "stamps in hardware, both ways")
        elif offered & _SOFTWARE_TX and offered & _SOFTWARE_RX:
            yield Check(name, "good", "stamps in the kernel, both ways")
        elif offered & _SOFTWARE_RX:
            yield Check(name, "limited", "no stamp of what is sent", "its driver lacks it: expect wider error bars")
        else:
            yield Check(name, "unknown", "its driver does not say what it stamps", "compare error bars in `status`")


def _buffer(facts: HostFacts) -> Check:
    got = facts.buffer_bytes
    if got is None:
        return Check("socket buffers", "unknown", "no socket could be opened")
    if got >= WANTED_BUFFER_BYTES:
        return Check("socket buffers", "good", f"{got >> 10} KiB")
    advice = f"sysctl -w net.core.rmem_max={WANTED_BUFFER_BYTES}, or give CAP_NET_ADMIN"
    return Check("socket buffers", "limited", f"{got >> 10} KiB", f"many paths at once may lose stamps; {advice}")


def _files(facts: HostFacts) -> Check:
    if facts.files is None:
        return Check("open files", "unknown", "the limit cannot be read")
    if facts.files >= WANTED_FILES:
        return Check("open files", "good", str(facts.files))
    return Check("open files", "limited", str(facts.files), f"LimitNOFILE={WANTED_FILES}: a socket a path and port")


def _privileges(facts: HostFacts) -> Iterator[Check]:
    for bit, (name, what) in CAPABILITIES.items():
        if facts.capabilities is None:
            yield Check(name, "unknown", "/proc cannot be read")
        elif facts.capabilities >> bit & 1:
            yield Check(name, "good", "given")
        else:
            yield Check(name, "limited", "not given", f"with it {what}; AmbientCapabilities={name}")


def _priority(facts: HostFacts) -> Check:
    if facts.rtprio is None or facts.capabilities is None:
        return Check("real-time priority", "unknown", "the limit cannot be read")
    if facts.capabilities >> 23 & 1 or facts.rtprio > 0:
        return Check("real-time priority", "good", "may be asked for")
    return Check("real-time priority", "limited", "not allowed", "LimitRTPRIO=1 or CAP_SYS_NICE, on busy hosts")


def _clock(facts: HostFacts) -> Check:
    if facts.clocksource is None:
        return Check("clock source", "unknown", "the kernel does not say")
    if facts.clocksource in ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"):
        return Check("clock source", "good", facts.clocksource)
    return Check("clock source", "limited", facts.clocksource, "it is slow to read; tsc, where the CPU's is stable")


def _reasoned(name: str, why_not: str | None, good: str, do: str, otherwise: State) -> Check:
    if why_not is None:
        return Check(name, "unknown", "it could not be found out")
    return Check(name, otherwise, why_not, do) if why_not else Check(name, "good", good)


def _namespaces(facts: HostFacts) -> Check:
    if facts.namespaces is None:
        return Check("namespaces", "unknown", "it could not be tried")
    if facts.namespaces:
        return Check("namespaces", "good", "a lab can be made: `sdfstream demo` runs on real packets")
    do = "as root, or sysctl -w kernel.unprivileged_userns_clone=1; agents and pipelines do without"
    return Check("namespaces", "limited", "none can be made: the demo replays a recording", do)
