"""Whose probes a host of the agent answers: what its configuration says of far senders."""

from __future__ import annotations

from sdfstream.probes.config import AgentConfig, HostConfig
from sdfstream.probes.stamp.known_senders import KnownSender, ReflectorLimits


def configured_senders(config: AgentConfig, host: HostConfig) -> dict[str, KnownSender]:
    """Senders by address: whom the agent's sessions probe may probe back, and the agent's hosts probe one another.

    An address of the host's own is one only where a session of the host goes there.
    """
    found = {s.dst_address: KnownSender(s.dst, s.dst_port) for h in config.hosts for s in h.sessions}
    found |= {n.address: KnownSender(n.nic, config.reflector_port) for h in config.hosts for n in h.nics}
    probed = {s.dst_address for s in host.sessions}
    own = {n.address for n in host.nics} - probed
    return {address: sender for address, sender in found.items() if address not in own}


def limits_of(config: AgentConfig) -> ReflectorLimits:
    """Who else is answered, and how often."""
    return ReflectorLimits(
        port=config.reflector_port,
        networks=(*config.reflector_allow, *(config.mesh_allow if config.mesh == "auto" else ())),
        strangers=config.reflector_strangers,
        max_pps=config.reflector_max_pps,
        source_pps=config.reflector_source_pps,
        stranger_pps=config.reflector_stranger_pps,
    )
