"""The device of a NIC by its address; where there is none, the reason."""

from __future__ import annotations

import pytest

from sdfstream.probes.rdma.choice import DeviceChoice, choose
from sdfstream.probes.rdma.devices_io import RdmaPort
from sdfstream.probes.rdma.gids import GidEntry, Version


def port(device: str, *gids: tuple[int, str, Version, str], layer: str = "Ethernet") -> RdmaPort:
    entries = tuple(GidEntry(i, "gid", address, version, netdev, "routable") for i, address, version, netdev in gids)
    return RdmaPort(device, 1, "ACTIVE", layer, entries, {})


PORTS = (
    port("mlx5_0", (0, "fe80::1", "RoCE v2", "eth0"), (2, "10.0.0.1", "RoCE v1", "eth0")),
    port("mlx5_1", (3, "10.0.1.1", "RoCE v1", "eth1"), (4, "10.0.1.1", "RoCE v2", "eth1")),
    port("mlx5_2", (1, "fd00:0::2", "RoCE v2", "eth2"), (3, "10.0.2.1", "RoCE v2", "eth2")),
    port("vendor", (1, "10.0.3.1", "RoCE v2", "")),
    port("hca", (0, "10.0.4.1", "IB", "ib0"), layer="InfiniBand"),
)


@pytest.mark.parametrize(
    ("netdev", "address", "wanted", "expected"),
    [
        ("eth1", "10.0.1.1", None, DeviceChoice("mlx5_1", 1, 4)),
        ("eth2", "fd00::2", None, DeviceChoice("mlx5_2", 1, 1)),
        ("eth2", "10.0.2.1", None, DeviceChoice("mlx5_2", 1, 3)),
        ("eth3", "10.0.3.1", None, DeviceChoice("vendor", 1, 1)),
        ("bond0", "10.0.2.1", "mlx5_2", DeviceChoice("mlx5_2", 1, 3)),
    ],
)
def test_the_device_whose_gid_is_the_address(
    netdev: str, address: str, wanted: str | None, expected: DeviceChoice
) -> None:
    assert choose(PORTS, netdev, address, wanted) == expected


@pytest.mark.parametrize(
    ("netdev", "address", "wanted", "words"),
    [
        ("eth0", "10.0.0.1", None, "mlx5_0 has 10.0.0.1 as RoCE v1 alone"),
        ("eth1", "10.9.9.9", None, "mlx5_1 has no GID of RoCE v2 for 10.9.9.9; it has 3: 10.0.1.1 (RoCE v1)"),
        ("eth9", "10.9.9.9", None, "no RDMA device belongs to eth9"),
        ("eth1", "10.0.1.1", "mlx5_7", "there is no RDMA device mlx5_7"),
        ("ib0", "10.0.4.1", None, "hca is an InfiniBand device"),
    ],
)
def test_the_reason_is_told(netdev: str, address: str, wanted: str | None, words: str) -> None:
    found = choose(PORTS, netdev, address, wanted)
    assert isinstance(found, str)
    assert words in found
