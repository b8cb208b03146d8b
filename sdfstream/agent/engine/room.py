"""How much the packet engine must hold for an agent's hosts, and which of its numbers are whose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sdfstream.agent.large.sessions import most_large
from sdfstream.agent.sessions import sender_sockets
from sdfstream.agent.watches import most_sessions
from sdfstream.probes.config import AgentConfig, HostConfig
from sdfstream.probes.engine.engine_io import Room, exchanges_of
from sdfstream.probes.stamp.datagrams import LONGEST_PAYLOAD
from sdfstream.records.units import NS_PER_S

_MOST_PLANNED: Final = 2_048
"""Paths of planned sessions that a host may have; what goes beyond is not probed."""
_PATH_WORDS: Final = 32
"""Of a command that begins a path, generously; 4 octets each."""
_LEAST_COMMAND_WORDS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class EngineRange:
    """The numbers of one host: `paths` from `first_path` on, slots of senders and then of reflectors, NICs."""

    number: int
    first_path: int
    paths: int
    first_slot: int
    senders: int
    reflectors: int
    first_nic: int


def engine_room(
    config: AgentConfig, exchanges: Callable[[int], int] = exchanges_of
) -> tuple[Room, dict[str, EngineRange]]:
    """Room for all hosts, and the range of each; `exchanges`: interval to the slots that a path takes."""
    planned = _MOST_PLANNED if config.mesh == "auto" else 0
    ranges: dict[str, EngineRange] = {}
    paths = slots = nics = held = 0
    for number, host in enumerate(config.hosts):
        configured = sum(len(s.source_ports) for s in host.sessions)
        senders = len(sender_sockets(config, host))
        quick, candidates = most_sessions(config, len(host.nics))
        large = most_large(config, host)
        most = configured + quick + candidates + planned + large
        ranges[host.host] = EngineRange(number, paths, most, slots, senders, len(host.nics), nics)
        held += _exchanges(host, exchanges)
        held += large * exchanges(round(NS_PER_S / config.large_hz)) if large else 0
        held += quick * exchanges(round(NS_PER_S / config.watch_rate_hz))
        held += candidates * exchanges(round(NS_PER_S / config.watch_candidate_hz)) + planned * exchanges(
            NS_PER_S // 10
        )
        paths, slots, nics = paths + most, slots + senders + len(host.nics), nics + len(host.nics)
    width = max([LONGEST_PAYLOAD, *(s.size_bytes for h in config.hosts for s in h.sessions)])
    words = max(_LEAST_COMMAND_WORDS, 1 << (_PATH_WORDS * paths).bit_length())
    room = Room(
        paths=max(paths, 1),
        exchanges=max(held, 1),
        hosts=len(config.hosts),
        nics=max(nics, 1),
        command_words=words,
        width_bytes=width,
    )
    return room, ranges


def _exchanges(host: HostConfig, exchanges: Callable[[int], int]) -> int:
    return sum(len(s.source_ports) * exchanges(round(NS_PER_S / s.rate_hz)) for s in host.sessions)
