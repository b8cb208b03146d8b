"""The quick scorecard is a regression gate: loose limits at what it measures today, on the seed that was published.

Two thirds of a minute of one core. Raise the limits when detect gets better; the corpus: docs/scorecard-detect.md.
"""

from __future__ import annotations

import pytest

from sdfstream import settings
from sdfstream.score.detect.card import card
from sdfstream.score.detect.facts import RunFacts
from sdfstream.score.detect.run import QUICK, run
from sdfstream.twin import shipped_io

GATE = {
    # scenario: place known, most findings tied to the fault, longest delay s
    "congested-link": (True, 2, 8.0),
    "gray-10-blind": (True, 6, 6.0),
    "link-down": (True, 2, 2.0),
    "nic-down-blind": (True, 2, 2.0),
}


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_scenario_is_found_as_well_as_ever(name: str) -> None:
    made: RunFacts = run(shipped_io.find(name), 1, settings.load(None))
    placed, findings, delay_s = GATE[name]
    (fact,) = made.faults
    assert fact.found
    assert fact.delay_s is not None
    assert fact.delay_s <= delay_s
    assert fact.findings <= findings
    assert fact.exact or not placed
    assert fact.cause
    assert not made.false_alarms
    assert not made.empty_evidence
    assert card([made])["recall"] == 1
