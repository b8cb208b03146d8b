"""How many files an agent may open: each source port of each NIC is a socket, and so is each of its reflectors."""

from __future__ import annotations

import resource
from typing import Final

from sdfstream.errors import ConfigError
from sdfstream.probes.config import AgentConfig

_OTHERS: Final = 256
"""Bus, spill, clock pages, ports, queries, and a NIC's sockets that are opened anew before the old ones are closed."""


def needed(config: AgentConfig) -> int:
    """Files that an agent with `config` has open at most, about."""
    nics = sum(len(host.nics) for host in config.hosts)
    sockets = len({(s.src, port) for host in config.hosts for s in host.sessions for port in s.source_ports})
    watching = (config.watch_ports + config.watch_spare_ports) * bool(config.jobs_dir)
    per_nic = 4 + watching + config.mesh_ports * (config.mesh == "auto") + (config.large_hz > 0)
    return sockets + per_nic * nics + _OTHERS


def ensure_open_files(config: AgentConfig) -> None:
    """Raise this process's limit of open files to what `config` needs; raises ConfigError where it may not."""
    wanted = needed(config)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise ConfigError(
            f"hosts: the sessions need about {wanted:,} open files, and this process may open {hard:,}: let sessions "
            "share source ports, or raise the limit (ulimit -Hn, LimitNOFILE=)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
