"""Which watch sessions run: requests in, sessions to begin and to end out.

A watch session is one source port of a watched NIC pair, at one of two rates: as a *candidate*, or *quick*
(`quick_paths` chooses). A port is probed in one of the two forms at a time, never in both. There are at most
`MOST_QUICK` and `MOST_CANDIDATES` slots for them in the sender's arrays (`slots`); what goes beyond is counted and
served when one falls free.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sdfstream.agent.commands.crossings import ProbePath
from sdfstream.agent.commands.path_watch import WatchedRoutes
from sdfstream.agent.observer import WatchRequest
from sdfstream.agent.quick_paths import QuickPaths
from sdfstream.agent.slots import SessionChange, SessionSlots
from sdfstream.probes.config import AgentConfig, SessionConfig
from sdfstream.probes.stamp.datagrams import address_octets
from sdfstream.probes.trace.routes import ForwardRoutes
from sdfstream.stats import Counters

MOST_QUICK: Final = 1_024
"""Quick sessions per host: at 100 Hz, 50 MiB of exchanges in transit."""
MOST_CANDIDATES: Final = 2_048
"""Candidates per host: 128 pairs of 16 ports."""
QUICK: Final = "watch"
CANDIDATE: Final = "candidate"
"""Owners of slots."""


@dataclass(frozen=True, slots=True)
class WatchChange:
    """What is to be done: quick sessions and candidates."""

    quick: SessionChange
    candidates: SessionChange

    def __bool__(self) -> bool:
        return bool(self.quick) or bool(self.candidates)


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
        Gets ``refused.watch-…`` and ``shed.watch…``.
    slots : SessionSlots, optional
        Those of the host's sender, where planned sessions share them.
    routes : ForwardRoutes, optional
        Of the host's own packets, by its traces.
    """

    def __init__(
        self,
        config: AgentConfig,
        nics: Collection[str],
        reflector_ports: Mapping[str, int],
        counters: Counters,
        slots: SessionSlots | None = None,
        routes: ForwardRoutes | None = None,
    ) -> None:
        self._config = config
        self._nics = frozenset(nics)
        self._far_ports = dict(reflector_ports)
        self._counters = counters
        self._slots = SessionSlots() if slots is None else slots
        self._most = most_sessions(config, len(self._nics))
        self._pairs: list[WatchRequest] = []
        self._quick_paths = QuickPaths(config, ForwardRoutes() if routes is None else routes, counters)
        self._wanted: tuple[dict[SessionConfig, None], dict[SessionConfig, None]] = ({}, {})
        self._short = False

    @property
    def quick(self) -> list[SessionConfig]:
        """The quick ones that run."""
        return list(self._slots.running(QUICK))

    @property
    def sessions(self) -> list[SessionConfig]:
        """All that run."""
        return [*self._slots.running(QUICK), *self._slots.running(CANDIDATE)]

    def take(self, requests: Sequence[WatchRequest]) -> None:
        """Take the pairs to be watched from now on; a malformed request is counted and left out.

        Candidates may take half of what a target may get, and quick paths the rest.
        """
        pairs: dict[tuple[str, str, int], WatchRequest] = {}
        target_pps: dict[bytes, float] = {}
        pairs_of: dict[str, int] = {}
        for request in requests:
            key = (request.src, request.dst, request.dscp)
            if key in pairs and pairs[key].dst_address == request.dst_address:
                pairs[key] = _joined(pairs[key], request)
                continue
            why = "watch-twice" if key in pairs else self._wrong(request)
            if not why:
                target = address_octets(request.dst_address)
                there_pps = target_pps.get(target, 0.0) + self._config.watch_candidate_hz * self._config.watch_ports
                why = "watch-target" if there_pps > self._config.watch_target_pps / 2 else ""
            if why:
                self._counters.add("refused", why)
            elif (pairs_of.get(request.src, 0) + 1) * self._config.watch_candidate_hz > self._config.watch_nic_pps:
                self._counters.add("shed", "watch-budget")
            else:
                target_pps[target] = there_pps
                pairs_of[request.src] = pairs_of.get(request.src, 0) + 1
                pairs[key] = request
        if list(pairs.values()) != self._pairs:
            self._pairs = list(pairs.values())
            self._quick_paths.watch(self._pairs)

    def cover(self, watched: WatchedRoutes) -> None:
        """The routes whose segments quick paths are to cross from now on."""
        self._quick_paths.cover(watched)

    def take_share(self, share: float) -> None:
        """Probe quick paths at `share` of their rate from now on."""
        self._quick_paths.take_share(share)

    def change(self, now_ns: int) -> WatchChange:
        """What is to be done to fulfil the requests, as far as there is room now."""
        if not self._quick_paths.choose(now_ns) and not self._short:
            return WatchChange(SessionChange(), SessionChange())
        quick: dict[SessionConfig, None] = {}
        candidates: dict[SessionConfig, None] = {}
        for pair in self._pairs:
            for port in self._quick_paths.ports(pair):
                rate_hz = self._quick_paths.rate_hz(pair.src, ProbePath(pair.dst, port, pair.dscp))
                if rate_hz is None:
                    session = self._session(pair, port, self._config.watch_candidate_hz)
                    candidates[replace(session, prompt=True)] = None
                else:
                    quick[self._session(pair, port, rate_hz)] = None
        wanted = (quick, candidates)
        if wanted == self._wanted and not self._short:
            return WatchChange(SessionChange(), SessionChange())
        self._wanted = wanted
        change = WatchChange(
            self._slots.change_to(quick, QUICK, self._most[0], now_ns),
            self._slots.change_to(candidates, CANDIDATE, self._most[1], now_ns),
        )
        lacking = change.quick.lacking + change.candidates.lacking
        self._counters.add("shed", "watch", 0 if self._short else lacking)
        self._short = lacking > 0
        return change

    def _wrong(self, request: WatchRequest) -> str:
        if request.src not in self._nics:
            return "watch-foreign-nic"
        if request.dst in self._nics:
            return "watch-own-nic"
        if not 0 <= request.dscp <= 63:
            return "watch-class"
        try:
            ipaddress.ip_address(request.dst_address)
        except ValueError:
            return "watch-address"
        return ""

    def _session(self, pair: WatchRequest, port: int, rate_hz: float) -> SessionConfig:
        return SessionConfig(
            src=pair.src,
            dst=pair.dst,
            dst_address=pair.dst_address,
            dst_port=self._far_ports.get(pair.dst, self._config.reflector_port),
            source_ports=(port,),
            dscp=pair.dscp,
            rate_hz=rate_hz,
        )


def _joined(one: WatchRequest, other: WatchRequest) -> WatchRequest:
    return replace(one, flows=tuple(dict.fromkeys((*one.flows, *other.flows))), quick=one.quick or other.quick)


def most_sessions(config: AgentConfig, nics: int) -> tuple[int, int]:
    """Quick sessions and candidates that a host of `nics` NICs may have at once, and while slots are drained."""
    least_hz = max(config.watch_rate_hz / 2, config.watch_candidate_hz)
    quick = 2 * nics * int(config.watch_nic_pps / least_hz) + 2 * config.watch_ports
    return min(MOST_QUICK, quick), min(MOST_CANDIDATES, 128 * config.watch_ports)
