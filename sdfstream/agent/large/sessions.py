"""Which large sessions run: pairs of NICs and their MTUs in, sessions to begin and to end out.

A switch port or NIC whose MTU is smaller than the others' drops large packets, which may not be fragmented, and lets
small ones pass. So each pair of NICs that is probed by UDP gets one session more, with IP packets as large as the MTU
of the sending NIC's device, in the class of the pair's first session. Answers are as large as probes (the symmetrical
size of RFC 8762), so both directions are tried, and a large session's delays say as much of a clock as a small one's.

The MTU is taken when a session is chosen: one that changes later counts from the next change of the host's sessions on
(a new plan, a NIC that comes back). Until then packets longer than the device allows are not sent, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sdfstream.agent.slots import SessionChange, SessionSlots
from sdfstream.probes.config import AgentConfig, HostConfig, SessionConfig
from sdfstream.probes.stamp.datagrams import LONGEST_BYTES
from sdfstream.stats import Counters

OWNER: Final = "large"
"""Of slots."""
MOST_PLANNED: Final = 1_024
"""Large sessions of pairs that only the mesh plan names, per host."""


class LargeSessions:
    """The large sessions of one host; none where `large_hz` is 0.

    Parameters
    ----------
    config : AgentConfig
    host : HostConfig
    mtu_of : callable
        NIC id to the MTU of its device, octets, when it was last looked at; None: it could not be read.
    counters : Counters
        Gets ``shed.large`` (sessions without a slot) and the troubles ``mtu of <NIC>``.
    slots : SessionSlots
        Those of the host's sender.
    """

    def __init__(
        self,
        config: AgentConfig,
        host: HostConfig,
        mtu_of: Callable[[str], int | None],
        counters: Counters,
        slots: SessionSlots,
    ) -> None:
        self._config = config
        self._nics = tuple(nic.nic for nic in host.nics)
        self._mtu_of = mtu_of
        self._counters = counters
        self._slots = slots
        self._configured = _firsts(host.sessions)
        self._most = most_large(config, host)
        self._planned: Sequence[SessionConfig] = ()
        self._stale = False
        self._short = False

    @property
    def sessions(self) -> list[SessionConfig]:
        """Those that run."""
        return list(self._slots.running(OWNER))

    def beside(self, sessions: Iterable[SessionConfig]) -> list[SessionConfig]:
        """A large session for each pair of NICs that `sessions` probe and the configuration does not, in order."""
        pairs = (first for pair, first in _firsts(sessions).items() if pair not in self._configured)
        return [large for first in pairs if (large := self._large(first)) is not None]

    def nics_changed(self) -> None:
        """NICs came back: their MTUs may be known now, or others than before."""
        self._stale = self._config.large_hz > 0
        for nic in self._nics:
            if self._mtu_of(nic) is not None:
                self._counters.troubles.end(_trouble(nic))

    def change(self, planned: Sequence[SessionConfig], now_ns: int) -> SessionChange:
        """What is to be done to run those of configured pairs and, behind them, `planned`.

        Parameters
        ----------
        planned : sequence of SessionConfig
            Large ones of planned pairs; another object when they have changed.
        """
        if not (self._stale or self._short or planned is not self._planned):
            return SessionChange()
        own = [large for first in self._configured.values() if (large := self._large(first)) is not None]
        change = self._slots.change_to(dict.fromkeys((*own, *planned)), OWNER, self._most, now_ns)
        self._counters.add("shed", "large", 0 if self._short else change.lacking)
        self._planned, self._stale, self._short = planned, False, change.lacking > 0
        return change

    def _large(self, first: SessionConfig) -> SessionConfig | None:
        """The large session of a pair whose first session is `first`; None: the MTU cannot be read."""
        if self._config.large_hz <= 0:
            return None
        mtu_bytes = self._mtu_of(first.src)
        if mtu_bytes is None:
            sentence = f"the MTU of {first.src} is not known, so it sends no probes as large as that"
            self._counters.troubles.begin(_trouble(first.src), sentence)
            return None
        return SessionConfig(
            src=first.src,
            dst=first.dst,
            dst_address=first.dst_address,
            dst_port=first.dst_port,
            source_ports=(self._config.large_port,),
            dscp=first.dscp,
            ecn=first.ecn,
            size_bytes=min(mtu_bytes, LONGEST_BYTES),
            rate_hz=self._config.large_hz,
            clock_dst=first.clock_dst,
        )


def _trouble(nic: str) -> str:
    return f"mtu of {nic}"


def _firsts(sessions: Iterable[SessionConfig]) -> dict[tuple[str, str], SessionConfig]:
    """The first UDP session of each pair of NICs."""
    found: dict[tuple[str, str], SessionConfig] = {}
    for session in sessions:
        if session.transport == "udp":
            found.setdefault((session.src, session.dst), session)
    return found


def most_large(config: AgentConfig, host: HostConfig) -> int:
    """Large sessions that a host may have at once, and while slots are drained."""
    if config.large_hz <= 0:
        return 0
    return len(_firsts(host.sessions)) + (MOST_PLANNED if config.mesh == "auto" else 0)


def large_ports(config: AgentConfig) -> tuple[int, ...]:
    """Source ports of large sessions."""
    return (config.large_port,) if config.large_hz > 0 else ()
