"""The configuration of an agent that is given nothing but peers: two hosts, no configuration file.

Both ends must call a NIC the same, or their recordings could not be put together. So in a trial a NIC is called
``host/address``, and a host is called by its address towards its first peer unless it is given a name. Two machines
that name each other's address therefore agree; a host with a name (``--name``) is given to its peers with that name
(``NAME=ADDRESS``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sdfstream.errors import ConfigError
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig


class Peer(NamedTuple):
    """A far host as typed: ``[NAME=]HOST[:PORT]``, an IPv6 address with a port in brackets."""

    name: str | None
    host: str
    port: int | None


@dataclass(frozen=True, slots=True)
class TrialConfig:
    """Ports, rate and packets of a trial's probes."""

    port: int = 8620
    """UDP port of the reflector, here and (unless a peer has its own) there; above 1023, so no root is needed."""
    first_path: int = 49152
    paths: int = 4
    """Source ports per peer."""
    rate_hz: float = 16.0
    dscp: int = 0
    size_bytes: int = 128


class PeerRoute(NamedTuple):
    """A peer, and the local address and device that reach it."""

    peer: Peer
    address: str
    """The peer's."""
    own_address: str
    device: str


def parse_peer(text: str) -> Peer:
    """Read one ``--peer``.

    Examples
    --------
    >>> parse_peer("gpu-2=10.0.0.2:9000")
    Peer(name='gpu-2', host='10.0.0.2', port=9000)
    >>> parse_peer("fd00::2")
    Peer(name=None, host='fd00::2', port=None)

    Raises
    ------
    ConfigError
        It is malformed.
    """
    name, equals, rest = text.partition("=")
    if not equals:
        name, rest = "", text
    host, port = _host_and_port(rest)
    wrong_name = equals and not re.fullmatch(r"[^/\s:]+", name)
    if not host or wrong_name or (port and not (port.isdigit() and 0 < int(port) < 65_536)):
        raise ConfigError(f"peer {text!r} must be HOST, HOST:PORT, [IPV6]:PORT, each perhaps after NAME=")
    return Peer(name or None, host, int(port) if port else None)


def _host_and_port(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, port.removeprefix(":")
    if text.count(":") > 1:
        return text, ""  # an IPv6 address
    host, _, port = text.partition(":")
    return host, port


def nic_id(host: str | None, address: str) -> str:
    """The NIC with `address`; a host without a name is called by that address.

    >>> nic_id(None, "fd00::2")
    'fd00__2/fd00__2'
    """
    label = address.replace(":", "_")
    return f"{host or label}/{label}"


def build(
    name: str | None, routes: Sequence[PeerRoute], trial: TrialConfig, *, reflect_only: bool = False
) -> AgentConfig:
    """The configuration of this host's agent.

    Raises
    ------
    ConfigError
        No route, or two peers with the same address.
    """
    if not routes:
        raise ConfigError("no peer is given")
    host = name or nic_id(None, routes[0].own_address).partition("/")[0]
    addresses = [route.address for route in routes]
    if len(set(addresses)) < len(addresses):
        raise ConfigError("two peers have the same address")
    nics = {
        route.own_address: NicConfig(nic_id(host, route.own_address), route.device, route.own_address)
        for route in routes
    }
    sessions = tuple(
        SessionConfig(
            src=nics[route.own_address].nic,
            dst=nic_id(route.peer.name, route.address),
            dst_address=route.address,
            dst_port=route.peer.port or trial.port,
            source_ports=tuple(range(trial.first_path, trial.first_path + trial.paths)),
            dscp=trial.dscp,
            size_bytes=trial.size_bytes,
            rate_hz=trial.rate_hz,
        )
        for route in routes
    )
    here = HostConfig(host=host, nics=tuple(nics.values()), sessions=() if reflect_only else sessions)
    named = [route.address for route in routes if route.peer.host]
    return AgentConfig(
        hosts=(here,),
        reflector_port=trial.port,
        reflector_allow=tuple(named) if reflect_only else (),
        reflector_strangers=not named,  # whoever names no peer has asked for it
        spill_bytes=0,  # a trial leaves nothing behind
    )
