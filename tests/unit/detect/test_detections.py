"""Every kind of finding has a remedy and a section in the runbooks."""

from pathlib import Path

import pytest

from sdfstream.detect.detections import remedy
from sdfstream.records.finding import FINDING_KINDS, Subject

RUNBOOKS = (Path(__file__).parents[3] / "docs" / "runbooks.md").read_text()


@pytest.mark.parametrize("kind", FINDING_KINDS)
def test_a_kind_has_its_words(kind: str) -> None:
    said = remedy(kind, Subject("nic", "h00/r0"))
    assert "h00/r0" in said and not said.startswith("Look at the evidence")
    assert f"\n## {kind}\n" in RUNBOOKS


def test_a_port_that_marks_what_hardly_waited_is_not_searched_for_flows() -> None:
    said = remedy("ecn-marks", Subject("link", "l0--s1"), "ecn-mistuned")
    assert "l0--s1" in said and "flows" not in said


def test_what_one_of_the_spines_loses_is_no_matter_of_one_links_optics() -> None:
    said = remedy("loss", Subject("switch", "~core"))
    assert "one after the other" in said and "optics" not in said
