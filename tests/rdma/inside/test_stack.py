"""What the guest must have before anything is built on it: devices, names, counters, both paths."""

from __future__ import annotations

import json
import subprocess

from tests.rdma.inside import fabric


def test_devices_are_up(devices: tuple[str, ...]) -> None:
    links = json.loads(subprocess.run(["rdma", "-j", "link"], check=True, capture_output=True, text=True).stdout)
    assert {link["ifname"]: link["state"] for link in links} == dict.fromkeys(devices, "ACTIVE")


def test_source_ports_take_both_paths(devices: tuple[str, ...]) -> None:
    ports = fabric.ports_by_path(4)
    assert [len(found) for found in ports.values()] == [4, 4]
