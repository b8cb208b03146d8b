"""Wire form of the emulated queue pair: one UDP datagram is one data packet or one acknowledgement (big endian).

Both kinds begin alike; ``run`` is a number drawn afresh by every process of a job, so that packets of an earlier run,
or of another job on the same NIC, are nobody's::

    0  u32 magic "SDQ1" · 4 u8 kind (1 data, 2 acknowledgement) · 5 u8 flags · 6 u16 length · 8 u32 run · 12 u32 qp

Data (60 octets, then `length` octets of payload; flags: 1 void, 2 sent again)::

    16 u64 psn · 24 u64 tx · 32 u32 chunk · 36 u32 collective · 40 u32 step · 44 u32 piece
    48 u32 chunk_bytes · 52 u32 offset · 56 u32 crc

``psn`` numbers the packets of a queue pair, ``tx`` their transmissions (a packet sent again keeps its psn and gets a
new tx). ``chunk`` numbers the chunks of the queue pair; ``collective``, ``step`` and ``piece`` are for the receiving
rank, and ``offset`` is this packet's first octet of ``chunk_bytes``. A *void* packet stands for one whose chunk has
been carried by another queue pair: it has no payload.

Acknowledgement (44 octets, then `length` octets of ``ahead``, at most 64, then `flags` reports of 24)::

    16 u64 cumulative · 24 u64 newest_tx · 32 u32 received · 36 u32 ce · 40 u32 crc
    report: u32 chunk · u32 ce · i64 arrived_at_ns · i64 completed_at_ns

All packets below psn ``cumulative`` have arrived, and those whose bit is set in ``ahead`` (little endian: bit i is
psn cumulative + i). ``received`` and ``ce`` count data packets and those of them with CE, modulo 2³². Reports are of
the chunks completed last; each is repeated several times, since acknowledgements may be lost.

``crc`` is the CRC-32 (IEEE 802.3, zlib) of everything before it and everything behind it: header and payload.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

MAGIC: Final = 0x53445131
"""``SDQ1``."""
PORT: Final = 4791
"""UDP destination port of data and acknowledgements, as RoCEv2 has it."""
DATA, ACK = 1, 2
VOID, AGAIN = 1, 2

WINDOW: Final = 512
"""Packets that may be beyond the first one missing; bits in ``ahead``."""
REPORTS: Final = 4
"""Chunk reports in one acknowledgement at most."""
PAYLOAD_BYTES: Final = 1408
"""Payload of every packet but a chunk's last: header, UDP and IPv4 with it make 1496 octets."""
MAX_CHUNK_BYTES: Final = 1 << 20

_DATA: Final = struct.Struct(">IBBHIIQQIIIIII")
_ACK: Final = struct.Struct(">IBBHIIQQII")
_REPORT: Final = struct.Struct(">IIqq")
_CRC: Final = struct.Struct(">I")
DATA_BYTES: Final = _DATA.size + _CRC.size
ACK_BYTES: Final = _ACK.size + _CRC.size
_U32: Final = 0xFFFFFFFF


class DataHeader(NamedTuple):
    """Header of a data packet; fields as above."""

    magic: int
    kind: int
    flags: int
    length: int
    run: int
    qp: int
    psn: int
    tx: int
    chunk: int
    collective: int
    step: int
    piece: int
    chunk_bytes: int
    offset: int


class ChunkReport(NamedTuple):
    """A receiver's report on one chunk; instants by the receiving host's clock."""

    chunk: int
    ce: int
    arrived_at_ns: int
    completed_at_ns: int


class Ack(NamedTuple):
    """An acknowledgement."""

    run: int
    qp: int
    cumulative: int
    newest_tx: int
    received: int
    ce: int
    ahead: int
    """Bit i: psn cumulative + i has arrived."""
    reports: tuple[ChunkReport, ...]


def data_packet(header: DataHeader, payload: bytes | memoryview) -> bytes:
    """A data packet; `payload` has ``header.length`` octets."""
    head = _DATA.pack(*header)
    return b"".join((head, _CRC.pack(zlib.crc32(payload, zlib.crc32(head))), payload))


def ack_packet(ack: Ack) -> bytes:
    """An acknowledgement."""
    ahead = ack.ahead.to_bytes((ack.ahead.bit_length() + 7) // 8, "little")
    head = _ACK.pack(
        MAGIC, ACK, len(ack.reports), len(ahead), ack.run, ack.qp, ack.cumulative, ack.newest_tx,
        ack.received & _U32, ack.ce & _U32,
    )  # fmt: skip
    body = b"".join((ahead, *(_REPORT.pack(*report) for report in ack.reports)))
    return b"".join((head, _CRC.pack(zlib.crc32(body, zlib.crc32(head))), body))


def kind_of(packet: memoryview) -> int:
    """`DATA` or `ACK` where the packet says so and has room for that header; else 0."""
    if len(packet) >= ACK_BYTES and packet[4] == ACK:
        return ACK
    if len(packet) >= DATA_BYTES and packet[4] == DATA:
        return DATA
    return 0


def data(packet: memoryview) -> DataHeader | str:
    """The header of a data packet (`kind_of` said so), or why it is refused."""
    header = DataHeader._make(_DATA.unpack_from(packet))
    if header.magic != MAGIC:
        return "magic"
    if len(packet) != DATA_BYTES + header.length:
        return "length"
    if _CRC.unpack_from(packet, _DATA.size)[0] != _crc(packet, _DATA.size):
        return "checksum"
    whole = 0 < header.chunk_bytes <= MAX_CHUNK_BYTES and not header.offset % PAYLOAD_BYTES
    left = header.chunk_bytes - header.offset
    fits = header.length == (0 if header.flags & VOID else min(left, PAYLOAD_BYTES))
    return header if whole and left > 0 and fits else "malformed"


def acknowledgement(packet: memoryview) -> Ack | str:
    """An acknowledgement (`kind_of` said so), or why it is refused."""
    magic, _, count, width, run, qp, cumulative, newest_tx, received, ce = _ACK.unpack_from(packet)
    if magic != MAGIC:
        return "magic"
    if count > REPORTS or width > WINDOW // 8 or len(packet) != ACK_BYTES + width + count * _REPORT.size:
        return "length"
    if _CRC.unpack_from(packet, _ACK.size)[0] != _crc(packet, _ACK.size):
        return "checksum"
    ahead = int.from_bytes(packet[ACK_BYTES : ACK_BYTES + width], "little")
    reports = tuple(ChunkReport._make(r) for r in _REPORT.iter_unpack(packet[ACK_BYTES + width :]))
    return Ack(run, qp, cumulative, newest_tx, received, ce, ahead, reports)


def packets_of(chunk_bytes: int) -> int:
    """Packets that a chunk needs."""
    return -(-chunk_bytes // PAYLOAD_BYTES)


def _crc(packet: memoryview, at: int) -> int:
    return zlib.crc32(packet[at + _CRC.size :], zlib.crc32(packet[:at]))
