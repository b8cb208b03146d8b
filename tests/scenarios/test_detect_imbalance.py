"""Flows that a leaf's hash crowds on one uplink, against the twin's truth."""

from __future__ import annotations

import pytest

from sdfstream import settings
from sdfstream.score.detect.run import run as score
from sdfstream.twin import shipped_io


@pytest.mark.parametrize("seed", [1, 2])
def test_a_polarised_hash_is_told_at_its_uplink_with_its_cause(seed: int) -> None:
    made = score(shipped_io.find("ecmp-imbalance"), seed, settings.load(None))
    (fact,) = made.faults
    assert fact.found and fact.exact and fact.directed and fact.cause
    assert fact.reported_class == "imbalance"
    assert not made.false_alarms and not made.empty_evidence
