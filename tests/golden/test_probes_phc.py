"""Numbers and layouts of linux/ptp_clock.h as a C compiler gives them on 64-bit Linux."""

import struct

import numpy as np

from sdfstream.probes import phc
from sdfstream.records.topics import PROBE


def test_ioctl_numbers_and_sizes_are_the_kernels() -> None:
    assert [(w.number, w.size) for w in (*phc.METHODS, phc.CAPABILITIES)] == [
        (0xC0403D08, 64),
        (0xC4C03D09, 1216),
        (0x43403D05, 832),
        (0x80503D01, 80),
    ]


def test_requests_are_these_bytes() -> None:
    assert phc.request(phc.EXTENDED, 2) == bytes.fromhex("02000000") + bytes(1212)
    assert phc.request(phc.OFFSET, 25) == bytes.fromhex("19000000") + bytes(828)
    assert phc.request(phc.PRECISE) == bytes(64)


AT = bytes.fromhex("00d2496b00000000")  # 1_800_000_000 s, little-endian s64


def time(ns_hex: str) -> bytes:
    return AT + bytes.fromhex(ns_hex) + bytes(4)


def test_an_extended_answer_is_read() -> None:
    answer = bytes.fromhex("02000000") + bytes(12)
    answer += time("64000000") + time("e8030000") + time("2c010000")  # 100, 1000, 300
    answer += time("f4010000") + time("20030000") + time("58020000")  # 500, 800, 600: the smaller window
    answer += b"\xff" * (1216 - len(answer))  # beyond n_samples nothing is looked at
    s = 1_800_000_000 * 10**9
    assert phc.samples(phc.EXTENDED, answer).tolist() == [[s + 100, s + 1000, s + 300], [s + 500, s + 800, s + 600]]
    assert phc.best(phc.samples(phc.EXTENDED, answer)) == phc.Sample(s + 500, s + 800, s + 600)


def test_an_offset_answer_is_read() -> None:
    answer = bytes.fromhex("02000000") + bytes(12)
    for ns in ("64000000", "e8030000", "2c010000", "20030000", "58020000"):  # sys 100, phc 1000, sys 300, phc 800, 600
        answer += time(ns)
    answer += bytes(832 - len(answer))
    s = 1_800_000_000 * 10**9
    assert phc.samples(phc.OFFSET, answer).tolist() == [[s + 100, s + 1000, s + 300], [s + 300, s + 800, s + 600]]


def test_a_precise_answer_is_read() -> None:
    answer = time("e8030000") + time("64000000") + time("05000000") + bytes(16)  # device, realtime, monotonic raw
    s = 1_800_000_000 * 10**9
    assert phc.samples(phc.PRECISE, answer).tolist() == [[s + 100, s + 1000, s + 100]]


def test_the_precise_ability_is_the_seventh_int() -> None:
    assert phc.offers_precise(struct.pack("<20i", *([0] * 6), 1, *([0] * 13)))
    assert not phc.offers_precise(struct.pack("<20i", *([9] * 6), 0, *([9] * 13)))


def test_a_row_is_as_the_topic_says() -> None:
    batch = phc.rows("h1", {"h1/b": phc.Sample(5, 90, 9), "h1/a": phc.Sample(6, 7, 8)}, {"h1/a": "backend"}, 1 << 32)
    assert PROBE.columns is not None and batch.schema.equals(PROBE.columns)
    batch.validate(full=True)
    row = {k: v for k, v in batch.to_pylist()[1].items() if v is not None}
    assert row == {
        "src": "h1/b", "dst": "h1/b", "clock_src": "h1", "clock_dst": "h1/b", "transport": "host", "path": 0, "seq": 0,
        "t1_ns": 5, "t2_ns": 90, "t3_ns": 90, "t4_ns": 9, "t1_kind": 1, "t2_kind": 2, "t3_kind": 2, "t4_kind": 1,
        "dscp_sent": 0, "ecn_sent": 0, "size_bytes": 0,
    }  # fmt: skip
    assert batch.column("plane").to_pylist() == ["backend", None]
    assert np.array(batch.column("src").to_pylist()).tolist() == ["h1/a", "h1/b"]
