"""Ports meet anything: file contents, netlink bytes, module memory. Nothing raises, nothing is invented."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdfstream.errors import FormatError
from sdfstream.probes.config import NicConfig
from sdfstream.probes.net import netlink as nl
from sdfstream.probes.ports import rtnetlink as pn
from sdfstream.probes.ports.optics import MemoryWindow, identify, read_module
from sdfstream.probes.ports.reader_io import PortReader
from sdfstream.probes.ports.reading import count
from sdfstream.stats import Counters
from tests.fixtures.port_trees import infiniband_port, net_device, roce_port, write

TREE = net_device("eth0") | roce_port("mlx5_0", "eth0") | infiniband_port("mlx5_1")
ODD = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"N/A (no PMA)", b"-1", b"255", b"4294967295", b"18446744073709551616", b"1e9", b"\xff\n"]),
    st.integers(-(2**70), 2**70).map(lambda n: str(n).encode()),
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    write(root, TREE)
    return root


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(sorted(TREE)), st.none() | ODD, max_size=12))
def test_any_file_content(root: Path, changes: dict[str, bytes | None]) -> None:
    try:
        for name, content in changes.items():
            if content is None:
                (root / name).unlink()
            else:
                (root / name).write_bytes(content)
        check_readings(root, changes)
    finally:
        write(root, {name: TREE[name] for name in changes})


def check_readings(root: Path, changes: dict[str, bytes | None]) -> None:
    ports = PortReader("h", [NicConfig(f"h/{d}", d, "10.0.0.1") for d in ("eth0", "mlx5_1", "gone")], root=str(root))
    batch = ports.read(1)
    assert batch is not None
    states = dict(zip(batch.column("nic").to_pylist(), batch.column("state").to_pylist(), strict=True))
    assert states["h/gone"] == "absent"
    assert set(states) == {"h/eth0", "h/mlx5_1", "h/gone"}
    # what no change touched is still read
    base = "sys/class/infiniband/mlx5_1/ports/1/counters/port_rcv_packets"
    if base not in changes:
        assert batch.column("rx_packets")[1].as_py() == 11


@given(st.text(max_size=30))
def test_a_count_is_a_number_or_a_reason(text: str) -> None:
    try:
        number = count(text)
    except FormatError as error:
        assert error.reason
    else:
        assert 0 <= number < 2**64
        assert int(text) == number


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(pn.READ_COMMANDS))
def test_any_netlink_bytes(data: bytes, command: int) -> None:
    refused = Counters("ports")
    pn.ethtool_reading({command: data}, refused)
    try:
        pn.link(data, refused)
        list(nl.packets(data))
    except FormatError as error:
        assert error.reason == "truncated"


@given(st.lists(st.tuples(st.integers(1, 100), st.binary(max_size=9)), max_size=5))
def test_attributes_round_trip(pairs: list[tuple[int, bytes]]) -> None:
    assert list(nl.walk(b"".join(nl.attribute(kind, value) for kind, value in pairs))) == pairs


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=256, max_size=256), st.sampled_from([0x03, 0x0D, 0x11, 0x18, 0x19, 0x1E, 0x55]))
def test_any_module_memory(memory: bytes, identifier: int) -> None:
    page = bytes([identifier]) + memory[1:]

    def fetch(window: MemoryWindow) -> bytes:
        return page[window.offset : window.offset + window.length]

    module = identify(fetch)
    assert module is not None
    values = read_module(module, fetch).values
    for column in ("rx_power_dbm", "tx_power_dbm"):
        assert -40.0 <= values.get(column, 0.0) <= 8.2
    assert -128.0 <= values.get("module_temp_c", 0.0) < 128.0


def test_numbers_of_odd_width_are_none() -> None:
    assert nl.number(b"abc") is None
    with pytest.raises(FormatError):
        nl.attributes(b"\x01\x00\x01\x00")
