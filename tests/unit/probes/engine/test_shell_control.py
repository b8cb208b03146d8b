"""Control messages as the shell reads them: the same as `probes.net.cmsg`, on buffers that are hand-made or random."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.probes.engine.native_io import read_control
from sdfstream.probes.net.cmsg import ControlReader
from sdfstream.records.units import ABSENT_NS, StampKind

WIDTH = 256
KNOWN = [(1, 37), (1, 65), (0, 8), (41, 50), (0, 2), (41, 52), (0, 1), (41, 67), (0, 11), (41, 25)]


def message(level: int, kind: int, payload: bytes, length: int | None = None) -> bytes:
    header = struct.pack("@Qii", 16 + len(payload) if length is None else length, level, kind)
    return header + payload + bytes(-len(payload) % 8)


def stamp(software_ns: int, hardware_ns: int = 0) -> bytes:
    pairs = (divmod(software_ns, 10**9), (0, 0), divmod(hardware_ns, 10**9))
    return message(1, 37, b"".join(struct.pack("@qq", *pair) for pair in pairs))


def pktinfo(interface: int, address: bytes) -> bytes:
    if len(address) == 4:
        return message(0, 8, struct.pack("@i4s4s", interface, address, address))
    return message(41, 50, address + struct.pack("@i", interface))


def both(control: bytes) -> tuple[dict[str, object], dict[str, object]]:
    """What C and Python say of the same buffer."""
    row = np.zeros((1, WIDTH), np.uint8)
    row[0, : len(control)] = np.frombuffer(control, np.uint8)
    python = ControlReader().read(row, np.array([len(control)], np.uint64))
    c = read_control(np.frombuffer(control, np.uint8))[0]
    error_at = int(c["error_at"])
    error = control[error_at : error_at + 16] if error_at else bytes(16)
    said_c = {name: int(c[name]) for name in ("at_ns", "interface", "kind", "tos", "ttl")}
    said_p = {name: int(getattr(python, name)[0]) for name in ("at_ns", "kind", "tos", "ttl")}
    said_p["interface"] = int(python.interface.view(np.uint32)[0])
    return (
        {**said_c, "destination": c["destination"].tobytes(), "error": error},
        {**said_p, "destination": python.destination[0].tobytes(), "error": python.error[0].tobytes()},
    )


def test_a_usual_datagram_of_each_family() -> None:
    for address in (bytes([10, 0, 0, 7]), bytes(range(16))):
        level = 0 if len(address) == 4 else 41
        ttl, tos = (2, 1) if level == 0 else (52, 67)
        control = (
            stamp(1_700_000_000_123_456_789)
            + pktinfo(3, address)
            + message(level, ttl, struct.pack("@i", 254))
            + message(level, tos, struct.pack("@i", 0xBA) if level else b"\xba")
        )
        c, python = both(control)
        assert c == python
        assert c["at_ns"] == 1_700_000_000_123_456_789
        assert (c["kind"], c["interface"], c["ttl"], c["tos"]) == (StampKind.KERNEL, 3, 254, 0xBA)
        assert c["destination"] == (address if level else bytes(10) + b"\xff\xff" + address)


def test_the_nics_stamp_comes_before_the_kernels() -> None:
    c, python = both(stamp(5, 7))
    assert c == python
    assert (c["at_ns"], c["kind"]) == (7, StampKind.HARDWARE)


def test_no_stamp_is_no_stamp() -> None:
    for control in (b"", stamp(0), message(1, 37, bytes(40))):
        c, python = both(control)
        assert c == python
        assert (c["at_ns"], c["kind"]) == (ABSENT_NS, StampKind.USER)


def test_messages_that_make_no_sense_are_not_read_at_all() -> None:
    good = stamp(5) + pktinfo(3, bytes(4))
    for bad in (message(0, 2, bytes(4), length=15), message(0, 2, bytes(4), length=4096), message(0, 2, b"", length=0)):
        c, python = both(good + bad)
        assert c == python
        assert c["interface"] == 0


def test_an_error_lies_where_it_is_said_to() -> None:
    error = struct.pack("@IBBBBII", 113, 2, 3, 1, 0, 0, 99)
    c, python = both(message(0, 2, bytes(4)) + message(0, 11, error + bytes(28)))
    assert c == python
    assert c["error"] == error


messages = st.lists(
    st.tuples(
        st.sampled_from([*KNOWN, (0, 99), (7, 8)]),
        st.binary(max_size=52),
        st.one_of(st.none(), st.none(), st.none(), st.integers(0, 80), st.just(2**63)),
    ),
    max_size=5,
)


@given(messages, st.integers(0, 7))
def test_c_and_python_read_the_same(parts: list[tuple[tuple[int, int], bytes, int | None]], cut: int) -> None:
    control = b"".join(message(*kind, payload, length) for kind, payload, length in parts)[:WIDTH]
    c, python = both(control[: len(control) - cut] if cut else control)
    assert c == python
