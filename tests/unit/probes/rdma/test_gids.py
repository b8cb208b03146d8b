"""GID tables and the mistakes of choosing from them by index."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdfstream.probes.rdma.devices_io import rdma_ports
from sdfstream.probes.rdma.gids import gid_entry, index_differs, index_fault
from sdfstream.stats import Counters
from tests.unit.probes.rdma import trees


@pytest.mark.parametrize(
    ("index", "fault"),
    [(0, "RoCE v1"), (1, "link-local"), (2, "RoCE v1"), (3, ""), (4, "empty; filled: 0, 1, 2, 3"), (999, "empty")],
)
def test_a_chosen_index(index: int, fault: str, tmp_path: Path) -> None:
    trees.mlx5(tmp_path)
    (port,) = rdma_ports(str(tmp_path), Counters("rdma"))
    found = index_fault(port.gids, index)
    assert (fault in found) and bool(found) is bool(fault)


def test_hosts_where_no_index_serves_all(tmp_path: Path) -> None:
    trees.mlx5(tmp_path)
    trees.rxe(tmp_path)
    tables = {port.device: port.gids for port in rdma_ports(str(tmp_path), Counters("rdma"))}
    assert index_differs(tables).endswith("mlx5_0 3, rxa0 1")
    assert index_differs({"mlx5_0": tables["mlx5_0"]}) == index_differs({}) == ""


def test_infiniband_has_no_version(tmp_path: Path) -> None:
    trees.hfi1(tmp_path)
    (port,) = rdma_ports(str(tmp_path), Counters("rdma"))
    assert port.gids[0].version == "IB"
    assert index_fault(port.gids, 0) == ""


@pytest.mark.parametrize("gid", ["", "rubbish", "::", "fe80::", trees.EMPTY_GID, "10.0.0.1", "x" * 5000])
def test_what_is_no_gid(gid: str) -> None:
    assert gid_entry(0, gid, "RoCE v2", None) is None


def test_an_unknown_version_is_a_fault() -> None:
    entry = gid_entry(0, trees.mapped("10.0.0.1"), "RoCE v3", None)
    assert entry is not None
    assert entry.version == "unknown"
    assert "unknown" in index_fault([entry], 0)
