"""Gray loss is put to its links, all of them and nothing else, with the share that they lose; and it is not let go of.

``python -m tests.trials.gray`` has more seeds and prints them; the figures are in `docs/figures.md`.
"""

from pathlib import Path

import pytest

import sdfstream.twin
from sdfstream.score.detect.run import statements
from sdfstream.settings import Settings
from sdfstream.twin.scenario import read
from sdfstream.twin.simulation import Twin
from tests.fixtures.lossy_fabric import NARROW, Lossy, lossy_links
from tests.trials.gray import Verdict, drawn, figures, play


@pytest.mark.parametrize("shape", ["wide", "narrow"])
@pytest.mark.parametrize("seed", [4, 6])
def test_several_lossy_links_are_named_as_links_with_their_shares(shape: str, seed: int) -> None:
    verdict = play(seed, shape, drawn(seed, shape, latest_s=15.0), 45.0)
    told = figures([verdict])
    plain = {f.subject for f in verdict.faults if f.share > 0.012}
    assert plain and plain <= set(verdict.named)
    assert verdict.wrong == [] and verdict.early == []
    assert told["recall"] >= 0.7 and told["share_within_1.5"] >= 0.8
    assert verdict.empty == 0


def test_a_lossy_switch_is_named_as_the_switch() -> None:
    verdict = play(9, "narrow", drawn(9, "narrow"), 30.0)
    assert list(verdict.named) == [verdict.faults[0].subject] and verdict.wrong == [] and verdict.early == []


@pytest.mark.parametrize("seed", range(700, 703))
def test_a_fabric_that_loses_a_thousandth_at_most_has_no_finding(seed: int) -> None:
    assert play(seed, "wide", [], 40.0).wrong == []


def test_faint_loss_is_told_stays_told_while_it_lasts_and_is_over_soon_after() -> None:
    (link,) = lossy_links(31, NARROW, 1, (0.01, 0.0101))
    fault = Lossy(link.subject, link.links, link.share, 10.0, 50.0)
    verdict: Verdict = play(31, "narrow", [fault], 75.0)
    assert verdict.named[fault.subject] <= 15.0 and verdict.early == [] and verdict.wrong == []
    last = verdict.last[fault.subject]
    assert last["status"] == "resolved"
    assert abs(last["since_at_ns"] / 1e9 - 1_800_000_000 - 2.0 - 10.0) <= 2.5


def test_what_was_laid_to_a_nic_first_is_put_under_the_link_that_loses_it() -> None:
    """Of 0.3 % few packets are lost: here those of one NIC at first, ten seconds before the link was known."""
    path = Path(sdfstream.twin.__file__).parent / "scenarios" / "gray-03.yaml"
    of_nic = [
        said
        for said in statements(Twin(read(path), 218, str(path)), Settings())
        if said["subject"] == {"type": "nic", "id": "h002/r0"}
    ]
    assert [said["detail"] for said in of_nic if said["status"] == "resolved"] == ["symptom of loss l1--s3"]
    assert of_nic[-1]["status"] == "resolved"
