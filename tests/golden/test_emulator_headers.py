"""The emulated queue pair's wire form, octet by octet: an older and a newer process must understand each other."""

from __future__ import annotations

import zlib

from sdfstream.emulator import qp_header as wire

DATA = wire.DataHeader(wire.MAGIC, wire.DATA, wire.AGAIN, 5, 0x01020304, 17, 258, 259, 3, 4, 5, 6, 1413, 1408)
DATA_HEX = (
    "53445131 01 02 0005 01020304 00000011 0000000000000102 0000000000000103"
    "00000003 00000004 00000005 00000006 00000585 00000580"
)
ACK = wire.Ack(0x01020304, 17, 258, 259, 300, 2, 0b1000_0000_0010, (wire.ChunkReport(3, 1, 1_000, -2),))
ACK_HEX = (
    "53445131 02 01 0002 01020304 00000011 0000000000000102 0000000000000103 0000012c 00000002"
    # the checksum stands here
    "0208 00000003 00000001 00000000000003e8 fffffffffffffffe"
)


def test_a_data_packet() -> None:
    head = bytes.fromhex(DATA_HEX)
    crc = zlib.crc32(head + b"hello").to_bytes(4, "big")
    packet = wire.data_packet(DATA, b"hello")
    assert packet == head + crc + b"hello"
    assert crc.hex() == "861adc7f"
    assert wire.data(memoryview(packet)) == DATA


def test_an_acknowledgement() -> None:
    octets = bytes.fromhex(ACK_HEX)
    head, body = octets[:40], octets[40:]
    crc = zlib.crc32(head + body).to_bytes(4, "big")
    packet = wire.ack_packet(ACK)
    assert packet == head + crc + body
    assert crc.hex() == "6ecfefef"
    assert wire.acknowledgement(memoryview(packet)) == ACK


def test_sizes() -> None:
    assert (wire.DATA_BYTES, wire.ACK_BYTES) == (60, 44)
    assert wire.DATA_BYTES + wire.PAYLOAD_BYTES + 8 + 20 <= 1500
