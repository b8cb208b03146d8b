"""The field test, by the verbs that people type, against a second process."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from sdfstream.cli import main
from tests.rdma.inside import fabric

PORT = 18599


def test_two_processes_report_what_they_can_do(devices: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "sdfstream", "rdma", "answer", "--device", "rxb0", "--port", str(PORT)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as far:
        try:
            assert far.stderr is not None
            assert "rxb0 answers" in far.stderr.readline()
            fabric.delay("p0", 5)
            began_s = time.monotonic()
            arguments = ["127.0.0.1", "--device", "rxa0", "--port", str(PORT), "--ports", "7", "--samples", "12"]
            assert main(["rdma", "selftest", *arguments, "--json"]) == 0
            seconds = time.monotonic() - began_s
            assert far.wait(20) == 0
        finally:
            far.kill()
    fabric.black_hole("p0", on=False)
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    print(f"\nfigure field test: {seconds:.1f} s, moves {report['move_ms']}")
    assert report["live_steering_works"]
    assert (report["moves"], report["requests"], report["requests_lost"], report["errors"]) == (8, 8 * 16, 0, 0)
    assert report["capabilities"]["driver"] == "rxe"
    assert (report["near"]["device"], report["far"]["device"]) == ("rxa0", "rxb0")
    slow = {port for port in report["by_port"] if fabric.predicted(int(port)) == "p0"}
    if 0 < len(slow) < 8:  # else the boot's hash has put all eight on one path
        assert report["delay_follows_port"]
        medians = {port: spread["median"] for port, spread in report["by_port"].items()}
        assert min(medians[p] for p in slow) > max(m for p, m in medians.items() if p not in slow)


def test_nobody_answers(devices: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rdma", "selftest", "127.0.0.1", "--device", "rxa0", "--port", "18598"]) == 2
    assert "the other end" in capsys.readouterr().err


def test_no_such_device(devices: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rdma", "selftest", "127.0.0.1", "--device", "mlx5_7"]) == 2
    assert "no RDMA device 'mlx5_7'; there are:" in capsys.readouterr().err
