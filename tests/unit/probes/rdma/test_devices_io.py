"""sysfs trees of six drivers, and trees that are damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sdfstream.probes.rdma.devices_io import firmware, has_core, has_user_access, rdma_ports
from sdfstream.probes.rdma.gids import best_entry
from sdfstream.stats import Counters
from tests.unit.probes.rdma import trees


@pytest.mark.parametrize(
    ("make", "best", "counters"),
    [
        (trees.rxe, 1, {"retries": 7, "out_of_sequence": 1, "sequence_naks": 2, "receiver_not_ready": 0,
                        "retries_exhausted": 1, "duplicates": 3}),
        (trees.mlx5, 3, {"timeouts": 4, "out_of_sequence": 12, "sequence_naks": 5, "receiver_not_ready": 0,
                         "duplicates": 2, "ce_received": 900, "cnp_sent": 800, "cnp_handled": 77, "no_buffer": 1}),
        (trees.bnxt_re, 3, {"timeouts": 9, "out_of_sequence": 4, "sequence_naks": 3, "receiver_not_ready": 0,
                            "retries_exhausted": 1, "ce_received": 15, "cnp_sent": 14}),
        (trees.irdma, 1, {"ce_received": 5, "cnp_sent": 4, "cnp_handled": 3}),
        (trees.hfi1, None, {}),
        (trees.efa, None, {"timeouts": 2, "retransmitted_packets": 100}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_drivers(make: Callable[[Path], None], best: int | None, counters: dict[str, int], tmp_path: Path) -> None:
    make(tmp_path)
    (port,) = rdma_ports(str(tmp_path), Counters("rdma"))
    assert (port.port, port.state) == (1, "ACTIVE")
    found = best_entry(port.gids)
    assert (None if found is None else found.index) == best
    assert port.counters == counters


def test_what_is_no_count_is_refused_by_name(tmp_path: Path) -> None:
    trees.bnxt_re(tmp_path)
    trees.irdma(tmp_path)
    refused = Counters("rdma")
    rdma_ports(str(tmp_path), refused)
    assert refused.get("refused", "cnp_handled.not-available") == 1
    assert sum(refused.as_dict().values()) == 2


def test_every_port_of_every_device_in_order(tmp_path: Path) -> None:
    for make in (trees.rxe, trees.mlx5, trees.hfi1):
        make(tmp_path)
    trees.port(tmp_path, "mlx5_0", number=2, state="1: DOWN", gids=[])
    found = rdma_ports(str(tmp_path), Counters("rdma"))
    assert [(p.device, p.port, p.state) for p in found] == [
        ("hfi1_0", 1, "ACTIVE"), ("mlx5_0", 1, "ACTIVE"), ("mlx5_0", 2, "DOWN"), ("rxa0", 1, "ACTIVE"),
    ]  # fmt: skip


def test_missing_folders_and_odd_texts_are_unknown_not_healthy(tmp_path: Path) -> None:
    ports = tmp_path / "sys/class/infiniband/odd0/ports"
    (ports / "1").mkdir(parents=True)
    (ports / "x").mkdir()
    (ports / "2").mkdir()
    (ports / "2" / "state").write_text("rubbish")
    (ports / "2" / "gids").write_text("a file, no folder")
    found = rdma_ports(str(tmp_path), Counters("rdma"))
    assert [(p.port, p.state, p.link_layer, p.gids, p.counters) for p in found] == [
        (1, "unknown", "unknown", (), {}),
        (2, "unknown", "unknown", (), {}),
    ]


def test_a_machine_without_any(tmp_path: Path) -> None:
    assert rdma_ports(str(tmp_path), Counters("rdma")) == []
    assert not has_core(str(tmp_path))
    assert not has_user_access(str(tmp_path))
    trees.rxe(tmp_path)
    (tmp_path / "dev/infiniband").mkdir(parents=True)
    (tmp_path / "dev/infiniband/rdma_cm").touch()
    assert has_core(str(tmp_path))
    assert not has_user_access(str(tmp_path))
    (tmp_path / "dev/infiniband/uverbs0").touch()
    assert has_user_access(str(tmp_path))


def test_firmware_is_read_or_not_known(tmp_path: Path) -> None:
    trees.mlx5(tmp_path)
    assert firmware("mlx5_0", str(tmp_path)) == ""
    (tmp_path / "sys/class/infiniband/mlx5_0/fw_ver").write_text("28.41.1000\n")
    assert firmware("mlx5_0", str(tmp_path)) == "28.41.1000"
