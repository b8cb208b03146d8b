"""Chunks exactly once: the two ledgers, joined by queue pairs that lose, die and repeat."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from sdfstream.verbs.chunks import ChunkInbox, ChunkOutbox, decode, encode


def framed(number: int, payload: bytes) -> bytes:
    return encode(number, payload, 5) + payload


@given(st.integers(0, 2**64 - 1), st.binary(max_size=300), st.integers(-(2**63), 2**63 - 1))
def test_what_is_encoded_is_decoded(number: int, payload: bytes, at_ns: int) -> None:
    found = decode(encode(number, payload, at_ns) + payload)
    assert found is not None
    assert (found[0].number, found[0].sent_at_ns, found[1]) == (number, at_ns, payload)


@given(st.binary(max_size=120))
def test_any_octets_are_read_or_refused(octets: bytes) -> None:
    decode(octets)


@given(st.binary(min_size=1, max_size=64), st.data())
def test_a_flipped_bit_is_noticed(payload: bytes, data: st.DataObject) -> None:
    octets = bytearray(framed(3, payload))
    at = data.draw(st.integers(24, len(octets) - 1))
    octets[at] ^= 1 << data.draw(st.integers(0, 7))
    inbox = ChunkInbox()
    assert inbox.take(bytes(octets)) is None
    assert inbox.damaged == 1


@given(st.lists(st.integers(0, 30), max_size=120))
def test_each_number_is_taken_once_in_any_order(numbers: list[int]) -> None:
    inbox = ChunkInbox()
    taken = [n for n in numbers if inbox.take(framed(n, b"%d" % n)) is not None]
    assert sorted(taken) == sorted(set(numbers))
    assert inbox.repeated == len(numbers) - len(taken)
    assert inbox.checksum == sum(zlib.crc32(b"%d" % n) for n in set(numbers))
    assert inbox.missing == (len(set(range(max(numbers) + 1)) - set(numbers)) if numbers else 0)


@given(st.data())
def test_queue_pairs_that_die_lose_and_double_nothing(data: st.DataObject) -> None:
    outbox, inbox = ChunkOutbox(slots=4), ChunkInbox()
    slots: dict[int, bytes] = {}
    begun = 0
    flying: list[int] = []  # posts on the queue pair in use
    for _ in range(data.draw(st.integers(1, 60))):
        act = data.draw(st.sampled_from(["send", "carry", "die"]))
        if act == "send" and outbox.has_room:
            chunk = outbox.begin(24, 0)
            assert chunk.slot not in {c.slot for c in outbox._chunks.values() if c is not chunk}
            slots[chunk.number] = framed(chunk.number, b"%d" % chunk.number)
            outbox.posted(chunk)
            flying.append(chunk.number)
            begun += 1
        elif act == "carry" and flying:
            number = flying.pop(0)
            inbox.take(slots[number])
            outbox.completed(number, ok=True, now_ns=1)
        elif act == "die":  # some arrived, nobody knows which; all come back flushed, and are posted anew
            for number in flying:
                if data.draw(st.booleans()):
                    inbox.take(slots[number])
                outbox.completed(number, ok=False, now_ns=1)
            flying = []
            for chunk in outbox.unacknowledged():
                outbox.posted(chunk)
                flying.append(chunk.number)
    for number in flying:
        inbox.take(slots[number])
        outbox.completed(number, ok=True, now_ns=2)
    assert outbox.is_empty
    assert outbox.has_room
    assert (inbox.taken, inbox.missing) == (begun, 0)


def test_a_slot_is_free_only_when_no_device_may_read_it() -> None:
    outbox = ChunkOutbox(slots=1)
    chunk = outbox.begin(24, 0)
    outbox.posted(chunk)
    outbox.posted(chunk)  # again, by the standby, while the first is not yet flushed
    assert outbox.completed(chunk.number, ok=True, now_ns=1) is chunk
    assert not outbox.has_room
    assert outbox.completed(chunk.number, ok=False, now_ns=2) is None
    assert outbox.has_room
    assert outbox.completed(chunk.number, ok=True, now_ns=3) is None  # of nothing that is known
