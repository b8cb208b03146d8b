"""Which watch sessions run: wishes in, sessions to begin and to end out.

Every watch session of a host has the same shape (ports, rate), so it needs the same room in the sender's arrays
(`slots`). There are at most `MOST` places for them; a wish beyond that is counted and served when one falls free.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sdfstream.agent.observer import WatchRequest
from sdfstream.agent.slots import DRAIN_NS, Change, Places
from sdfstream.probes.config import AgentConfig, SessionConfig
from sdfstream.stats import Counters

MOST: Final = 128
"""Watch sessions per host: with 8 ports at 100 Hz, 50 MiB of exchanges under way."""
OWNER: Final = "watch"
__all__ = ["DRAIN_NS", "MOST", "Change", "Watches", "watch_ports"]


class Watches:
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
    places : Places, optional
        Those of the host's sender, where others share them.
    """

    def __init__(
        self,
        config: AgentConfig,
        nics: Collection[str],
        reflector_ports: Mapping[str, int],
        counters: Counters,
        places: Places | None = None,
    ) -> None:
        self._config = config
        self._nics = frozenset(nics)
        self._far_ports = dict(reflector_ports)
        self._counters = counters
        self._places = Places() if places is None else places
        self._wanted: dict[SessionConfig, None] = {}
        self._changed = False
        self._short = False

    @property
    def sessions(self) -> list[SessionConfig]:
        """Those that run."""
        return list(self._places.running(OWNER))

    def wish(self, wishes: Sequence[WatchRequest]) -> None:
        """The sessions wanted from now on; what makes no sense is counted and left out."""
        wanted: dict[SessionConfig, None] = {}
        for wish in wishes:
            why = self._wrong(wish)
            if why:
                self._counters.add("refused", why)
            else:
                wanted[self._session(wish)] = None
        self._changed = self._changed or list(wanted) != list(self._wanted)
        self._wanted = wanted

    def change(self, now_ns: int) -> Change:
        """What is to be done to fulfil the wish, as far as there is room now."""
        if not self._changed and not self._short:
            return Change()
        short_before = self._short
        self._changed = self._short = False
        running = self._places.running(OWNER)
        end = [place for session, place in running.items() if session not in self._wanted]
        for place in end:
            self._places.end(place, now_ns)
        begin: dict[int, SessionConfig] = {}
        for session in self._wanted:
            if session in running:
                continue
            place = self._places.take(session, OWNER, MOST, now_ns)
            if place < 0:
                self._short = True
                self._counters.add("shed", "watch", int(not short_before))
                continue
            begin[place] = session
        return Change(begin, end)

    def _wrong(self, wish: WatchRequest) -> str:
        if wish.src not in self._nics:
            return "watch-foreign-nic"
        if wish.dst in self._nics:
            return "watch-own-nic"
        if not 0 <= wish.dscp <= 63:
            return "watch-class"
        try:
            ipaddress.ip_address(wish.dst_address)
        except ValueError:
            return "watch-address"
        return ""

    def _session(self, wish: WatchRequest) -> SessionConfig:
        config = self._config
        return SessionConfig(
            src=wish.src,
            dst=wish.dst,
            dst_address=wish.dst_address,
            dst_port=self._far_ports.get(wish.dst, config.reflector_port),
            source_ports=watch_ports(config),
            dscp=wish.dscp,
            rate_hz=config.watch_rate_hz,
        )


def watch_ports(config: AgentConfig) -> tuple[int, ...]:
    """Source ports of every watch session."""
    return tuple(range(config.watch_first_port, config.watch_first_port + config.watch_ports))
