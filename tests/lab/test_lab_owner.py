"""A lab never outlives its owner, never touches what it did not make, and obeys the command line."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sdfstream.errors import ConfigError, LabUnavailableError
from sdfstream.lab import Fabric, control
from sdfstream.lab.kernel import rtnl
from sdfstream.lab.kernel.netlink_io import NodeSocket
from sdfstream.lab.plan import FabricPlan
from sdfstream.probes.net.netns_io import inside
from tests.fixtures.lab import SMALL, up_or_skip

pytestmark = pytest.mark.lab
SIZES = ("--hosts", "4", "--spines", "2")


@pytest.fixture
def sdfstream() -> Iterator[Callable[..., dict[str, Any]]]:
    """The command line in a runtime folder of its own; returns its JSON object (with the exit code as ``exit``)."""
    with up_or_skip(SMALL):
        pass
    with tempfile.TemporaryDirectory(prefix="sdf") as runtime:

        def call(*words: str) -> dict[str, Any]:
            done = subprocess.run(
                [sys.executable, "-m", "sdfstream", "lab", words[0], "--json", *words[1:]],
                env={**os.environ, "XDG_RUNTIME_DIR": runtime, "PYTHONPATH": os.pathsep.join(sys.path)},
                capture_output=True,
                text=True,
                timeout=60,
            )
            lines = done.stdout.splitlines()
            return {"exit": done.returncode, "said": done.stderr, **(json.loads(lines[-1]) if lines else {})}

        yield call
        call("down")
        assert list(Path(runtime).iterdir()) == [], "a lab that is down leaves no file"


def strays() -> list[str]:
    """Interfaces with the lab's names in the test's own network namespace, where the lab has no business."""
    names = [entry.name for entry in Path("/sys/class/net").iterdir()]
    return [name for name in names if re.fullmatch(r"[rud]\d+|h\d\d-r\d", name)]


def hold(path: str) -> int:
    """A descriptor that keeps one namespace of somebody's lab alive."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def wait_until_gone(held_netns: int, ifindex: int) -> None:
    """Wait until an interface left a held namespace: its peer's namespace was destroyed by the kernel."""
    route = inside(held_netns, NodeSocket)
    end = time.monotonic() + 20
    try:
        while True:
            try:
                route.ask(rtnl.get_link(ifindex))
            except LabUnavailableError as error:
                assert "ENODEV" in str(error)
                return
            assert time.monotonic() < end, "the far end of the cable outlived its lab's owner"
            time.sleep(0.01)
    finally:
        route.close()


def test_verbs_do_what_they_say(sdfstream: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    up = sdfstream("up", *SIZES, "--truth", str(tmp_path))
    assert up["exit"] == 0, up
    print(f"lab: `sdfstream lab up` had the lab up in {up['up_ms']} ms")
    assert sdfstream("up")["exit"] == 2
    before = sdfstream("path", "h00/r0", "h02/r0", "49152")["path"]
    fault = sdfstream("break", f"{before[1].replace('->', '--')}")["fault"]
    assert sdfstream("path", "h00/r0", "h02/r0", "49152")["path"] != before
    assert [f["id"] for f in sdfstream("status")["faults"]] == [fault["id"]]
    assert sdfstream("heal", fault["target"])["faults"][0]["id"] == fault["id"]
    assert sdfstream("path", "h00/r0", "h02/r0", "49152")["path"] == before
    assert sdfstream("congest", "l0->s1", "--rate", "1.5")["fault"]["kind"] == "congestion"
    end = time.monotonic() + 10
    while "l0->s1" not in sdfstream("status")["backlog_bytes"]:
        assert time.monotonic() < end
    refused = sdfstream("break", "h77/r0")
    assert (refused["exit"], "h77/r0" in refused["said"]) == (2, True)
    assert sdfstream("down")["exit"] == 0
    assert sdfstream("status")["exit"] == 2
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "faults.jsonl").read_text().splitlines()]
    assert kinds == ["link-down", "congestion"]


def test_exec_runs_inside_the_node(sdfstream: Callable[..., dict[str, Any]]) -> None:
    sdfstream("up", *SIZES)
    code = "import socket, json; print(json.dumps({'names': [n for _, n in socket.if_nameindex()]}))"
    assert sorted(sdfstream("exec", "h00", "--", sys.executable, "-c", code)["names"]) == ["lo", "r0", "r1"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_owner_leaves_nothing(sdfstream: Callable[..., dict[str, Any]], number: signal.Signals) -> None:
    """Killed in mid-congestion: every namespace, cable and the sender go; the next `lab up` finds the place free."""
    sdfstream("up", *SIZES)
    sdfstream("congest", "l0->s1")
    status = sdfstream("status")
    owner = status["pid"]
    children = [int(c) for c in Path(f"/proc/{owner}/task/{owner}/children").read_text().split()]
    assert len(children) == 1
    held = {node: hold(status["netns"][node]) for node in ("h00", "s0")}
    os.kill(owner, number)
    # Holding a host shows that its leaves went, holding a spine that all leaves went.
    for node, fd in held.items():
        for port, _ in FabricPlan(SMALL).ports[node]:
            wait_until_gone(fd, port.ifindex)
        os.close(fd)
    assert not any(_runs(pid) for pid in [owner, *children])
    assert strays() == []
    assert sdfstream("status")["exit"] == 2
    assert sdfstream("up", *SIZES)["exit"] == 0


def _runs(pid: int) -> bool:
    """Whether a process runs; one that has ended but was not waited for does not."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        if state in "ZX":
            return False
        time.sleep(0.01)
    return True


def test_a_fabric_in_this_process_goes_with_its_block() -> None:
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with up_or_skip(SMALL) as fabric:
        held = hold(fabric.netns_path("h00"))
        fabric.congest("l0->s1")
        fabric.flap("l0--s0", times=100, period_s=0.05)
    for port, _ in fabric.plan.ports["h00"]:
        wait_until_gone(held, port.ifindex)
    os.close(held)
    assert strays() == []
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


UNPRIVILEGED = """
import json, time
from sdfstream.lab import Fabric, FabricSpec
with Fabric.up(FabricSpec(hosts=4, spines=2)) as fabric:
    before = fabric.path("h00/r0", "h02/r0", 49152)
    fabric.inject(before[1].replace("->", "--"))
    cut = fabric.path("h00/r0", "h02/r0", 49152)
    fabric.heal()
    congestion = fabric.congest("l0->s1", 1.5)
    deepest, end = 0, time.monotonic() + 10
    while time.monotonic() < end and (deepest < 100_000 or not fabric.done_to("l0->s1").marked):
        deepest = max(deepest, fabric.backlog_bytes("l0->s1"))
        time.sleep(0.01)
    marked = fabric.done_to("l0->s1").marked
    fabric.heal()
    fabric.inject("l0->s1", "gray-loss", share=0.25)
    load = fabric.congest("l0->s1", 0.5, seconds=0.4)
    while load.healed_at_ns is None and time.monotonic() < end + 10:
        time.sleep(0.01)
    dropped = fabric.done_to("l0->s1").dropped
    print(json.dumps({"features": fabric.features.drops, "ce": fabric.features.ce_marks, "before": before,
                      "cut": cut, "back": fabric.path("h00/r0", "h02/r0", 49152), "deepest": deepest,
                      "marked": marked, "dropped": dropped, "sent": load.parameters["sent"]["packets"],
                      "missing": fabric.features.missing}))
"""


def test_everything_works_as_root_of_a_user_namespace() -> None:
    """What an ordinary user gets: no bpf(2), so nf_tables drops and marks; all else is the same."""
    allowed = subprocess.run(["unshare", "-Ur", "true"], capture_output=True, text=True)
    if allowed.returncode:
        pytest.skip(f"no user namespaces on this machine: {allowed.stderr.strip()}")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["unshare", "-Ur", sys.executable, "-c", UNPRIVILEGED]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    print(f"lab in a user namespace: drops by {said['features']}, CE by {said['ce']}; missing: {said['missing']}")
    assert said["cut"] != said["before"] == said["back"]
    assert said["deepest"] > 100_000
    if said["features"] == "nft":
        assert said["marked"] > 0
        assert 0.15 < said["dropped"] / said["sent"] < 0.35
    assert (said["ce"] == "backlog") == (said["missing"] == [])


def test_an_unknown_request_is_answered_with_a_sentence() -> None:
    with up_or_skip(SMALL) as fabric:
        for request in ("x", {}, {"do": "explode"}, {"do": "inject"}, {"do": "heal", "which": "f9"}):
            assert set(control.answer(fabric, request)) == {"error"}
        with pytest.raises(ConfigError):
            fabric.netns_path("nowhere")


def test_a_failed_build_leaves_nothing() -> None:
    """A queue that the kernel refuses when half the fabric stands: every descriptor is closed again."""
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    spec = dataclasses.replace(SMALL)
    object.__setattr__(spec, "queue_bytes", 0)
    object.__setattr__(spec, "burst_bytes", 0)
    with pytest.raises(LabUnavailableError, match="token bucket"):
        Fabric.up(spec)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
