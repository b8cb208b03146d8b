"""Packets to be traced with, and the ICMP errors that quote them: laws, and a fuzz of the decoders."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.probes.trace.packets import TCP, UDP, FiveTuple, packet, quote4, quote6

PREFIX = bytes(10) + b"\xff\xff"
OFFENDER = PREFIX + bytes([192, 0, 2, 7])
ports = st.integers(1, 65_535)
v4 = st.binary(min_size=4, max_size=4).map(PREFIX.__add__)
v6 = st.binary(min_size=15, max_size=15).map(b"\xfd".__add__)


def flows(address: st.SearchStrategy[bytes]) -> st.SearchStrategy[FiveTuple]:
    return st.builds(FiveTuple, st.sampled_from((UDP, TCP)), address, address, ports, ports)


def time_exceeded4(quoted: bytes) -> bytes:
    outer = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(quoted), 0, 0, 60, 1, 0) + OFFENDER[12:] + bytes([10, 0, 0, 1])
    return outer + struct.pack("!BBHI", 11, 0, 0, 0) + quoted


def time_exceeded6(quoted: bytes) -> bytes:
    return struct.pack("!BBHI", 3, 0, 0, 0) + quoted


def sum16(text: bytes) -> int:
    total = sum(struct.unpack(f"!{len(text) // 2}H", text))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@given(flows(v4), st.integers(0, 255), st.integers(1, 64), st.integers(0, 2**32 - 1), st.integers(0, 40))
def test_what_a_router_quotes_names_flow_and_token_v4(
    flow: FiveTuple, tos: int, ttl: int, token: int, more: int
) -> None:
    sent = packet(flow, tos, ttl, token)
    assert (sent[1], sent[8], struct.unpack_from("!H", sent, 2)[0]) == (tos, ttl, len(sent))
    quote = quote4(time_exceeded4(sent[: 28 + more]))
    assert quote is not None
    assert (quote.flow, quote.token, quote.bits, quote.offender) == (flow, token & 0xFFFF, 16, OFFENDER)
    assert quote4(time_exceeded4(sent[:27])) is None


@given(flows(v6), st.integers(0, 255), st.integers(1, 64), st.integers(0, 2**32 - 1))
def test_what_a_router_quotes_names_flow_and_token_v6(flow: FiveTuple, tos: int, ttl: int, token: int) -> None:
    sent = packet(flow, tos, ttl, token)
    assert struct.unpack_from("!I", sent)[0] == 6 << 28 | tos << 20, "no flow label"
    assert (sent[6], sent[7], struct.unpack_from("!H", sent, 4)[0] + 40) == (flow.protocol, ttl, len(sent))
    quote = quote6(time_exceeded6(sent), b"r" * 16)
    assert quote is not None
    assert (quote.flow, quote.token, quote.bits, quote.offender) == (flow, token, 32, b"r" * 16)


@given(st.one_of(flows(v4), flows(v6)), st.integers(0, 2**32 - 1))
def test_checksums_are_right_and_no_segment_carries_a_flag(flow: FiveTuple, token: int) -> None:
    first, header = (0, 40) if flow.v6 else (12, 20)
    body = packet(flow, 0, 3, token)[header:]
    pseudo = flow.source[first:] + flow.destination[first:] + struct.pack("!II", len(body), flow.protocol)
    assert sum16(pseudo + body) == 0xFFFF
    if flow.protocol == TCP:
        assert (len(body), body[13], body[12] >> 4) == (20, 0, 5)
    else:
        assert struct.unpack_from("!H", body, 4)[0] == len(body)


@settings(max_examples=500)
@given(st.binary(max_size=120))
def test_any_octets_are_a_quote_or_nothing(message: bytes) -> None:
    for quote in (quote4(message), quote6(message, b"r" * 16)):
        assert quote is None or quote.flow.protocol in (UDP, TCP)


@settings(max_examples=300)
@given(flows(v4), st.integers(0, 47), st.integers(0, 255), st.booleans())
def test_a_damaged_message_never_raises(flow: FiveTuple, at: int, value: int, six: bool) -> None:
    sent = packet(flow, 0, 1, 77)
    message = bytearray(time_exceeded6(sent) if six else time_exceeded4(sent))
    message[at % len(message)] = value
    quote4(bytes(message))
    quote6(bytes(message), b"r" * 16)


@pytest.mark.parametrize(("kind", "code"), [(3, 1), (11, 1), (0, 0), (5, 0)])
def test_other_messages_are_none_of_ours(kind: int, code: int) -> None:
    flow = FiveTuple(UDP, PREFIX + b"abcd", PREFIX + b"efgh", 1, 2)
    message = bytearray(time_exceeded4(packet(flow, 0, 1, 1)))
    message[20:22] = bytes([kind, code])
    assert quote4(bytes(message)) is None


def test_a_later_fragment_quotes_no_ports() -> None:
    flow = FiveTuple(UDP, PREFIX + b"abcd", PREFIX + b"efgh", 1, 2)
    message = bytearray(time_exceeded4(packet(flow, 0, 1, 1)))
    struct.pack_into("!H", message, 28 + 6, 5)
    assert quote4(bytes(message)) is None
