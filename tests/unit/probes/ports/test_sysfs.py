"""Port readings from fake sysfs trees: whole machines, odd files, vanishing devices."""

from pathlib import Path
from typing import Any

import pytest

from sdfstream.probes.config import NicConfig
from sdfstream.probes.ports.reader_io import PortReader
from sdfstream.records.topics import PORT
from tests.fixtures.port_trees import infiniband_port, net_device, roce_port, write


def reader(root: Path, *devices: str) -> PortReader:
    return PortReader("h", [NicConfig(f"h/{d}", d, "10.0.0.1") for d in devices], root=str(root))


def rows(root: Path, *devices: str) -> list[dict[str, Any]]:
    batch = reader(root, *devices).read(7)
    assert batch is not None
    assert batch.schema.equals(PORT.columns)
    return [{k: v for k, v in row.items() if v is not None} for row in batch.to_pylist()]


def test_eight_infiniband_ports_without_net_devices(tmp_path: Path) -> None:
    for i in range(8):
        write(tmp_path, infiniband_port(f"mlx5_{i}"))
    got = rows(tmp_path, *(f"mlx5_{i}" for i in range(8)))
    assert [r["port"] for r in got] == [f"h/mlx5_{i}:1" for i in range(8)]
    assert got[0] == {
        "at_ns": 7,
        "host": "h",
        "nic": "h/mlx5_0",
        "port": "h/mlx5_0:1",
        "state": "up",
        "speed_mbps": 400_000,
        "rx_bytes": 4000,
        "tx_bytes": 8000,
        "rx_packets": 11,
        "tx_packets": 12,
        "rx_errors": 3,
        "tx_discards": 4,
        "symbol_errors": 5,
        "link_downed": 6,
        "rx_discards": 7,
    }


def test_both_ports_of_a_two_port_device_get_their_own_row(tmp_path: Path) -> None:
    write(tmp_path, infiniband_port("mlx4_0", 1) | infiniband_port("mlx4_0", 2, state="1: DOWN", rate="10 Gb/sec (4X)"))
    assert [(r["port"], r["state"], r["speed_mbps"]) for r in rows(tmp_path, "mlx4_0")] == [
        ("h/mlx4_0:1", "up", 400_000),
        ("h/mlx4_0:2", "down", 10_000),
    ]


def test_saturated_eight_bit_counters_are_null_and_counted(tmp_path: Path) -> None:
    write(tmp_path, infiniband_port("mlx5_1", counters__link_downed="255", counters__symbol_error="65535"))
    ports = reader(tmp_path, "mlx5_1")
    batch = ports.read(0)
    assert batch is not None
    assert batch.column("link_downed").to_pylist() == [None]
    assert batch.column("symbol_errors").to_pylist() == [None]
    assert ports.counters.get("refused", "link_downed.saturated") == 1
    assert ports.counters.get("refused", "symbol_errors.saturated") == 1


def test_roce_takes_traffic_from_the_net_device_and_the_rest_from_its_rdma_port(tmp_path: Path) -> None:
    write(tmp_path, net_device("eth2") | roce_port("mlx5_7", "eth2") | roce_port("mlx5_6", "eth1"))
    (row,) = rows(tmp_path, "eth2")
    assert (row["state"], row["rx_bytes"], row["speed_mbps"], row["mtu_bytes"]) == ("up", 100, 200_000, 9000)
    assert (row["symbol_errors"], row["link_downed"], row["carrier_changes"]) == (0, 1, 3)


def test_ipoib_is_mapped_by_pci_function_and_its_port_sees_all_traffic(tmp_path: Path) -> None:
    write(tmp_path, net_device("ib0") | infiniband_port("mlx5_0") | infiniband_port("mlx5_1"))
    write(tmp_path, {"sys/class/infiniband/mlx5_1/device/net/ib0/dev_port": "0"})
    (row,) = rows(tmp_path, "ib0")
    assert (row["rx_bytes"], row["speed_mbps"], row["link_downed"]) == (4000, 400_000, 6)


def test_second_port_of_one_function_is_found_by_dev_port(tmp_path: Path) -> None:
    write(tmp_path, net_device("ib1") | infiniband_port("mlx4_0", 1) | infiniband_port("mlx4_0", 2))
    write(tmp_path, {"sys/class/infiniband/mlx4_0/device/net/ib1/dev_port": "1"})
    assert [r["port"] for r in rows(tmp_path, "ib1")] == ["h/ib1:2"]


def test_plain_ethernet_without_any_rdma_device(tmp_path: Path) -> None:
    write(tmp_path, net_device("eth0", speed="1000"))
    (row,) = rows(tmp_path, "eth0")
    assert row["speed_mbps"] == 1000
    assert row["rx_discards"] == 106 + 108
    assert not {"symbol_errors", "fec_corrected", "rx_pause", "rx_power_dbm"} & row.keys()


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({}, "up"),
        ({"carrier": "0", "operstate": "down"}, "down"),
        ({"flags": "0x1002", "carrier": "", "operstate": "down"}, "disabled"),
        ({"carrier": "", "operstate": "dormant"}, "down"),
        ({"carrier": "", "operstate": "unknown"}, "unknown"),
        ({"carrier": "", "operstate": "notpresent"}, "absent"),
        ({"flags": "zzz", "carrier": "", "operstate": "??"}, "unknown"),
    ],
)
def test_states_of_a_net_device(tmp_path: Path, files: dict[str, str], state: str) -> None:
    write(tmp_path, net_device("eth0", **files))
    assert rows(tmp_path, "eth0")[0]["state"] == state


@pytest.mark.parametrize(
    ("state", "phys", "want"),
    [
        ("4: ACTIVE", "5: LinkUp", "up"),
        ("4: ACTIVE", "4: ACTIVE", "up"),
        ("1: DOWN", "2: Polling", "down"),
        ("1: DOWN", "3: Disabled", "disabled"),
        ("2: INIT", "5: LinkUp", "down"),
        ("3: ARMED", "5: LinkUp", "down"),
        ("0: NOP", "", "unknown"),
        ("", "", "unknown"),
        ("ACTIVE", "", "unknown"),
    ],
)
def test_states_of_an_rdma_port(tmp_path: Path, state: str, phys: str, want: str) -> None:
    write(tmp_path, infiniband_port("mlx5_0", state=state, phys_state=phys))
    assert rows(tmp_path, "mlx5_0")[0]["state"] == want


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("N/A (no PMA)", "not-available"),
        ("", "empty"),
        ("-1", "negative"),
        ("4294967295", "not-known"),
        ("18446744073709551615", "not-known"),
        ("9" * 400, "too-large"),
        ("0x10", "not-a-number"),
        ("1_000", "not-a-number"),
        ("٣", "not-a-number"),
        ("nan", "not-a-number"),
    ],
)
def test_odd_counters_are_null_and_counted_and_the_rest_stays(tmp_path: Path, text: str, reason: str) -> None:
    write(tmp_path, infiniband_port("mlx5_0", counters__port_rcv_packets=text))
    ports = reader(tmp_path, "mlx5_0")
    batch = ports.read(0)
    assert batch is not None
    assert batch.column("rx_packets").to_pylist() == [None]
    assert batch.column("tx_packets").to_pylist() == [12]
    counted = {r for (what, r), n in ports.counters.values.items() if what == "refused" and n == 1}
    # digits of other scripts do not survive the ASCII decoding of sysfs texts; either way they are no number
    assert counted == {f"rx_packets.{reason}"}


def test_a_down_port_has_no_speed_and_no_zero_is_invented(tmp_path: Path) -> None:
    write(tmp_path, net_device("eth0", speed="-1", carrier="0"))
    (row,) = rows(tmp_path, "eth0")
    assert "speed_mbps" not in row
    write(tmp_path, net_device("eth0", speed="4294967295"))
    assert "speed_mbps" not in rows(tmp_path, "eth0")[0]


def test_words_four_times_too_many_for_64_bits(tmp_path: Path) -> None:
    write(tmp_path, infiniband_port("mlx5_0", counters__port_rcv_data=str(2**63)))
    assert "rx_bytes" not in rows(tmp_path, "mlx5_0")[0]


@pytest.mark.parametrize("rate", ["", "400", "fast Gb/sec", "-5 Gb/sec", "9999999 Gb/sec", "1.5.2 Gb/sec", "0 Gb/sec"])
def test_odd_rates(tmp_path: Path, rate: str) -> None:
    write(tmp_path, infiniband_port("mlx5_0", rate=rate))
    assert "speed_mbps" not in rows(tmp_path, "mlx5_0")[0]


def test_a_folder_instead_of_a_file_is_unreadable_not_fatal(tmp_path: Path) -> None:
    write(tmp_path, net_device("eth0"))
    (tmp_path / "sys/class/net/eth0/speed").unlink()
    (tmp_path / "sys/class/net/eth0/speed").mkdir()
    ports = reader(tmp_path, "eth0")
    batch = ports.read(0)
    assert batch is not None
    assert batch.column("speed_mbps").to_pylist() == [None]
    assert ports.counters.get("refused", "speed_mbps.unreadable") == 1


def test_absent_devices_and_their_return_as_another_counter(tmp_path: Path) -> None:
    ports = reader(tmp_path, "eth0", "mlx5_0")
    first = ports.read(0)
    assert first is not None
    assert first.column("state").to_pylist() == ["absent", "absent"]
    write(tmp_path, net_device("eth0") | infiniband_port("mlx5_0"))
    second = ports.read(1)
    assert second is not None
    assert second.column("state").to_pylist() == ["up", "up"]
    assert second.column("rx_bytes").to_pylist() == [100, 4000]
    (tmp_path / "sys/class/net/eth0").rename(tmp_path / "gone")
    third = ports.read(2)
    assert third is not None
    assert third.column("state").to_pylist() == ["absent", "up"]
    assert third.column("rx_bytes").to_pylist() == [None, 4000]


def test_a_column_keeps_its_source_until_the_port_vanishes(tmp_path: Path) -> None:
    write(tmp_path, net_device("ib0") | infiniband_port("mlx5_0"))
    write(tmp_path, {"sys/class/infiniband/mlx5_0/device/net/ib0/dev_port": "0"})
    ports = reader(tmp_path, "ib0")
    ports.read(0)
    write(tmp_path, infiniband_port("mlx5_0", counters__port_rcv_data="N/A"))
    batch = ports.read(1)
    assert batch is not None
    assert batch.column("rx_bytes").to_pylist() == [None], "the net device's own count would look like a reset"


def test_no_nics_no_batch_and_odd_device_names(tmp_path: Path) -> None:
    assert PortReader("h", [], root=str(tmp_path)).read(0) is None
    assert [r["state"] for r in rows(tmp_path, "../../etc", "", "..")] == ["unknown"] * 3


def test_a_bond_has_one_port_per_device_below_it(tmp_path: Path) -> None:
    write(tmp_path, net_device("bond0", bonding__slaves="eth3 eth2"))
    write(tmp_path, net_device("eth2") | net_device("eth3", carrier="0", operstate="down", statistics__rx_bytes="7"))
    got = rows(tmp_path, "bond0")
    assert [(r["nic"], r["port"], r["state"], r["rx_bytes"]) for r in got] == [
        ("h/bond0", "h/bond0:1", "up", 100),
        ("h/bond0", "h/bond0:2", "down", 7),
    ]


def test_a_bond_with_nothing_below_is_read_itself(tmp_path: Path) -> None:
    write(tmp_path, net_device("bond0", bonding__slaves=""))
    assert [r["port"] for r in rows(tmp_path, "bond0")] == ["h/bond0:1"]
    write(tmp_path, net_device("bond1", bonding__slaves="gone"))
    assert [(r["port"], r["state"]) for r in rows(tmp_path, "bond1")] == [("h/bond1:1", "absent")]
