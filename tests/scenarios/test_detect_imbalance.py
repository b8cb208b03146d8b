"""Flows that a leaf's hash crowds on one uplink, against the twin's truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdfstream import settings
from sdfstream.score.detect.run import run as score

SCENARIO = """about: ecmp-imbalance as it is shipped, in less time
fabric: {kind: leaf-spine, hosts: 20, leaves: 4, spines: 4}
probes: {peers: 5, ports: 3}
known: {flows: true}
load: {utilisation: 0.4, flows_per_nic: 8}
jobs:
  - {name: train-7, ranks: 8, share: 0.2}
seconds: 34
faults:
  - {kind: ecmp-imbalance, at: 20, lasts: 12}
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_a_polarised_hash_is_told_once_at_its_switch_with_its_cause(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "imbalance.yaml"
    file.write_text(SCENARIO)
    made = score(file, seed, settings.load(None))
    (fact,) = made.faults
    assert fact.found and fact.exact and fact.cause and fact.findings == 1
    assert fact.reported_class == "imbalance"
    assert not made.false_alarms and not made.empty_evidence
