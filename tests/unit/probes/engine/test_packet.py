"""Packets of the packet engine, octet by octet as the golden ones and as the numpy engines'."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.probes.config import SessionConfig, VirtualClock
from sdfstream.probes.stamp import packet, tlv
from sdfstream.probes.stamp.datagrams import address_keys, address_octets
from sdfstream.probes.virtual_clock import KNOT_NS, Clock
from sdfstream.records.units import ABSENT_NS, NS_PER_S
from tests.fixtures.engine_packets import Codec, clock_reading, functions
from tests.golden.test_probes_stamp_packets import KEY, first_probe
from tests.wire import EPOCH, HostConfig, NicConfig, sender_of

KEYS = pytest.mark.parametrize("key", [None, KEY, b"k" * 100], ids=["open", "authenticated", "long-key"])
ERROR = packet.error_estimate(1e6)
PTP_ERROR = packet.error_estimate(1e3, ptp=True, synced=True)


@pytest.mark.parametrize("key", [None, KEY], ids=["open", "authenticated"])
def test_golden_probe(key: bytes | None) -> None:
    wanted = first_probe(key)
    t1 = int(packet.ntp_of(np.array([EPOCH + NS_PER_S // 2]))[0])
    made = Codec(key, ERROR).probe(0, t1, ssid=1, length_octets=len(wanted), dscp1=46, ec1=2)
    assert made.hex() == wanted.hex()


@KEYS
@pytest.mark.parametrize("error", [ERROR, PTP_ERROR], ids=["ntp", "ptp"])
def test_probes_of_every_size_and_class(key: bytes | None, error: int) -> None:
    codec = Codec(key, error)
    for size in (64, 100, 128, 129, 150, 182, 200, 1_280, 1_500, 4_200, 9_000):
        for dscp, ecn in ((0, 0), (46, 2), (63, 3), (1, 1)):
            session = SessionConfig(
                "ha/r0", "hb/r0", "10.0.1.1", source_ports=(50_001,), dscp=dscp, ecn=ecn, size_bytes=size
            )
            host = HostConfig("ha", (NicConfig("ha/r0", "r0", "10.0.0.1"),), (session,))
            sender = sender_of(host, hmac_key=key, error=error)
            for seq in range(3):
                sent = sender.due((seq + 1) * NS_PER_S, EPOCH + seq * 12_345_678_901)
                wanted = bytes(sent.data[0, : int(sent.length[0])])
                assert codec.octets(size - 28) == len(wanted)
                word = functions().pe_stamp_of(EPOCH + seq * 12_345_678_901, error)
                made = codec.probe(seq, word, ssid=1, length_octets=len(wanted), dscp1=dscp, ec1=ecn)
                assert made.hex() == wanted.hex()


@KEYS
def test_payload_lengths(key: bytes | None) -> None:
    codec = Codec(key, ERROR)
    mode = packet.mode_of(key)
    assert [codec.octets(n) for n in range(300)] == [tlv.payload_bytes(mode, n) for n in range(300)]


EDGES_NS = [
    0,
    1,
    -1,
    NS_PER_S - 1,
    NS_PER_S,
    EPOCH,
    EPOCH + 999_999_999,
    -60_000_000 * NS_PER_S,
    4_200_000_000 * NS_PER_S,
]


@pytest.mark.parametrize("error", [ERROR, PTP_ERROR], ids=["ntp", "ptp"])
def test_stamps(error: int) -> None:
    rng = np.random.default_rng(1)
    at_ns = np.array([*EDGES_NS, *rng.integers(-(2**62), 2**62, 2_000)], dtype=np.int64)
    words = packet.stamp_of(at_ns, error)
    stamp_of, ns_of = functions().pe_stamp_of, functions().pe_ns_of
    assert [stamp_of(ns, error) for ns in at_ns.tolist()] == words.tolist()
    some = np.concatenate([words, rng.integers(0, 2**64, 2_000, dtype=np.uint64), np.array([0, 2**64 - 1], np.uint64)])
    wanted = packet.ns_of(some, np.full(len(some), error, dtype=np.uint16)).tolist()
    assert [ns_of(word, error) for word in some.tolist()] == wanted


@pytest.mark.parametrize(
    "settings",
    [
        VirtualClock(offset_ns=-1_234.5),
        VirtualClock(skew_ppb=12_345.678_901, epoch_at_ns=EPOCH),
        VirtualClock(offset_ns=5e9, skew_ppb=-999_999.999_999, epoch_at_ns=EPOCH + 10**15),
        VirtualClock(skew_ppb=-0.000_001, wander_ns_per_sqrt_s=300.0, seed=7, epoch_at_ns=EPOCH),
    ],
)
def test_virtual_clock(settings: VirtualClock) -> None:
    clock = Clock(settings)
    rng = np.random.default_rng(2)
    first = -20
    wander = clock.knots_ns(first, 60).tolist() if settings.wander_ns_per_sqrt_s else []
    made = {
        "offset_ns": clock.offset_ns,
        "skew_micro_ppb": clock.skew_micro_ppb,
        "epoch_at_ns": settings.epoch_at_ns,
        "first_knot": first,
        "knots_ns": wander,
    }
    spread = 20 * KNOT_NS if wander else 10**17
    at_ns = settings.epoch_at_ns + rng.integers(-spread, spread, 500)
    assert [clock_reading(ns, **made) for ns in at_ns.tolist()] == clock.reading(at_ns).tolist()
    assert clock_reading(ABSENT_NS, **made) == ABSENT_NS


def test_wander_stands_still_beyond_its_knots() -> None:
    made = {"epoch_at_ns": EPOCH, "first_knot": 0, "knots_ns": [10, 20]}
    assert clock_reading(EPOCH - 5 * KNOT_NS, **made) == EPOCH - 5 * KNOT_NS + 10
    assert clock_reading(EPOCH + KNOT_NS // 2, **made) == EPOCH + KNOT_NS // 2 + 15
    assert clock_reading(EPOCH + 50 * KNOT_NS, **made) == EPOCH + 50 * KNOT_NS + 20


@pytest.mark.parametrize("key", [None, KEY], ids=["open", "authenticated"])
def test_what_is_an_answer(key: bytes | None) -> None:
    mode = packet.mode_of(key)
    codec = Codec(key, ERROR)
    rng = np.random.default_rng(3)
    data = rng.integers(0, 256, (600, mode.base_bytes), dtype=np.uint8)
    data[rng.random(data.shape) < 0.7] = 0
    for row in range(200):  # an answer but for one octet
        data[row] = 0
        data[row, rng.integers(0, mode.base_bytes, 3)] = 1
    wanted = packet.are_answers(data, mode).tolist()
    assert [codec.is_answer(bytes(row)) for row in data] == wanted
    assert 20 < sum(wanted) < 580


def test_address_keys() -> None:
    rng = np.random.default_rng(4)
    octets = [address_octets(a) for a in ("10.0.0.1", "fd00::1", "::")] + [rng.bytes(16) for _ in range(50)]
    extra = rng.integers(0, 2**64, len(octets), dtype=np.uint64)
    words = np.frombuffer(b"".join(octets), dtype=np.uint64).reshape(-1, 2)
    made = [functions().pe_address_key(o, e) for o, e in zip(octets, extra.tolist(), strict=True)]
    assert made == address_keys(words, extra).tolist()
