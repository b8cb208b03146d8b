"""A link that drops all packets of some five-tuples and none of others: told of the link, which is not down."""

from __future__ import annotations

from typing import Any

import pytest

from sdfstream.score.detect.facts import facts
from sdfstream.score.detect.run import statements
from sdfstream.settings import Settings
from sdfstream.twin.recording_io import fabric_truth
from sdfstream.twin.scenario import parse
from sdfstream.twin.simulation import Twin

LEAF_SPINE = {"kind": "leaf-spine", "hosts": 8, "leaves": 4, "spines": 4}
THREE_TIER = {"kind": "three-tier", "hosts": 8, "leaves": 4, "spines": 4, "pods": 2, "aggregation": 2}


@pytest.mark.parametrize(
    ("fabric", "share", "seed"),
    [(LEAF_SPINE, 1 / 3, 1), (LEAF_SPINE, 1 / 3, 2), (LEAF_SPINE, 0.5, 5), (THREE_TIER, 0.5, 1), (THREE_TIER, 0.5, 2)],
)
def test_a_link_that_drops_some_flows_is_one_loss_of_that_link(fabric: Any, share: float, seed: int) -> None:
    """Three tiers, seed 1: with sixteen dead paths the link, which others pass, became a rival and was told as dead."""
    data = {
        "about": "x", "fabric": fabric, "probes": {"peers": 5, "ports": 3}, "load": {"utilisation": 0.3},
        "seconds": 18.0, "faults": [{"kind": "hash-loss", "at": 8, "lasts": 6, "direction": "random", "share": share}],
    }  # fmt: skip
    twin = Twin(parse(data, "x", "x"), seed, "x")
    said = statements(twin, Settings())
    truth = [fault.truth(twin.start_ns, twin.seconds, twin.fabric.names) for fault in twin.faults]
    made = facts(fabric_truth(twin), truth, said, blind=False)
    (fact,) = made.faults
    assert (fact.exact, fact.directed, fact.cause) == (True, True, True), fact
    assert fact.reported == (f"loss link {fact.target}",), "dead paths are its symptoms"
    assert fact.delay_s is not None
    assert fact.delay_s < 2.5
    assert made.false_alarms == []
    assert {s["status"] for s in said} >= {"open", "resolved"}
    assert all(s["severity"] == "warning" for s in said)
