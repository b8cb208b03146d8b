"""What one agent process can carry; more is refused before anything is opened."""

from __future__ import annotations

from typing import Final

from sdfstream.errors import ConfigError
from sdfstream.probes.config import AgentConfig

MOST_SESSIONS: Final = 10_000
"""Configured ones of one process. They are written out one by one, and each costs about half a millisecond at start."""
MOST_PATHS: Final = 40_000
"""Sessions times their source ports: each has a slot in the sender's tables, about a kilobyte."""
MOST_PPS: Final = 200_000.0
"""Probes per second, all sessions together: more than one core sends."""
MOST_SOCKETS: Final = 4_096
"""Source ports times NICs: each pair is a socket, hence a file descriptor and a wake-up."""


def check_load(config: AgentConfig, prefix: str = "") -> None:
    """Refuse more than one process can carry, with the number; raises ConfigError with `prefix` before the key.

    Cost: one pass over the sessions.
    """
    sessions = [session for host in config.hosts for session in host.sessions]
    many = ", more than one agent takes: run several, or let the mesh plan choose (mesh: auto)"
    if len(sessions) > MOST_SESSIONS:
        raise ConfigError(f"{prefix}hosts: {len(sessions):,} sessions, at most {MOST_SESSIONS:,}{many}")
    paths = sum(len(session.source_ports) for session in sessions)
    if paths > MOST_PATHS:
        raise ConfigError(f"{prefix}hosts: {paths:,} paths (sessions by source ports), at most {MOST_PATHS:,}{many}")
    pps = sum(len(session.source_ports) * session.rate_hz for session in sessions)
    pps += config.large_hz * len({(session.src, session.dst) for session in sessions})
    if pps > MOST_PPS:
        raise ConfigError(f"{prefix}hosts: {pps:,.0f} probes per second, at most {MOST_PPS:,.0f}{many}")
    sockets = len({(session.src, port) for session in sessions for port in session.source_ports})
    if sockets > MOST_SOCKETS:
        raise ConfigError(
            f"{prefix}hosts: {sockets:,} sockets (source ports by NICs), at most {MOST_SOCKETS:,}: "
            "let sessions share source ports"
        )
