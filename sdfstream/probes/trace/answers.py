"""When the answers to probes of known peers are traced: the path back from our reflector.

Answers go from our reflector's port to the source port of a session that a known peer sends to us. Their route is
traced when the session first arrives, when it comes back, and when paths between the two NICs change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sdfstream.probes.stamp.datagrams import address_octets
from sdfstream.probes.stamp.liveness import ALIVE, PathName
from sdfstream.probes.trace.packets import PROTOCOLS, FiveTuple, PacketTemplate
from sdfstream.probes.trace.paths import SETTLE_NS, Distance, Pair, PathBook, PathChanges, Ready
from sdfstream.probes.trace.tracer import SOON, Tracer
from sdfstream.records.fabric import PathId
from sdfstream.records.units import UInt8s


class AnswerBook:
    """The answers to sessions that known peers send to us. Its subjects are `PathId`s of direction ``rev``.

    Parameters
    ----------
    tracer : Tracer
    paths : PathBook
        Measures distances.
    nics : NIC id to address
        Of the host.
    ready : NIC id to bool
        Whether packets can be sent by it now.
    port : int
        The reflector's.
    """

    def __init__(self, tracer: Tracer, paths: PathBook, nics: Mapping[str, str], ready: Ready, port: int) -> None:
        self._tracer = tracer
        self._ready = ready
        self._paths = paths
        self._own = {nic: address_octets(address) for nic, address in nics.items()}
        self._port = port
        self._ids: list[PathId] = []
        self._state: UInt8s = np.empty(0, np.uint8)
        self.templates: dict[PathId, PacketTemplate] = {}
        """By path of answers."""

    def step(
        self, names: Sequence[PathName], addresses: Sequence[bytes], state: UInt8s, changes: PathChanges, now_ns: int
    ) -> None:
        """Request the traces that follow from `changes` and from states that differ from those of the last step.

        Parameters
        ----------
        names, addresses, state : of the sessions that we reflect, by number
            Names, senders' addresses, states of `liveness`.
        """
        for number in range(len(self._ids), len(names)):
            self._admit(names[number], addresses[number])
        before = np.zeros(len(state), np.uint8)
        before[: len(self._state)] = self._state
        self._state = state.copy()
        state_changed = {(dst, src) for src, dst in changes.state_changed} | self._changed(before, state)
        distance_changed = {(dst, src) for src, dst in changes.distance_changed}
        fresh = (state == ALIVE) & (before != ALIVE)
        for number in np.flatnonzero(fresh).tolist():
            self._request(self._ids[number], now_ns)
        for number in np.flatnonzero((state != ALIVE) & (before == ALIVE)).tolist():
            self._tracer.hold(self._ids[number])
        if state_changed or distance_changed or changes.opened_nics:
            for number in np.flatnonzero((state == ALIVE) & ~fresh).tolist():
                answers = self._ids[number]
                if (answers.src, answers.dst) in distance_changed or answers.dst in changes.opened_nics:
                    self._request(answers, now_ns)
                elif (answers.src, answers.dst) in state_changed:
                    self._request(answers, now_ns + SETTLE_NS)

    def _changed(self, before: UInt8s, state: UInt8s) -> set[Pair]:
        """Pairs some of whose sessions fell silent or recovered; a new session is no change of the others."""
        known = (before != 0) & (state != 0) & (before != state)
        return {(self._ids[n].src, self._ids[n].dst) for n in np.flatnonzero(known).tolist()}

    def _admit(self, name: PathName, address: bytes) -> None:
        answers = PathId(name.src, name.dst, name.transport, name.path, name.dscp, "rev")
        five = FiveTuple(PROTOCOLS["udp"], self._own[name.dst], address, self._port, name.path)
        self._ids.append(answers)
        self.templates[answers] = PacketTemplate(name.dst, five, name.dscp << 2)
        self._tracer.add(answers, five)

    def _request(self, answers: PathId, due_at_ns: int) -> None:
        distance = self._paths.distance((answers.dst, answers.src))
        if distance is None or not self._ready(answers.dst):
            self._tracer.hold(answers)
        else:
            self._tracer.request(answers, distance.routers, due_at_ns, SOON)

    def distance(self, answers: PathId) -> Distance | None:
        """Routers between the two NICs of a path of answers."""
        return self._paths.distance((answers.dst, answers.src))
