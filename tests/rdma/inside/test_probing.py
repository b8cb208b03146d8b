"""STAMP in RoCEv2 packets of real queue pairs: which path a probe takes, what it sees there, and what it says of it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.cli import main
from tests.rdma.inside import fabric
from tests.rdma.inside.pairs import capture

PORT = 18601


@pytest.fixture(scope="module")
def reflecting(devices: tuple[str, ...]) -> Iterator[subprocess.Popen[str]]:
    """One for all senders: to start a process takes the emulated processor ten seconds."""
    arguments = ["--device", "rxb0", "--port", str(PORT), "--nic", "h04/rxb0", "--json"]
    command = [sys.executable, "-m", "sdfstream", "rdma", "reflect", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert "reflects" in process.stderr.readline()
            yield process
        finally:
            process.kill()


@pytest.fixture
def reflector(reflecting: subprocess.Popen[str]) -> Iterator[None]:
    """A reflector that runs, before and after; paths as they were made."""
    assert reflecting.poll() is None
    yield
    fabric.black_hole("p0", on=False)
    assert reflecting.poll() is None, "no sender ends it"


def probe(capsys: pytest.CaptureFixture[str], *more: str, count: int = 8) -> dict[str, Any]:
    """So many probes on each of six source ports, however long an emulated processor takes for them."""
    arguments = ["127.0.0.1", "--device", "rxa0", "--port", str(PORT), "--nic", "h00/rxa0", "--count", str(count)]
    pace = ["--paths", "6", "--rate", "2", "--seconds", "60"]
    assert main(["rdma", "probe", *arguments, *pace, *more, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len({row["path"] for row in found["paths"]}) == 6
    return found


def by_path(found: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each of the two paths, as r1's routing takes their source ports."""
    rows: dict[str, list[dict[str, Any]]] = {path: [] for path in fabric.PATHS}
    for row in found["paths"]:
        rows[fabric.predicted(row["path"])].append(row)
    return rows


def test_every_probe_leaves_by_its_port_and_takes_the_predicted_path(
    reflector: None, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: fabric.sent(path) for path in fabric.PATHS}
    with capture("a0") as packets:
        found = probe(capsys, "--dscp", "26", count=12)
    assert found["source_ports"] == "the device's"
    for path, rows in by_path(found).items():
        assert fabric.sent(path) - before[path] == sum(row["n"] for row in rows)
        for row in rows:
            assert row["n"] >= 10
            assert (row["lost"], row["dscp"]) == (0, 26)
            assert packets.count((row["path"], 26 << 2 | 2)) == row["n"]
            assert row["ttl_fwd"] == [62], "two routers"
            assert row["rtt_p50_ns"] > 0
        print(f"\nfigure probes over RoCEv2 on their predicted path {path}: all of {sum(r['n'] for r in rows)}")
    assert len(packets) == sum(row["n"] for row in found["paths"])


def test_a_dead_path_is_silent_and_the_other_is_not(
    reflector: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fabric.black_hole("p0", on=True)
    found = probe(capsys, "--out", str(tmp_path / "recording"))
    rows = by_path(found)
    assert [row["lost"] - row["n"] for row in rows["p0"]] == [0] * len(rows["p0"])
    assert [row["lost"] for row in rows["p1"]] == [0] * len(rows["p1"])
    states = {entry["path"]: entry["state"] for entry in found["liveness"]}
    assert {states[row["path"]] for row in rows["p0"]} <= {"unknown"}, "it never lived, as far as is known"
    messages = list(open_recording(tmp_path / "recording").messages())
    assert sum(m.rows for m in messages) == sum(row["n"] for row in found["paths"])
    assert {t for m in messages for t in m.body.column("transport").to_pylist()} == {"rocev2"}


_TRIES = 5
"""The boot's hash puts all six source ports on one path once in some ten boots."""


def test_a_queue_is_measured_on_its_path_alone(reflector: None, capsys: pytest.CaptureFixture[str]) -> None:
    fabric.delay("p0", 400)
    for _ in range(_TRIES):  # queue pairs made anew have other source ports
        rows = by_path(probe(capsys))
        if all(rows.values()):
            break
    slow, quick = ([row["rtt_min_ns"] for row in rows[path]] for path in fabric.PATHS)
    assert min(slow) >= 400e6
    assert max(quick) < 400e6


def test_a_port_that_goes_down_is_told_at_once_and_its_paths_are_unknown(
    reflector: None, capsys: pytest.CaptureFixture[str]
) -> None:
    def cut() -> None:
        time.sleep(1)
        fabric.ip("link", "set", "a0", "down")
        time.sleep(1)
        fabric.up()

    cutting = threading.Thread(target=cut)
    cutting.start()
    found = probe(capsys)
    cutting.join()
    said = [(c["device"], c["port"], c["usable"]) for c in found["port_changes"]]
    assert ("rxa0", 1, False) in said
    assert said[-1] == ("rxa0", 1, True)
    answered = [row["n"] - row["lost"] for row in found["paths"]]
    assert min(answered) > 3, found["paths"]
    assert {entry["state"] for entry in found["liveness"]} == {"alive"}
    lost, count = (sum(row[key] for row in found["paths"]) for key in ("lost", "n"))
    print(f"\nfigure port down and up again: {len(said)} changes told, {lost} of {count} probes lost")


def test_a_port_that_the_device_cannot_choose_is_refused(reflector: None, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["rdma", "probe", "127.0.0.1", "--device", "rxa0", "--port", str(PORT), "--source-ports", "49153"]
    assert main(arguments) == 2
    assert "rxa0 chooses source ports itself, one a queue pair: use --paths instead" in capsys.readouterr().err


def test_nobody_reflects(devices: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rdma", "probe", "127.0.0.1", "--device", "rxa0", "--port", "18602"]) == 2
    assert "the other end" in capsys.readouterr().err
