"""The survey that people see, on made-up machines, and the verb that prints it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sdfstream.cli import main
from sdfstream.errors import UnavailableError
from sdfstream.probes.rdma import command_io
from sdfstream.verbs import machine_io
from tests.unit.probes.rdma import trees


def test_a_machine_without_rdma_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rdma", "show", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("no RDMA device: the kernel has no RDMA core")


def test_devices_queue_pairs_and_the_gid_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trees.mlx5(tmp_path)
    trees.rxe(tmp_path)
    row = {"ifname": "rxa0", "port": 1, "lqpn": 17, "rqpn": 18, "type": "RC", "state": "RTS", "pid": 9, "comm": "job"}
    monkeypatch.setattr(command_io, "resource_qps", lambda: json.dumps([row, row | {"pid": None}]))
    assert main(["rdma", "show", "--root", str(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(p["device"], p["best_gid"]) for p in shown["ports"]] == [("mlx5_0", 3), ("rxa0", 1)]
    assert "cannot open them" in shown["why_none"]
    assert [qp["number"] for qp in shown["qps"]] == [17]
    assert "mlx5_0/1 3, rxa0/1 1" in shown["index_fault"]
    assert main(["rdma", "show", "--root", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "GID 3  10.0.0.1  RoCE v2  eth0  use this one" in text
    assert "rxa0/1 RC 17 to 18  RTS  job (9)" in text


def test_a_kernel_that_cannot_be_asked_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees.rxe(tmp_path)

    def refuse() -> str:
        raise UnavailableError("the command rdma is not here")

    monkeypatch.setattr(command_io, "resource_qps", refuse)
    assert "not here" in machine_io.survey(str(tmp_path))["why_no_qps"]
