"""Control messages: any order, any mixture of rows, any bytes."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.probes.net.batches_io import uniform
from sdfstream.probes.net.cmsg import SOL_IP, SOL_IPV6, SOL_SOCKET, ControlReader, learn
from sdfstream.records.units import ABSENT_NS, NS_PER_S, StampKind

WIDTH = 256


def message(level: int, kind: int, data: bytes) -> bytes:
    length = 16 + len(data)
    return struct.pack("@Qii", length, level, kind) + data + b"\xaa" * (-length % 8)  # the padding is not zeroed


def stamp(software_ns: int = 0, hardware_ns: int = 0, kind: int = 37) -> bytes:
    return message(
        SOL_SOCKET, kind, struct.pack("@qqqqqq", *divmod(software_ns, NS_PER_S), 0, 0, *divmod(hardware_ns, NS_PER_S))
    )


def pktinfo4(interface: int, address: bytes) -> bytes:
    return message(SOL_IP, 8, struct.pack("@i4s4s", interface, address, address))


def pktinfo6(interface: int, address: bytes) -> bytes:
    return message(SOL_IPV6, 50, address + struct.pack("@I", interface))


class Row:
    """One datagram's control messages and what they say."""

    def __init__(self, at_ns: int | None, v6: bool, tos: int, ttl: int, interface: int, hardware: bool) -> None:
        self.at_ns, self.tos, self.ttl, self.interface = at_ns, tos, ttl, interface
        self.kind = StampKind.USER if at_ns is None else StampKind.HARDWARE if hardware else StampKind.KERNEL
        address = bytes(range(16)) if v6 else bytes([10, 0, interface % 256, 1])
        self.address = address if v6 else bytes(10) + b"\xff\xff" + address
        level = SOL_IPV6 if v6 else SOL_IP
        self.batches = [
            (pktinfo6 if v6 else pktinfo4)(interface, address),
            message(level, 52 if v6 else 2, struct.pack("@i", ttl)),
            message(level, 67, struct.pack("@i", tos)) if v6 else message(level, 1, bytes([tos])),
        ]
        if at_ns is not None:
            self.batches.append(stamp(0, at_ns) if hardware else stamp(at_ns))

    def packed(self, order: list[int]) -> bytes:
        return b"".join(self.batches[i] for i in sorted(range(len(self.batches)), key=lambda i: order[i % 4]))


rows = st.builds(
    Row,
    st.none() | st.integers(1, 4_000_000_000 * NS_PER_S),
    st.booleans(),
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(1, 2**31 - 1),
    st.booleans(),
)
orders = st.permutations([0, 1, 2, 3])


def table(packed: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    control = np.full((len(packed), WIDTH), 0xEE, np.uint8)  # stale bytes of earlier drains
    for i, row in enumerate(packed):
        control[i, : len(row)] = np.frombuffer(row, np.uint8)
    return control, np.array([len(row) for row in packed], np.uint64)


@given(st.lists(st.tuples(rows, orders), max_size=12))
def test_rows_of_any_order_and_mixture_are_read(drawn: list[tuple[Row, list[int]]]) -> None:
    control, size = table([row.packed(order) for row, order in drawn])
    reader = ControlReader()
    for _ in range(2):  # layouts learnt in the first pass serve the second
        read = reader.read(control, size)
        assert read.at_ns.tolist() == [ABSENT_NS if r.at_ns is None else r.at_ns for r, _ in drawn]
        assert read.kind.tolist() == [r.kind for r, _ in drawn]
        assert read.tos.tolist() == [r.tos for r, _ in drawn]
        assert read.ttl.tolist() == [r.ttl for r, _ in drawn]
        assert read.interface.tolist() == [r.interface for r, _ in drawn]
        assert read.destination.tobytes() == b"".join(r.address for r, _ in drawn)
    assert reader.unreadable == 0


@given(st.lists(rows, min_size=1, max_size=8), orders)
def test_a_uniform_batch_reads_the_same_or_nothing(drawn: list[Row], order: list[int]) -> None:
    control, size = table([row.packed(order) for row in drawn])
    reader = ControlReader()
    read = reader.read(control, size)
    same = uniform(reader.layouts, control, size)
    if len({(r.kind, len(r.packed(order))) for r in drawn}) == 1 and drawn[0].kind is StampKind.KERNEL:
        assert same is not None
    if same is not None:
        assert same.at_ns.tolist() == read.at_ns.tolist()
        assert same.kind.tolist() == read.kind.tolist()
        assert same.octets[:, same.layout.tos].tolist() == read.tos.tolist()
        assert same.octets[:, same.layout.ttl].tolist() == read.ttl.tolist()


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=WIDTH), max_size=6), st.data())
def test_any_bytes_are_survived_and_never_mistaken(drawn: list[bytes], data: st.DataObject) -> None:
    good = Row(123_456_789, False, 8, 64, 3, False)
    index = data.draw(st.integers(0, len(drawn)))
    packed = [*drawn[:index], good.packed([0, 1, 2, 3]), *drawn[index:]]
    control, size = table(packed)
    reader = ControlReader()
    read = reader.read(control, size)
    assert (read.at_ns[index], read.tos[index], read.ttl[index], read.interface[index]) == (123_456_789, 8, 64, 3)
    uniform(reader.layouts, control, size)


@settings(max_examples=300)
@given(st.binary(max_size=WIDTH), st.integers(0, 2 * WIDTH))
def test_a_walk_ends_and_stays_inside(control: bytes, size: int) -> None:
    layout = learn(control.ljust(WIDTH, b"\0"), size)
    if layout is not None:
        assert layout.size <= WIDTH
        assert all(0 <= w * 8 < WIDTH for w in layout.words.tolist())


def test_hundreds_of_odd_layouts_are_read_though_not_remembered() -> None:
    packed = [message(7, n, b"x" * (n % 60)) + Row(5, False, 1, 2, 3, False).packed([0, 1, 2, 3]) for n in range(1, 60)]
    control, size = table([p for p in packed if len(p) <= WIDTH])
    reader = ControlReader()
    assert set(reader.read(control, size).at_ns.tolist()) == {5}
    assert len(reader.layouts) <= 16


def test_both_kinds_of_stamp_option_are_known() -> None:
    control, size = table([stamp(7), stamp(7, kind=65), stamp(0)])
    assert ControlReader().read(control, size).at_ns.tolist() == [7, 7, ABSENT_NS]
