"""The spines of declared cabling, and the paths between its leaves."""

from __future__ import annotations

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.spines import between_leaves, is_one_of_spines, spines
from sdfstream.detect.inferred.hidden import CORE
from sdfstream.detect.stage import DetectStage
from sdfstream.records.fabric import Topology
from sdfstream.records.finding import Subject
from tests.fixtures.drive import run
from tests.fixtures.leafspine import Fabric, Shape


def declared(*links: tuple[str, str]) -> Topology:
    cables = [{"id": f"{a}--{b}", "a": {"node": a}, "b": {"node": b}} for a, b in links]
    cables += [{"id": f"h{i}/r0--l{i}", "a": {"node": f"h{i}/r0"}, "b": {"node": f"l{i}"}} for i in range(2)]
    nics = [{"id": f"h{i}/r0"} for i in range(2)]
    return Topology({"nodes": [], "nics": nics, "links": cables})


def test_spines_are_what_every_leaf_is_cabled_to() -> None:
    assert spines(declared(("l0", "s0"), ("l0", "s1"), ("l1", "s1"), ("l1", "s0"))) == ["s0", "s1"]
    assert spines(declared(("l0", "s0"), ("l0", "s1"), ("l1", "s1"))) == [], "pods, or a cable that is missing"
    assert spines(Topology()) == []


def test_the_core_stands_for_the_spines_where_cabling_is_declared() -> None:
    known = declared(("l0", "s0"), ("l1", "s0"))
    assert is_one_of_spines(known, Subject("switch", CORE))
    assert not is_one_of_spines(known, Subject("switch", "s0"))
    assert not is_one_of_spines(Topology(), Subject("switch", CORE)), "inferred, and no spine is known"


def test_paths_between_leaves() -> None:
    stage = DetectStage()
    run(stage, Fabric(3, [], Shape(hosts=4, rails=1, leaves=2, spines=2, ports=1, rate_hz=12.0, peers=3)).messages(2))
    cabling: Cabling = stage._engines.congestion.cabling
    n, table, names = cabling.sessions.count, cabling.sessions.table, cabling.sessions.nics.list
    leaf = [cabling.topology.leaf_of[name] for name in names]
    expected = [leaf[a] != leaf[b] for a, b in zip(table["src"][:n].tolist(), table["dst"][:n].tolist(), strict=True)]
    assert any(expected)
    assert not all(expected)
    assert np.array_equal(between_leaves(cabling, n), expected)
