"""A stream of chunks over a queue pair with a hot standby on another device: none lost, none doubled.

The standby is connected beforehand, and both devices know the same memory, so moving is posting again what is not
acknowledged. The stream moves by itself when its queue pair ends in error, and by command: to `qpcontrol` it is one
queue pair whose source ports are those of both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from sdfstream.errors import UnavailableError
from sdfstream.qpcontrol.rules import RefusedError
from sdfstream.verbs.capabilities import QpCapabilities
from sdfstream.verbs.chunks import HEADER_BYTES, CarriedMessage, ChunkInbox, ChunkOutbox, SentChunk, encode
from sdfstream.verbs.endpoint_io import Completion, RcEndpoint
from sdfstream.verbs.live_qp_io import LiveQp
from sdfstream.verbs.requests_io import MemorySpan

_NONE: Final = -1
_FEW: Final = 2
"""Completions taken, and chunks posted again, at a time: what moves the stream comes before what is merely plenty."""


class ChunkSender:
    """The sending end (`qpcontrol.rules.Steerable`).

    Parameters
    ----------
    endpoints : sequence of RcEndpoint
        Connected; the first is used first. They share one memory (`RcEndpoint`).
    queue_pairs : sequence of LiveQp
        Of these endpoints.
    slots, slot_bytes : int
        Chunks that may be unacknowledged, and the most octets of one with its header.
    """

    def __init__(
        self, endpoints: Sequence[RcEndpoint], queue_pairs: Sequence[LiveQp], slots: int, slot_bytes: int
    ) -> None:
        self._ends, self._qps, self._slot_bytes = list(endpoints), list(queue_pairs), slot_bytes
        self._outbox = ChunkOutbox(slots)
        self._dead: set[int] = set()
        self._active = 0
        self._again: list[SentChunk] = []
        """Not acknowledged when the stream moved, and not posted to the queue pair in use yet."""
        self.failed_over = 0
        self.replayed = 0
        self.errors: list[Completion] = []
        """Completions that said why a queue pair died; what was flushed after them is left out."""
        self.finished: Callable[[CarriedMessage], None] = lambda message: None
        """Called with every chunk that is acknowledged, for `rows.output`."""
        first = self._qps[0]
        self.number, self.peer_number, self.dscp, self.dst_port = (
            first.number,
            first.peer_number,
            first.dscp,
            first.dst_port,
        )
        self.moved_at_ns = 0

    # -- sending ----------------------------------------------------------------------------------------------------

    def send(self, payload: bytes) -> bool:
        """Post a chunk; False: no room before others are acknowledged. UnavailableError: every queue pair is dead."""
        if not self._outbox.has_room:
            return False
        octets = HEADER_BYTES + len(payload)
        if octets > self._slot_bytes:
            raise ValueError(f"a chunk has at most {self._slot_bytes - HEADER_BYTES} octets, not {len(payload)}")
        self._qps[self._active].pace(octets)
        now_ns = time.time_ns()
        chunk = self._outbox.begin(octets, now_ns)
        framed = encode(chunk.number, payload, now_ns) + payload
        self._ends[0].memory.write(framed, octets, chunk.slot * self._slot_bytes)
        self._post_rest()
        self._post([chunk])
        for leg, end in enumerate(self._ends):  # while there is time; at a failover there is none
            if leg != self._active:
                end.prepare(chunk.slot * self._slot_bytes, octets)
        return True

    def poll(self) -> int:
        """Take completions, move off a queue pair that died; chunks acknowledged.

        A few at a time, of the queue pair in use first: from a dead one comes all that it had, the standby's wait less.
        """
        done = 0
        for leg in sorted(range(len(self._ends)), key=lambda one: one != self._active):
            moved = self.failed_over
            while ended := self._ends[leg].completions(_FEW):
                done += sum(self._took(leg, completion) for completion in ended)
                if self.failed_over > moved:
                    return done + self.poll()
            if self._again:  # before what a dead one had is taken
                self._post_rest()
                return done + self.poll()
        return done

    @property
    def is_done(self) -> bool:
        """Whether everything sent is acknowledged."""
        return self._outbox.is_empty

    def recovered(self, leg: int) -> None:
        """The program has reset and connected this endpoint again, at both ends; chunks it had posted are no more."""
        self._dead.discard(leg)

    # -- control ----------------------------------------------------------------------------------------------------

    @property
    def path(self) -> int:
        """Source port in use."""
        return self._qps[self._active].path

    @property
    def src_address(self) -> str:
        """Address of the device in use."""
        return self._qps[self._active].src_address

    @property
    def dst_address(self) -> str:
        """Address that it sends to."""
        return self._qps[self._active].dst_address

    @property
    def capabilities(self) -> QpCapabilities:
        """Those of the device in use."""
        return self._qps[self._active].capabilities

    @property
    def is_moving(self) -> bool:
        """Whether a live move of the queue pair in use has not ended."""
        return self._qps[self._active].is_moving

    def go_on(self) -> bool:
        """See `LiveQp.go_on`."""
        return self._qps[self._active].go_on()

    def steer(self, path: int, now_ns: int) -> None:
        """To the standby where `path` is its port, else a live move; RefusedError ``failed`` where that one is dead."""
        for leg, qp in enumerate(self._qps):
            if leg != self._active and qp.path == path:
                if leg in self._dead:
                    raise RefusedError("failed", f"{self._ends[leg].device} has not been connected again")
                self._use(leg)
                return
        self._qps[self._active].steer(path, now_ns)

    @property
    def rate_bps(self) -> int | None:
        """Limit in force."""
        return self._qps[self._active].rate_bps

    @rate_bps.setter
    def rate_bps(self, rate_bps: int | None) -> None:
        for qp in self._qps:  # a limit goes with the stream to its standby
            qp.rate_bps = rate_bps

    # -- inside -----------------------------------------------------------------------------------------------------

    def _took(self, leg: int, completion: Completion) -> int:
        ok = completion.status == 0
        acknowledged = self._outbox.completed(completion.id, ok=ok, now_ns=time.time_ns())
        if acknowledged is not None:
            self.finished(self._carried(acknowledged, self._qps[leg].path))
        if not ok and leg not in self._dead:
            self._dead.add(leg)
            self.errors.append(completion)
            if leg == self._active:
                self._fail_over()
        return acknowledged is not None

    @staticmethod
    def _carried(chunk: SentChunk, path: int) -> CarriedMessage:
        assert chunk.acknowledged_at_ns is not None
        return CarriedMessage(chunk.number, chunk.octets, chunk.sent_at_ns, chunk.acknowledged_at_ns, chunk.posts, path)

    def _fail_over(self) -> None:
        alive = next((leg for leg in range(len(self._ends)) if leg not in self._dead), _NONE)
        if alive == _NONE:
            raise UnavailableError("every queue pair of the stream has ended in error")
        self.failed_over += 1
        self._use(alive)

    def _use(self, leg: int) -> None:
        self._active = leg
        self.moved_at_ns = time.time_ns()
        again = list(self._outbox.unacknowledged())
        self.replayed += sum(chunk.posts > 0 for chunk in again)
        self._again = again[_FEW:]  # after the first ones' completions have been looked for
        self._post(again[:_FEW])

    def _post_rest(self) -> None:
        again, self._again = self._again, []
        self._post(again)

    def _post(self, chunks: Sequence[SentChunk]) -> None:
        end = self._ends[self._active]
        if error := end.send_all([MemorySpan(c.number, c.slot * self._slot_bytes, c.octets) for c in chunks]):
            raise UnavailableError(f"{end.device} takes no send: errno {error}")
        for chunk in chunks:
            self._outbox.posted(chunk)


class ChunkReceiver:
    """The receiving end: every chunk once, whichever endpoint it came by."""

    def __init__(self, endpoints: Sequence[RcEndpoint], slots: int, slot_bytes: int) -> None:
        self._ends, self._slots, self._slot_bytes = list(endpoints), slots, slot_bytes
        self.inbox = ChunkInbox()
        for leg in range(len(self._ends)):
            self.recovered(leg)

    def recovered(self, leg: int) -> None:
        """Give a fresh, or freshly reset, endpoint room for all its messages."""
        for slot in range(self._slots):
            self._make_room(leg, slot)

    def poll(self) -> int:
        """Take what has arrived; chunks that are new."""
        before = self.inbox.taken
        for leg, end in enumerate(self._ends):
            for completion in end.completions():
                if completion.status == 0 and completion.is_receive:
                    octets = end.memory.read(completion.octets, self._offset(leg, completion.id))
                    self.inbox.take(octets)
                    self._make_room(leg, completion.id)
        return self.inbox.taken - before

    def _offset(self, leg: int, slot: int) -> int:
        return slot * self._slot_bytes  # each endpoint has memory of its own

    def _make_room(self, leg: int, slot: int) -> None:
        if error := self._ends[leg].receive(slot, self._offset(leg, slot), self._slot_bytes):
            raise UnavailableError(f"{self._ends[leg].device} takes no receive: errno {error}")
