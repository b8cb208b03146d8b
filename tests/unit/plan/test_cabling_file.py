"""Declared cabling: what is taken, and how what does not fit is said."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sdfstream.errors import ConfigError
from sdfstream.lab import topology
from sdfstream.lab.plan import FabricPlan
from sdfstream.lab.spec import FabricSpec
from sdfstream.plan import cabling_file
from sdfstream.records.fabric import DECLARED_TYPE
from sdfstream.twin import shipped_io
from sdfstream.twin.scenario import read as scenario
from sdfstream.twin.simulation import Twin


def link(a: str, b: str, port: str) -> dict[str, Any]:
    ends = {"a": {"node": a, "port": "1"}, "b": {"node": b, "port": port}}
    return {"id": f"{a}--{b}", "speed_mbps": 400_000, **ends}


def nic(name: str, leaf: str) -> dict[str, Any]:
    host = name.partition("/")[0]
    return {"id": name, "host": host, "address": "10.0.0.2", "link": f"{name}--{leaf}", "rail": 0, "plane": "backend"}


def cabling() -> dict[str, Any]:
    return {
        "nodes": [{"id": "l0", "kind": "leaf"}, {"id": "s0", "kind": "spine"}],
        "links": [link("l0", "s0", "1"), link("h0/r0", "l0", "17"), link("h1/r0", "l0", "18")],
        "nics": [nic("h0/r0", "l0"), nic("h1/r0", "l0")],
    }


def test_cabling_and_the_event_of_it_are_read_alike() -> None:
    event = {"specversion": "1.0", "id": "x", "source": "noc", "type": DECLARED_TYPE, "data": cabling()}
    assert cabling_file.read(cabling()) == cabling_file.read(event) == cabling()


def test_what_lab_and_twin_declare_is_taken() -> None:
    twin = Twin(scenario(shipped_io.find("link-down")), 1, "link-down")
    declared = twin.fabric.declared()
    assert cabling_file.read(declared) == declared
    lab = topology.declared(FabricPlan(FabricSpec()))
    assert cabling_file.read(lab) == lab


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.pop("links"), "links"),
        (lambda c: c.update(racks=[]), "unknown key 'racks'"),
        (lambda c: c["nodes"].append({"id": "l0", "kind": "leaf"}), r"nodes\[2\].id is 'l0', which stands there twice"),
        (lambda c: c["nodes"][0].update(kind="rack\n"), "kind"),
        (lambda c: c["links"][0]["b"].update(node="s9"), r"links\[0\].b.node is 's9', which is no node and no NIC"),
        (lambda c: c["links"][2]["b"].update(port="17"), r"links\[2\].b is port '17' of 'l0', where 'h0/r0--l0' hangs"),
        (lambda c: c["links"][0].update(speed_mbps=-1), "speed_mbps"),
        (lambda c: c["nics"][0].update(link="no"), r"nics\[0\].link is 'no', which is no link"),
        (lambda c: c["nics"][0].update(link="l0--s0"), r"nics\[0\].link is 'l0--s0', which has no end at 'h0/r0'"),
        (lambda c: c["nics"][0].update(host="h1"), r"nics\[0\].id is 'h0/r0'; it must begin with its host, 'h1'"),
    ],
)
def test_what_does_not_fit_is_said_with_its_place(change: Any, says: str) -> None:
    changed = copy.deepcopy(cabling())
    change(changed)
    with pytest.raises(ConfigError, match=says):
        cabling_file.read(changed)


@pytest.mark.parametrize("raw", [None, [], "x", {"specversion": "1.0", "type": "other"}, {"specversion": 1, "type": 2}])
def test_what_is_no_cabling_is_said(raw: Any) -> None:
    with pytest.raises(ConfigError):
        cabling_file.read(raw)
