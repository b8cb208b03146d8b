"""The decoder of the emulated queue pair: what is written is read; what is not ours is refused with a reason."""

from __future__ import annotations

import zlib

from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.emulator import qp_header as wire
from sdfstream.emulator.rank_plan import JobSpec
from tests.fixtures.emulated import RUN, Run, Wire

REASONS = {"magic", "length", "checksum", "malformed"}
u32, u64, i64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1)
reports = st.lists(st.builds(wire.ChunkReport, u32, u32, i64, i64), max_size=wire.REPORTS).map(tuple)
acks = st.builds(wire.Ack, u32, u32, u64, u64, u32, u32, st.integers(0, 2**wire.WINDOW - 1), reports)


def read(packet: bytes) -> object:
    view = memoryview(packet)
    kind = wire.kind_of(view)
    return wire.data(view) if kind == wire.DATA else wire.acknowledgement(view) if kind == wire.ACK else "kind"


@given(acks)
def test_an_acknowledgement_is_read_as_written(ack: wire.Ack) -> None:
    assert read(wire.ack_packet(ack)) == ack


@given(u32, u32, u64, u64, u32, u32, u32, st.integers(1, wire.MAX_CHUNK_BYTES), st.integers(0, 800), st.booleans())
def test_a_data_packet_is_read_as_written(
    run: int, qp: int, psn: int, tx: int, chunk: int, step: int, piece: int, size: int, index: int, void: bool
) -> None:
    offset = min(index * wire.PAYLOAD_BYTES, (size - 1) // wire.PAYLOAD_BYTES * wire.PAYLOAD_BYTES)
    payload = b"" if void else b"x" * min(wire.PAYLOAD_BYTES, size - offset)
    flags = wire.VOID if void else 0
    header = wire.DataHeader(
        wire.MAGIC, wire.DATA, flags, len(payload), run, qp, psn, tx, chunk, 9, step, piece, size, offset
    )
    assert read(wire.data_packet(header, payload)) == header


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_noise_is_refused_with_a_reason(noise: bytes) -> None:
    assert read(noise) in REASONS | {"kind"}


@settings(max_examples=300)
@given(acks, st.data())
def test_a_changed_octet_never_passes(ack: wire.Ack, data: st.DataObject) -> None:
    octets = bytearray(wire.ack_packet(ack))
    octets[data.draw(st.integers(0, len(octets) - 1))] ^= data.draw(st.integers(1, 255))
    assert read(bytes(octets)) in REASONS | {"kind"}


@settings(max_examples=300)
@given(st.binary(min_size=54, max_size=54), st.binary(max_size=40))
def test_well_summed_nonsense_neither_raises_nor_gets_past_the_engine(rest: bytes, payload: bytes) -> None:
    """Somebody who knows the run's number and can compute a checksum still cannot break the job."""
    head = bytearray(wire.MAGIC.to_bytes(4, "big") + bytes([wire.DATA]) + rest[:51])
    head[6:8] = len(payload).to_bytes(2, "big")
    head[8:12] = RUN.to_bytes(4, "big")
    head[12:16] = (1 + rest[0] % 4).to_bytes(4, "big")
    packet = bytes(head) + zlib.crc32(payload, zlib.crc32(head)).to_bytes(4, "big") + payload
    run = Run(JobSpec("t", ("a", "b"), message_mb=0.01), Wire())
    run.engine.receive(1, 50_000, 0, 0, memoryview(packet), 0)
    assert run.engine.ranks[1].tally.payload_bytes == 0
    run.step()
