"""Time stamps, error estimates and field places of the base packets."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.errors import ConfigError
from sdfstream.probes.stamp import datagrams, packet
from sdfstream.probes.stamp.packet import AUTHENTICATED, OPEN


def at(*ns: int) -> np.ndarray:
    return np.array(ns, dtype=np.int64)


def test_ntp_of_known_instants() -> None:
    # 1970-01-01 is second 2 208 988 800 of the NTP era 0; half a second is the top bit of the fraction
    words = packet.ntp_of(at(0, 500_000_000, 1_000_000_001))
    assert [f"{w:016x}" for w in words.tolist()] == ["83aa7e8000000000", "83aa7e8080000000", "83aa7e8100000005"]
    assert packet.ns_of_ntp(words).tolist() == [0, 500_000_000, 1_000_000_001]


def test_ntp_era_one_begins_in_2036() -> None:
    rollover_ns = (2**32 - packet.NTP_EPOCH_S) * 10**9
    words = packet.ntp_of(at(rollover_ns - 1, rollover_ns, rollover_ns + 10**9))
    assert [f"{w >> 32:08x}" for w in words.tolist()] == ["ffffffff", "00000000", "00000001"]
    assert packet.ns_of_ntp(words).tolist() == [rollover_ns - 1, rollover_ns, rollover_ns + 10**9]


def test_ptp_of_known_instants() -> None:
    words = packet.ptp_of(at(1_790_000_000_123_456_789))
    assert [f"{w:016x}" for w in words.tolist()] == [f"{1_790_000_000:08x}{123_456_789:08x}"]
    assert packet.ns_of_ptp(words).tolist() == [1_790_000_000_123_456_789]


def test_every_row_is_read_in_its_own_format() -> None:
    ns = 1_790_000_000_000_000_042
    words = np.array([packet.ntp_of(at(ns))[0], packet.ptp_of(at(ns))[0]])
    error = np.array([0x0101, 0x0101 | packet.PTP], dtype=np.uint16)
    assert packet.ns_of(words, error).tolist() == [ns, ns]


@pytest.mark.parametrize(
    ("error_ns", "word"),
    [(0.0, 0x0001), (0.2, 0x0001), (59.0, 0x00FE), (60.0, 0x0181), (1e6, 0x0F84), (1e99, 0x3FFF)],
)
def test_error_estimate_is_the_smallest_bound_that_holds(error_ns: float, word: int) -> None:
    assert packet.error_estimate(error_ns) == word
    if error_ns < 1e9:
        assert packet.error_ns_of(word) >= error_ns


def test_error_estimate_flags() -> None:
    assert packet.error_estimate(0, synced=True, ptp=True) == 0xC001
    assert packet.error_ns_of(0x0A00) == float("inf")


@pytest.mark.parametrize(
    ("layout", "offsets"),
    [
        (OPEN.probe, {"seq": 0, "t1": 4, "error": 12, "ssid": 14}),
        (
            OPEN.answer,
            {"seq": 0, "t3": 4, "error": 12, "ssid": 14, "t2": 16, "sender_seq": 24, "sender_t1": 28,
             "sender_error": 36, "ttl": 40},
        ),
        (AUTHENTICATED.probe, {"seq": 0, "t1": 16, "error": 24, "ssid": 26, "mac": 96}),
        (
            AUTHENTICATED.answer,
            {"seq": 0, "t3": 16, "error": 24, "ssid": 26, "t2": 32, "sender_seq": 48, "sender_t1": 64,
             "sender_error": 72, "ttl": 80, "mac": 96},
        ),
    ],
)  # fmt: skip
def test_octet_offsets_are_those_of_rfc_8762(layout: np.dtype, offsets: dict[str, int]) -> None:
    fields = layout.fields
    assert fields is not None
    assert {name: fields[name][1] for name in layout.names or ()} == offsets
    assert layout.itemsize == (112 if "mac" in offsets or layout is AUTHENTICATED.answer else 44)


def test_addresses() -> None:
    assert datagrams.address_octets("10.1.2.3").hex() == "00000000000000000000ffff0a010203"
    assert datagrams.address_octets("fd00::1").hex() == "fd000000000000000000000000000001"
    assert datagrams.is_ipv4("10.1.2.3")
    assert datagrams.is_ipv4("::ffff:10.1.2.3")
    assert not datagrams.is_ipv4("fd00::1")
    with pytest.raises(ConfigError, match=r"'10\.1\.2' is not an IP address"):
        datagrams.address_octets("10.1.2")
