"""A stream whose queue pair dies goes on by its standby: how soon, and every chunk once. Pacing holds its rate."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator

import pytest

from sdfstream.verbs.chunks import CarriedMessage
from sdfstream.verbs.library_io import Verbs
from tests.rdma.inside import fabric
from tests.rdma.inside.pairs import SLOT_BYTES, SLOTS, Streams, figure

TRIALS = 20
IBV_WC_RETRY_EXC_ERR = 12


@pytest.fixture(scope="module")
def verbs(devices: tuple[str, ...]) -> Verbs:
    return Verbs()


@pytest.fixture(scope="module")
def ports(devices: tuple[str, ...]) -> dict[str, list[int]]:
    return fabric.ports_by_path(4)


@pytest.fixture
def streams(verbs: Verbs, ports: dict[str, list[int]]) -> Iterator[Streams]:
    made = Streams(verbs, ports["p0"][0], 0xF000)
    yield made
    fabric.black_hole("p0", on=False)
    made.close()


def checksum(payloads: list[bytes]) -> int:
    return sum(zlib.crc32(payload) for payload in payloads) % 2**64


def test_chunks_arrive_once_where_nothing_happens(streams: Streams) -> None:
    sent = streams.run(200)
    inbox = streams.receiver.inbox
    assert (inbox.taken, inbox.repeated, inbox.damaged, inbox.missing) == (200, 0, 0, 0)
    assert inbox.checksum == checksum(sent)
    assert streams.sender.failed_over == streams.sender.replayed == 0


def test_failover_by_error_completion_and_failback(streams: Streams, ports: dict[str, list[int]]) -> None:
    sent: list[bytes] = []
    detected_ms, moved_ms, all_ms, outage_ms = [], [], [], []
    acknowledged_s: list[float] = []
    streams.sender.finished = lambda message: acknowledged_s.append(time.monotonic())
    for trial in range(TRIALS):
        sent += streams.run(30)
        fabric.black_hole("p0", on=True)
        cut_s = time.monotonic()
        payload = b"x" * 1000
        while streams.sender.send(payload):
            sent.append(payload)
        acknowledged_s.clear()
        while streams.sender.failed_over == trial or not acknowledged_s:
            before = streams.sender.failed_over
            began_s = time.monotonic()
            streams.poll()
            if streams.sender.failed_over > before:
                died_s = began_s
            assert began_s - cut_s < 10, "no error completion, or nothing acknowledged after it"
        detected_ms.append((died_s - cut_s) * 1e3)
        moved_ms.append((acknowledged_s[0] - died_s) * 1e3)
        outage_ms.append((acknowledged_s[0] - cut_s) * 1e3)
        while len(acknowledged_s) < SLOTS and time.monotonic() - cut_s < 10:
            streams.poll()
        all_ms.append((acknowledged_s[SLOTS - 1] - died_s) * 1e3)
        sent += streams.run(30)
        fabric.black_hole("p0", on=False)
        streams.first.reset()
        streams.first.connect()
        streams.receiver.recovered(0)
        streams.sender.recovered(0)
        streams.sender.steer(ports["p0"][0], time.monotonic_ns())  # failback
        assert streams.sender.path == ports["p0"][0]
    sent += streams.run(30)
    inbox = streams.receiver.inbox
    assert (inbox.taken, inbox.damaged, inbox.missing) == (len(sent), 0, 0)
    assert inbox.checksum == checksum(sent)
    assert {c.status for c in streams.sender.errors} == {IBV_WC_RETRY_EXC_ERR}
    assert streams.sender.failed_over == TRIALS
    assert streams.sender.replayed >= TRIALS
    figure("error completion after the cut (timeout 10, 3 retries)", detected_ms)
    figure("first chunk acknowledged on the standby after the error completion", moved_ms)
    figure(f"all {SLOTS} acknowledged on the standby after the error completion", all_ms)
    figure("cut to flowing again by the standby", outage_ms)
    print(f"\nfigure chunks: {len(sent)} sent, {inbox.taken} taken once, {inbox.repeated} repeats refused")


def test_chunks_that_had_arrived_are_refused_the_second_time(streams: Streams) -> None:
    sent = streams.run(10)
    fabric.lose_answers(on=True)
    payload = b"z" * 1000
    carried: list[CarriedMessage] = []
    streams.sender.finished = carried.append
    while streams.sender.send(payload):
        sent.append(payload)
    ends_s = time.monotonic() + 10
    while not streams.sender.is_done and time.monotonic() < ends_s:
        streams.poll()
    fabric.lose_answers(on=False)
    streams.poll()
    inbox = streams.receiver.inbox
    print(f"\nfigure answers lost: {len(sent)} sent, {inbox.taken} taken, {inbox.repeated} repeats refused")
    assert streams.sender.is_done
    assert (inbox.taken, inbox.missing, inbox.damaged) == (len(sent), 0, 0)
    assert inbox.repeated > 0
    assert {(m.posts, m.path) for m in carried} == {(2, 0xF000)}
    assert inbox.checksum == checksum(sent)


def test_a_commanded_move_to_the_standby_repeats_nothing_to_the_receiver(streams: Streams) -> None:
    sent = []
    for number in range(40):
        payload = bytes([number]) * 500
        while not streams.sender.send(payload):
            streams.poll()
        sent.append(payload)
        if number == 20:
            streams.sender.steer(0xF000, time.monotonic_ns())
    ends_s = time.monotonic() + 10
    while not (streams.sender.is_done and streams.receiver.inbox.taken == 40) and time.monotonic() < ends_s:
        streams.poll()
    assert streams.receiver.inbox.taken == 40
    assert streams.receiver.inbox.checksum == checksum(sent)
    assert streams.sender.src_address == "10.1.0.1"


@pytest.mark.parametrize("rate_bps", [4_000_000, 10_000_000])
def test_pacing_holds_the_rate(streams: Streams, rate_bps: int) -> None:
    streams.sender.rate_bps = rate_bps
    octets, chunks = SLOT_BYTES - 24, 100
    streams.run(3)
    began_s = time.monotonic()
    for _ in range(chunks):
        while not streams.sender.send(b"y" * octets):
            streams.poll()
        streams.poll()
    seconds = time.monotonic() - began_s
    got_bps = chunks * SLOT_BYTES * 8 / seconds
    print(f"\nfigure paced to {rate_bps / 1e6:g} Mbit/s: {got_bps / 1e6:.2f}")
    # a starved machine sends slower, never faster
    assert got_bps <= 1.05 * rate_bps
    assert got_bps >= 0.7 * rate_bps
