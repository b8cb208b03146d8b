"""`ChunkSender` over queue pairs that die at any moment: every chunk acknowledged, taken once, from its own octets."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sdfstream.qpcontrol.rules import RefusedError
from sdfstream.verbs.chunks import ChunkInbox
from sdfstream.verbs.endpoint_io import Completion
from sdfstream.verbs.requests_io import MemorySpan
from sdfstream.verbs.stream_io import ChunkSender

SLOTS, SLOT_BYTES, CHUNKS = 6, 64, 30
_DEAD = 12
"""``IBV_WC_RETRY_EXC_ERR``."""


@dataclass
class Memory:
    """What both queue pairs send from."""

    octets: bytearray = field(default_factory=lambda: bytearray(SLOTS * SLOT_BYTES))

    def write(self, octets: bytes, count: int, offset: int) -> None:
        self.octets[offset : offset + count] = octets


@dataclass
class End:
    """A queue pair (`RcEndpoint`) that does what `step` says to what it was given."""

    device: str
    memory: Memory
    inbox: ChunkInbox
    posted: list[MemorySpan] = field(default_factory=list)
    ended: list[Completion] = field(default_factory=list)
    is_dead: bool = False

    def prepare(self, offset: int, octets: int) -> None:
        """Nothing is needed."""

    def send_all(self, sends: list[MemorySpan]) -> int:
        assert not self.is_dead or not sends, "to a dead one nothing is posted"
        self.posted += sends
        return 0

    def completions(self, most: int | None = None) -> list[Completion]:
        taken, self.ended = self.ended[:most], self.ended[most:] if most else []
        return taken

    def step(self, what: str) -> None:
        """Deliver the oldest, lose its acknowledgement and die, or die before it arrived."""
        if self.is_dead or not self.posted:
            return
        if what != "die":
            self._arrive(self.posted[0])
        if what == "deliver":
            self.ended.append(_completion(self.posted.pop(0).id, 0))
        else:
            self.is_dead = True
            self.ended += [_completion(span.id, _DEAD) for span in self.posted]
            self.posted.clear()

    def _arrive(self, span: MemorySpan) -> None:
        self.inbox.take(bytes(self.memory.octets[span.offset : span.offset + span.octets]))


def _completion(id_: int, status: int) -> Completion:
    return Completion(id_, status, 0, is_receive=False)


def _sender() -> tuple[ChunkSender, list[End]]:
    memory, inbox = Memory(), ChunkInbox()
    ends = [End(f"d{leg}", memory, inbox) for leg in range(3)]
    qps: list[Any] = [
        SimpleNamespace(
            path=leg,
            number=leg,
            peer_number=leg,
            dscp=0,
            dst_port=4791,
            pace=lambda octets: None,
            steer=lambda path, now: None,
        )
        for leg in range(3)
    ]
    return ChunkSender(ends, qps, SLOTS, SLOT_BYTES), ends  # type: ignore[arg-type]


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["deliver"] * 6 + ["lose", "die", "command"])), max_size=80
)


@given(STEPS, st.lists(st.integers(1, 4), min_size=1, max_size=20))
def test_each_chunk_arrives_once_wherever_queue_pairs_die(steps: list[tuple[int, str]], bursts: list[int]) -> None:
    sender, ends = _sender()
    inbox, sent, acknowledged, deaths = ends[0].inbox, 0, 0, 0
    for turn, (leg, what) in enumerate(steps):
        for _ in range(bursts[turn % len(bursts)]):
            sent += sent < CHUNKS and sender.send(b"%d" % sent)
        if what == "command":
            with suppress(RefusedError):
                sender.steer(leg, turn)
        elif what == "deliver" or deaths < 2:  # the third one lives
            deaths += what != "deliver" and bool(ends[leg].posted) and not ends[leg].is_dead
            ends[leg].step(what)
        acknowledged += sender.poll()
    while not sender.is_done:
        for end in ends:
            end.step("deliver")
        acknowledged += sender.poll()
    assert acknowledged == sent == inbox.taken
    assert (inbox.damaged, inbox.missing) == (0, 0)


def test_the_first_are_posted_before_the_rest_and_the_rest_with_the_same_poll() -> None:
    sender, ends = _sender()
    while sender.send(b"x"):
        pass
    calls: list[int] = []
    post = ends[1].send_all
    ends[1].send_all = lambda sends: calls.append(len(sends)) or post(sends)  # type: ignore[func-returns-value,method-assign]
    ends[0].step("die")
    sender.poll()
    assert calls == [2, SLOTS - 2]
    assert [span.id for span in ends[1].posted] == list(range(SLOTS))
