"""Who probes whom: agents' announcements, and the plans that they get.

An agent that takes its sessions from a plan announces which NICs it has (`HostHere`, CloudEvents type `HOST_TYPE` on
the topology topic): at its start, when a NIC comes or goes, often while it has no plan, slowly otherwise. The mesh plan
answers with one `HostPlan` per host (``sdf.state.mesh.v1``).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

from sdfstream.errors import FormatError
from sdfstream.records.fabric import host_of

HOST_TYPE: Final = "sdf.state.topology.host.v1"
PURPOSES: Final[dict[str, str]] = {
    "clock": "an edge of the clocks' graph",
    "coverage": "crosses a way between two leaves, or a NIC's own link",
}
TRANSPORTS: Final = ("udp", "rocev2")
"""Of planned sessions."""
MOST_SESSIONS: Final = 16_384
"""Of one host's plan; more are refused unread."""
MOST_NICS: Final = 256
MOST_NETWORKS: Final = 256

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NicHere:
    """One NIC of an agent."""

    id: str
    """NIC id host/nic."""
    address: str
    clock: str
    """Clock id of its stamps: the host's, or the NIC's own."""
    plane: str | None = None
    usable: bool = True
    """False: its device, address or namespace is away."""
    rdma: str | None = None
    """RDMA device by which it answers RoCEv2 probes."""


@dataclass(frozen=True, slots=True)
class HostHere:
    """An agent that waits for a plan or obeys one; data of `HOST_TYPE`."""

    host: str
    boot_id: str
    """The agent's run."""
    seen_at_ns: int
    """The host's clock."""
    nics: tuple[NicHere, ...]
    budget_pps: float
    """Packets per second that it will send for a plan, probes and answers together."""
    reflector_port: int = 862
    first_port: int = 49_152
    """Source ports that it can use for planned sessions: this one…"""
    ports: int = 32
    """…and so many upward from it."""
    plan: str = ""
    """Version of the plan that it obeys; empty: none."""
    sessions: int = 0
    """Sessions of the plan that it runs."""
    left_out: int = 0
    """Sessions of the plan that it does not run: beyond its budget, or refused."""

    def as_data(self) -> dict[str, Any]:
        """Plain JSON."""
        data: dict[str, Any] = asdict(self)
        data["nics"] = [_given(nic, "rdma", None) for nic in data["nics"]]
        return data


@dataclass(frozen=True, slots=True)
class PlannedSession:
    """One session of a plan: one NIC probes another over one source port."""

    src: str
    dst: str
    address: str
    """IP address of the reflector."""
    port: int
    """UDP port of the reflector."""
    path: int
    """UDP source port."""
    dscp: int
    rate_hz: float
    purpose: str
    """One of `PURPOSES`."""
    transport: str = "udp"
    """``udp`` or ``rocev2``."""


@dataclass(frozen=True, slots=True)
class HostPlan:
    """What one host is to probe, clocks' sessions first; data of ``sdf.state.mesh.v1``."""

    host: str
    version: str
    """Changes when anything else but `epoch` and `drawn_at_ns` does."""
    epoch: int
    """Which redraw of the graph it is of."""
    drawn_at_ns: int
    """Bus time; of two plans the later counts."""
    sessions: tuple[PlannedSession, ...]
    probers: Mapping[str, str] = field(default_factory=dict)
    """Address to NIC id of those that probe this host by the plan."""
    budget_pps: float = 0.0
    send_pps: float = 0.0
    """Probes that it sends by this plan."""
    answer_pps: float = 0.0
    """Answers that others' sessions of this plan ask of it."""
    shortfall: Mapping[str, float] = field(default_factory=dict)
    """What its budget did not allow: ``clock_rate_hz`` (wanted, where less was given), ``coverage_sessions`` (left
    out); empty: nothing."""
    prober_ports: Mapping[str, int] = field(default_factory=dict)
    """Address to UDP port of the reflectors of `probers`: what comes from there is no probe. Not in the version."""
    networks: tuple[str, ...] = ()
    """Networks that hold the mesh's NICs: senders from there are answered, such as watch sessions of jobs. Not part of
    the version: who joins elsewhere changes no other plan."""
    expires_at_ns: int = 0
    """Bus time from which on this statement of the plan is refused; one in force stays so. 0: it has no end."""

    def as_data(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "host": self.host,
            "version": self.version,
            "epoch": self.epoch,
            "drawn_at_ns": self.drawn_at_ns,
            "sessions": [_given(asdict(s), "transport", "udp") for s in self.sessions],
            "probers": dict(self.probers),
            "budget_pps": self.budget_pps,
            "send_pps": self.send_pps,
            "answer_pps": self.answer_pps,
            "shortfall": dict(self.shortfall),
            "prober_ports": dict(self.prober_ports),
            "networks": list(self.networks),
            "expires_at_ns": self.expires_at_ns,
        }


def host_here(data: Mapping[str, Any]) -> HostHere:
    """Read an agent's announcement; unknown fields are ignored.

    Raises
    ------
    FormatError
        ``mesh-host``: a field is absent, has the wrong type or cannot be; the detail names it.
    """
    read = _Reader("mesh-host", data)
    host = read.text("host")
    nics = read.many("nics", MOST_NICS, lambda r: _nic(r, host))
    if len({nic.id for nic in nics}) < len(nics):
        raise FormatError("mesh-host", "a NIC stands twice")
    first, ports = read.whole("first_port", 1, 65_535, 49_152), read.whole("ports", 1, 1024, 32)
    if first + ports > 65_536:
        raise FormatError("mesh-host", f"there are no {ports} ports from {first} on")
    return HostHere(
        host=host,
        boot_id=read.text("boot_id", ""),
        seen_at_ns=read.whole("seen_at_ns", 0, 1 << 62, 0),
        nics=nics,
        budget_pps=read.number("budget_pps", 1.0, 1e9),
        reflector_port=read.whole("reflector_port", 1, 65_535, 862),
        first_port=first,
        ports=ports,
        plan=read.text("plan", ""),
        sessions=read.whole("sessions", 0, 1 << 32, 0),
        left_out=read.whole("left_out", 0, 1 << 32, 0),
    )


def _nic(read: _Reader, host: str) -> NicHere:
    nic, clock = read.text("id"), read.text("clock", "") or host
    if host_of(nic) != host or not nic.partition("/")[2]:
        raise FormatError("mesh-host", f"{nic} is no NIC of {host}")
    if clock not in (host, nic):  # else one agent could take another's node in the graph
        raise FormatError("mesh-host", f"{clock} is no clock of {nic}")
    usable, device = read.truth("usable", True), read.maybe_text("rdma")
    return NicHere(nic, read.address("address"), clock, read.maybe_text("plane"), usable, device)


def _given(data: dict[str, Any], name: str, default: object) -> dict[str, Any]:
    """`data` without the field where it says nothing new: a plan without RoCEv2 has the bytes it always had."""
    if data[name] == default:
        del data[name]
    return data


def host_plan(data: Mapping[str, Any]) -> HostPlan:
    """Read a plan; unknown fields are ignored.

    Raises
    ------
    FormatError
        ``mesh-plan``: a field is absent, has the wrong type or cannot be; the detail names it.
    """
    read = _Reader("mesh-plan", data)
    probers, shortfall = data.get("probers", {}), data.get("shortfall", {})
    if not isinstance(probers, Mapping) or not all(_is_prober(k, v) for k, v in probers.items()):
        raise FormatError("mesh-plan", "probers must be addresses and NIC ids")
    return HostPlan(
        host=read.text("host"),
        version=read.text("version"),
        epoch=read.whole("epoch", 0, 1 << 62),
        drawn_at_ns=read.whole("drawn_at_ns", 0, 1 << 62),
        sessions=read.many("sessions", MOST_SESSIONS, _session),
        probers={str(k): str(v) for k, v in probers.items()},
        budget_pps=read.number("budget_pps", 0.0, 1e12, 0.0),
        send_pps=read.number("send_pps", 0.0, 1e12, 0.0),
        answer_pps=read.number("answer_pps", 0.0, 1e12, 0.0),
        shortfall=dict(shortfall) if isinstance(shortfall, Mapping) else {},
        prober_ports=_prober_ports(data.get("prober_ports", {})),
        networks=_networks(data.get("networks", ())),
        expires_at_ns=read.whole("expires_at_ns", 0, 1 << 62, 0),
    )


def _prober_ports(raw: Any) -> dict[str, int]:
    if not isinstance(raw, Mapping) or not all(type(v) is int and 0 < v < 65_536 for v in raw.values()):
        raise FormatError("mesh-plan", "prober_ports must be addresses and UDP ports")
    return {str(k): v for k, v in raw.items()}


def _networks(raw: Any) -> tuple[str, ...]:
    if not isinstance(raw, list | tuple) or len(raw) > MOST_NETWORKS:
        raise FormatError("mesh-plan", f"networks must be a list of at most {MOST_NETWORKS}")
    try:
        return tuple(str(ipaddress.ip_network(network)) for network in raw if isinstance(network, str))
    except ValueError as error:
        raise FormatError("mesh-plan", f"networks: {error}") from error


def _is_prober(address: Any, nic: Any) -> bool:
    try:
        ipaddress.ip_address(str(address))
    except ValueError:
        return False
    return isinstance(nic, str)


def _session(read: _Reader) -> PlannedSession:
    purpose = read.text("purpose")
    if purpose not in PURPOSES:
        raise FormatError("mesh-plan", f"purpose must be one of {', '.join(PURPOSES)}, not {purpose!r}")
    transport = read.text("transport", "udp")
    if transport not in TRANSPORTS:
        raise FormatError("mesh-plan", f"transport must be one of {', '.join(TRANSPORTS)}, not {transport!r}")
    return PlannedSession(
        src=read.text("src"),
        dst=read.text("dst"),
        address=read.address("address"),
        port=read.whole("port", 1, 65_535),
        path=read.whole("path", 1, 65_535),
        dscp=read.whole("dscp", 0, 63),
        rate_hz=read.number("rate_hz", 0.001, 1e5),
        purpose=purpose,
        transport=transport,
    )


class _Reader:
    """Takes fields out of one JSON object."""

    def __init__(self, reason: str, data: Any) -> None:
        self._reason = reason
        if not isinstance(data, Mapping):
            raise FormatError(reason, "not a JSON object")
        self._data = data

    def text(self, key: str, default: str | None = None) -> str:
        value = self._data.get(key, default)
        if not isinstance(value, str) or (default is None and not value):
            raise self._wrong(key, "text", value)
        return value

    def maybe_text(self, key: str) -> str | None:
        return None if self._data.get(key) is None else self.text(key)

    def truth(self, key: str, default: bool) -> bool:
        value = self._data.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def address(self, key: str) -> str:
        value = self.text(key)
        try:
            ipaddress.ip_address(value)
        except ValueError:
            raise self._wrong(key, "an IP address", value) from None
        return value

    def whole(self, key: str, least: int, most: int, default: int | None = None) -> int:
        value = self._data.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._wrong(key, f"a whole number from {least} to {most}", value)
        return value

    def number(self, key: str, least: float, most: float, default: float | None = None) -> float:
        value = self._data.get(key, default)
        wrong = not isinstance(value, int | float) or isinstance(value, bool)
        if wrong or not least <= value <= most:  # nor is NaN
            raise self._wrong(key, f"a number from {least:g} to {most:g}", value)
        return float(value)

    def many(self, key: str, most: int, one: Callable[[_Reader], T]) -> tuple[T, ...]:
        value = self._data.get(key)
        if not isinstance(value, list | tuple) or len(value) > most:
            raise self._wrong(key, f"a list of at most {most}", type(value).__name__)
        return tuple(one(_Reader(self._reason, item)) for item in value)

    def _wrong(self, key: str, what: str, value: Any) -> FormatError:
        return FormatError(self._reason, f"{key} must be {what}, not {value!r:.80}")
