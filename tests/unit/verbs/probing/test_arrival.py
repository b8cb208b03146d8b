"""Headers before received messages, of both IP versions and of none."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.probes.stamp.datagrams import address_octets
from sdfstream.verbs.probing.arrival import packet_headers
from tests.unit.verbs.probing.wire import header_of

addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str)


def rows(*headers: bytes) -> np.ndarray:
    return np.array([list(h) for h in headers], dtype=np.uint8).reshape(-1, 40)


@given(st.lists(st.tuples(addresses, st.integers(0, 255), st.integers(1, 255)), max_size=8))
def test_address_class_and_ttl_are_those_of_the_packet(packets: list[tuple[str, int, int]]) -> None:
    found = packet_headers(rows(*(header_of(*packet) for packet in packets)))
    assert [bytes(a) for a in found.address] == [address_octets(address) for address, _, _ in packets]
    assert list(zip(found.tos.tolist(), found.ttl.tolist(), strict=True)) == [(tos, ttl) for _, tos, ttl in packets]
    assert found.known.all()


@given(st.binary(min_size=40, max_size=40))
def test_any_octets_are_read_or_left(octets: bytes) -> None:
    found = packet_headers(rows(octets))
    if not found.known[0]:
        assert not found.address.any()
        assert (int(found.tos[0]), int(found.ttl[0])) == (0, 0)


def test_a_header_with_a_wrong_checksum_is_none() -> None:
    broken = bytearray(header_of("10.0.0.1", 104, 63))
    broken[28] ^= 1
    assert not packet_headers(rows(bytes(broken).replace(b"\x66", b"\x00"))).known.any()
