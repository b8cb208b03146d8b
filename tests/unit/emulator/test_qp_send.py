"""The queue pair's two ends and the stripe over them, on their own."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from sdfstream.emulator import qp_header as wire
from sdfstream.emulator.qp_chunk import Piece
from sdfstream.emulator.qp_receive import ACK_DELAY_NS, ACK_EVERY, Delivered, Responder
from sdfstream.emulator.qp_send import Requester
from sdfstream.emulator.qp_stripe import Stripe
from sdfstream.emulator.qp_window import LEAST, CongestionWindow
from sdfstream.emulator.rank_plan import JobSpec
from sdfstream.records.units import NS_PER_MS
from tests.fixtures.emulated import PASS_NS, Run, Wire

AT_NS = 1_800_000_000 * 10**9
PIECE = bytes(range(256)) * 64  # 16 KiB: 12 packets


def headers(packets: list[tuple[int, bytes, object]]) -> list[wire.DataHeader]:
    return [h for _, p, _ in packets if isinstance(h := wire.data(memoryview(p)), wire.DataHeader)]


def give(responder: Responder, packet: tuple[int, bytes, object], *, ce: bool = False) -> Delivered | None:
    port, octets, _ = packet
    view = memoryview(octets)
    header = wire.data(view)
    assert isinstance(header, wire.DataHeader)
    return responder.take(header, view[wire.DATA_BYTES :], port, AT_NS, ce=ce)


def acknowledge(responder: Responder, requester: Requester, now_ns: int) -> list[int]:
    """Chunks finished by the acknowledgement of what has arrived."""
    made = responder.acknowledge(now_ns)
    assert made is not None
    ack = wire.acknowledgement(memoryview(made[1]))
    assert isinstance(ack, wire.Ack)
    return [f.chunk for f in requester.on_ack(ack, AT_NS, now_ns)]


def pair() -> tuple[Requester, Responder]:
    return Requester(1, 2, 50_000, 0), Responder(1, 2)


def test_a_chunk_crosses_and_is_reported_with_what_the_receiver_saw() -> None:
    sending, receiving = pair()
    sending.push(Piece(7, 3, 1, PIECE), 0)
    delivered, packets, now_ns = [], [], 0
    while not sending.idle:
        packets = sending.poll(now_ns)
        for packet in packets:
            if packet[2] is not None:
                packet[2](AT_NS + 5)
            if chunk := give(receiving, packet, ce=True):
                delivered.append(chunk)
        made = receiving.acknowledge(now_ns)
        now_ns += PASS_NS
        if made is not None:
            ack = wire.acknowledgement(memoryview(made[1]))
            assert isinstance(ack, wire.Ack)
            finished = sending.on_ack(ack, AT_NS + 9, now_ns)
    assert delivered == [Delivered(7, 3, 1, bytearray(PIECE))]
    [done] = finished
    assert (done.chunk, done.packets, done.retransmits, done.path) == (0, 12, 0, 50_000)
    assert (done.sent_at_ns, done.acknowledged_at_ns) == (AT_NS + 5, AT_NS + 9)
    assert done.report == wire.ChunkReport(0, 12, AT_NS, AT_NS)
    assert sending.acknowledged_bytes == receiving.delivered_bytes == len(PIECE)


def test_only_the_missing_packet_is_sent_again() -> None:
    sending, receiving = pair()
    sending.push(Piece(0, 0, 0, PIECE), 0)
    packets = [p for n in range(20) for p in sending.poll(n * NS_PER_MS)]
    assert len(packets) == 10  # the first window
    for packet in packets[:1] + packets[2:]:
        give(receiving, packet)
    acknowledge(receiving, sending, 20 * NS_PER_MS)
    again = headers(sending.poll(21 * NS_PER_MS))
    assert [(h.psn, h.flags) for h in again] == [(1, wire.AGAIN), (10, 0), (11, 0)]


def test_a_packet_twice_counts_once() -> None:
    sending, receiving = pair()
    sending.push(Piece(0, 0, 0, PIECE[:100]), 0)
    [packet] = sending.poll(0)
    assert give(receiving, packet) is not None
    assert give(receiving, packet) is None
    assert (receiving.duplicates, receiving.delivered_bytes) == (1, 100)


def test_after_a_move_what_was_not_acknowledged_leaves_at_once_by_the_new_port() -> None:
    sending, receiving = pair()
    sending.push(Piece(0, 0, 0, PIECE), 0)
    before = sending.poll(0)
    sending.steer(50_003, PASS_NS)
    assert sending.moved_at_ns is None
    after = sending.poll(PASS_NS)
    assert {port for port, _, _ in after} == {50_003}
    assert [h.psn for h in headers(after)][: len(before)] == [h.psn for h in headers(before)]
    callbacks = [on_departure for _, _, on_departure in after if on_departure is not None]
    callbacks[0](AT_NS)
    callbacks[0](AT_NS + 3)  # the kernel's stamp follows
    assert sending.moved_at_ns == AT_NS + 3
    for packet in [*after, *before]:  # the old path delivers late
        give(receiving, packet)
    made = receiving.acknowledge(PASS_NS)
    assert made is not None and made[0] == 50_003  # by the newest transmission, not the latest arrival
    assert receiving.duplicates == len(before)


def test_an_answer_leaves_by_the_port_that_the_newest_data_came_by() -> None:
    sending, receiving = pair()
    sending.push(Piece(0, 0, 0, PIECE), 0)
    packets = sending.poll(0)
    give(receiving, packets[0])
    assert receiving.acknowledge(0) is not None
    assert receiving.acknowledge(0) is None  # nothing new, nothing said
    give(receiving, packets[1])
    give(receiving, packets[2])
    made = receiving.acknowledge(0)
    assert made is not None and made[0] == 50_000


def arrived(*, n: int, psn: int = 0, path: int = 50_000, ce: bool = False, again: bool = False) -> Responder:
    """A receiver that has acknowledged the packets before `psn`, and then got `n` more."""
    sending, receiving = Requester(1, 2, 50_000, 0), Responder(1, 2)
    sending.push(Piece(0, 0, 0, PIECE), 0)
    packets = sending.poll(0)
    give(receiving, packets[0])
    receiving.acknowledge(0)
    for _, octets, stamp in packets[1 + psn : 1 + psn + n]:
        header = wire.data(memoryview(octets))
        assert isinstance(header, wire.DataHeader)
        octets = wire.data_packet(header._replace(flags=wire.AGAIN), octets[wire.DATA_BYTES :]) if again else octets
        give(receiving, (path, octets, stamp), ce=ce)
    return receiving


def test_every_second_packet_is_acknowledged_at_once_and_one_alone_after_the_delay() -> None:
    assert arrived(n=ACK_EVERY).acknowledge(0) is not None
    alone = arrived(n=1)
    assert [alone.acknowledge(now_ns) for now_ns in (0, PASS_NS, ACK_DELAY_NS - 1)] == [None] * 3
    assert alone.acknowledge(ACK_DELAY_NS) is not None
    assert alone.acknowledge(2 * ACK_DELAY_NS) is None


@pytest.mark.parametrize(
    "what",
    [{"psn": 1}, {"path": 50_003}, {"ce": True}, {"again": True}],
    ids=["behind a gap", "by another port", "with CE", "sent again"],
)
def test_what_the_sender_waits_for_is_acknowledged_at_once(what: dict[str, Any]) -> None:
    assert arrived(n=1, **what).acknowledge(0) is not None


def test_the_last_packet_of_a_chunk_is_acknowledged_at_once() -> None:
    sending, receiving = pair()
    sending.push(Piece(0, 0, 0, PIECE[:100]), 0)
    sending.push(Piece(0, 0, 1, PIECE[:100]), 0)
    for packet in sending.poll(0):
        give(receiving, packet)
        assert receiving.acknowledge(0) is not None


def test_a_dead_path_gets_a_trickle_that_never_backs_off_far() -> None:
    sending, _ = pair()
    sending.push(Piece(0, 0, 0, PIECE), 0)
    times = [n * PASS_NS for n in range(1000) if sending.poll(n * PASS_NS)]
    gaps = [b - a for a, b in pairwise(times[2:])]
    assert max(gaps) <= 64 * NS_PER_MS
    assert sending.window.packets == LEAST


def test_an_acknowledgement_of_what_was_never_sent_is_refused() -> None:
    sending, _ = pair()
    sending.push(Piece(0, 0, 0, PIECE), 0)
    sending.poll(0)
    for cumulative, ahead, newest in ((11, 0, 1), (0, 1 << 400, 1), (0, 0, 1000)):
        assert sending.on_ack(wire.Ack(1, 2, cumulative, newest, 1, 0, ahead, ()), AT_NS, 1) == []
    assert sending.refused == 3
    assert not sending.idle


def test_data_beyond_the_window_or_at_odds_with_its_chunk_is_refused() -> None:
    receiving = Responder(1, 2)
    good = wire.DataHeader(wire.MAGIC, wire.DATA, 0, 1408, 1, 2, 0, 1, 0, 0, 0, 0, 5000, 0)
    payload = memoryview(bytes(1408))
    for bad in (
        good._replace(psn=wire.WINDOW),
        good._replace(offset=1408),  # its chunk would begin before the first packet
    ):
        assert receiving.take(bad, payload, 50_000, AT_NS, ce=False) is None
    receiving.take(good, payload, 50_000, AT_NS, ce=False)
    receiving.take(good._replace(psn=1, offset=1408, piece=9), payload, 50_000, AT_NS, ce=False)
    assert receiving.refused == 3


def test_a_limit_holds_and_its_end_is_felt_at_once() -> None:
    spec = JobSpec("t", ("a", "b"), qps=1, message_mb=8)
    run = Run(spec, Wire())
    [ends, _] = run.engine.ends.values()
    ends.requester.rate_bps = 5_000_000
    run.run(2.0)
    rate = ends.requester.sent_bytes * 8 / 2.0
    assert 4.2e6 < rate < 5.0e6  # headers count
    ends.requester.rate_bps = None
    before = ends.requester.sent_bytes
    run.run(0.2)
    assert (ends.requester.sent_bytes - before) * 8 / 0.2 > 10e6


def test_marks_shrink_the_window_in_proportion() -> None:
    few, many = CongestionWindow(), CongestionWindow()
    for window, marked in ((few, 1), (many, 8)):
        tx = 10
        for _ in range(60):
            window.on_ack(10, marked, tx, tx + 10, full=True)
            tx += 10
    assert LEAST <= many.packets < few.packets


def test_pieces_of_a_stalled_queue_pair_are_carried_by_the_others() -> None:
    dead, well = Requester(1, 1, 50_000, 0), Requester(1, 2, 50_001, 0)
    stripe = Stripe([dead, well])
    for n in range(40):
        stripe.put(Piece(0, 0, n, PIECE))
    receiving, got, now_ns = Responder(1, 2), [], 0
    for _ in range(400):
        stripe.feed(now_ns)
        dead.poll(now_ns)
        got += [chunk.piece for packet in well.poll(now_ns) if (chunk := give(receiving, packet))]
        now_ns += PASS_NS
        if (made := receiving.acknowledge(now_ns)) is not None:
            ack = wire.acknowledgement(memoryview(made[1]))
            assert isinstance(ack, wire.Ack)
            well.on_ack(ack, AT_NS, now_ns)
    assert sorted(got) == list(range(40))
    assert stripe.rescued > 0
    flags = [h.flags for h in headers(dead.poll(now_ns + 100 * NS_PER_MS))]
    assert flags and all(f & wire.VOID for f in flags)  # what others have carried crosses no second time


@pytest.mark.parametrize("k", [2, 3, 4])
def test_losing_one_of_k_paths_leaves_the_others_share(k: int) -> None:
    spec = JobSpec("t", ("a", "b"), qps=k, message_mb=2, chunk_kb=16, rate_bps=4_000_000)
    run = Run(spec, Wire())
    run.run(2.0)
    full = run.engine.stats()["payload_bytes"]
    run.wire.dead = frozenset({50_000})
    run.run(0.5)
    start = run.engine.stats()["payload_bytes"]
    run.run(2.0)
    during = run.engine.stats()["payload_bytes"] - start
    assert during / full == pytest.approx((k - 1) / k, rel=0.12)
    run.wire.dead = frozenset()
    run.run(0.5)
    start = run.engine.stats()["payload_bytes"]
    run.run(2.0)
    assert (run.engine.stats()["payload_bytes"] - start) / full == pytest.approx(1.0, rel=0.1)
    assert run.engine.stats()["checked_wrong"] == 0
