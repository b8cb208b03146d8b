"""Which watch sessions run: wishes in, sessions to begin and to end out.

Every watch session of a host has the same shape (ports, rate), so it needs the same room in the sender's arrays: a
*place*. A place whose session has ended keeps its name until its last rows are written, then another session may have
it; a session that is wished for again finds its old place. There are at most `MOST` places; a wish beyond that is
counted and served when a place falls free.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sdfstream.probes.companion import WatchWish
from sdfstream.probes.config import AgentConfig, SessionConfig
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

MOST: Final = 128
"""Watch sessions per host: with 8 ports at 100 Hz, 50 MiB of exchanges under way."""
DRAIN_NS: Final = 3 * NS_PER_S
"""The last probes of an ended session have timed out and their rows are written by then."""


@dataclass(frozen=True, slots=True)
class Change:
    """Sessions to begin, by place, and places whose sessions end."""

    begin: Mapping[int, SessionConfig] = field(default_factory=dict)
    end: Sequence[int] = ()

    def __bool__(self) -> bool:
        return bool(self.begin or self.end)


@dataclass(slots=True)
class _Place:
    session: SessionConfig
    active: bool = True
    ended_at: int = 0
    """Steady clock."""


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
    """

    def __init__(
        self, config: AgentConfig, nics: Collection[str], reflector_ports: Mapping[str, int], counters: Counters
    ) -> None:
        self._config = config
        self._nics = frozenset(nics)
        self._far_ports = dict(reflector_ports)
        self._counters = counters
        self._places: list[_Place] = []
        self._wanted: dict[SessionConfig, None] = {}
        self._changed = False
        self._short = False

    @property
    def sessions(self) -> list[SessionConfig]:
        """Those that run."""
        return [p.session for p in self._places if p.active]

    def wish(self, wishes: Sequence[WatchWish]) -> None:
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
        end = [i for i, p in enumerate(self._places) if p.active and p.session not in self._wanted]
        for i in end:
            self._places[i].active = False
            self._places[i].ended_at = now_ns
        running = {p.session for p in self._places if p.active}
        begin: dict[int, SessionConfig] = {}
        for session in self._wanted:
            if session in running:
                continue
            place = self._place(session, now_ns)
            if place < 0:
                self._short = True
                self._counters.add("shed", "watch", int(not short_before))
                continue
            begin[place] = session
        return Change(begin, end)

    def _place(self, session: SessionConfig, now_ns: int) -> int:
        """A place for `session`, taken for it; −1: there is none now."""
        free = [i for i, p in enumerate(self._places) if not p.active]
        own = [i for i in free if self._places[i].session == session]
        drained = [i for i in free if now_ns - self._places[i].ended_at >= DRAIN_NS]
        if own or drained:
            number = (own or drained)[0]
            self._places[number] = _Place(session)
            return number
        if len(self._places) < MOST:
            self._places.append(_Place(session))
            return len(self._places) - 1
        return -1

    def _wrong(self, wish: WatchWish) -> str:
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

    def _session(self, wish: WatchWish) -> SessionConfig:
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
