"""Which watch sessions run: requests in, sessions to begin and to end out.

Every watch session of a host has the same shape (ports, rate), so it needs the same room in the sender's arrays
(`slots`). There are at most `MOST` slots for them; a request beyond that is counted and served when one falls free.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sdfstream.agent.observer import WatchRequest
from sdfstream.agent.slots import SessionChange, SessionSlots
from sdfstream.probes.config import AgentConfig, SessionConfig
from sdfstream.probes.stamp.datagrams import address_octets
from sdfstream.stats import Counters

MOST: Final = 128
"""Watch sessions per host: with 8 ports at 100 Hz, 50 MiB of exchanges in transit."""
OWNER: Final = "watch"


class WatchSessions:
    """The watch sessions of one host.

    Parameters
    ----------
    config : AgentConfig
    nics : collection of str
        NIC ids of the host.
    reflector_ports : NIC id to UDP port
        Of far NICs whose reflector's port differs from ours.
    counters : Counters
        Gets ``refused.watch-…`` and ``shed.watch``.
    slots : SessionSlots, optional
        Those of the host's sender, where planned sessions share them.
    """

    def __init__(
        self,
        config: AgentConfig,
        nics: Collection[str],
        reflector_ports: Mapping[str, int],
        counters: Counters,
        slots: SessionSlots | None = None,
    ) -> None:
        self._config = config
        self._nics = frozenset(nics)
        self._far_ports = dict(reflector_ports)
        self._counters = counters
        self._slots = SessionSlots() if slots is None else slots
        self._wanted: dict[SessionConfig, None] = {}
        self._changed = False
        self._short = False

    @property
    def sessions(self) -> list[SessionConfig]:
        """Those that run."""
        return list(self._slots.running(OWNER))

    def take(self, requests: Sequence[WatchRequest]) -> None:
        """Take the sessions wanted from now on; a malformed request is counted and left out."""
        wanted: dict[SessionConfig, None] = {}
        target_pps: dict[bytes, float] = {}
        for take in requests:
            why, session = self._wrong(take), self._session(take)
            if not why and session not in wanted:
                target = address_octets(take.dst_address)
                target_pps[target] = target_pps.get(target, 0.0) + session.rate_hz * len(session.source_ports)
                why = "watch-target" if target_pps[target] > self._config.watch_target_pps else ""
            if why:
                self._counters.add("refused", why)
            else:
                wanted[session] = None
        self._changed = self._changed or list(wanted) != list(self._wanted)
        self._wanted = wanted

    def change(self, now_ns: int) -> SessionChange:
        """What is to be done to fulfil the requests, as far as there is room now."""
        if not self._changed and not self._short:
            return SessionChange()
        change = self._slots.change_to(self._wanted, OWNER, MOST, now_ns)
        self._counters.add("shed", "watch", 0 if self._short else change.lacking)
        self._changed, self._short = False, change.lacking > 0
        return change

    def _wrong(self, take: WatchRequest) -> str:
        if take.src not in self._nics:
            return "watch-foreign-nic"
        if take.dst in self._nics:
            return "watch-own-nic"
        if not 0 <= take.dscp <= 63:
            return "watch-class"
        try:
            ipaddress.ip_address(take.dst_address)
        except ValueError:
            return "watch-address"
        return ""

    def _session(self, take: WatchRequest) -> SessionConfig:
        config = self._config
        return SessionConfig(
            src=take.src,
            dst=take.dst,
            dst_address=take.dst_address,
            dst_port=self._far_ports.get(take.dst, config.reflector_port),
            source_ports=watch_ports(config),
            dscp=take.dscp,
            rate_hz=config.watch_rate_hz,
        )


def watch_ports(config: AgentConfig) -> tuple[int, ...]:
    """Source ports of every watch session."""
    return tuple(range(config.watch_first_port, config.watch_first_port + config.watch_ports))
