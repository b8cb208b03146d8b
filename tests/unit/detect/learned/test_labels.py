"""What operators said: remembered past the finding's end, corrected, taken back, bounded."""

from dataclasses import replace

import pytest

from sdfstream.detect.learned.features import scaled
from sdfstream.detect.learned.labels import MOST_FINDINGS, MOST_LABELS, SETTLED_NS, Labels
from sdfstream.errors import FormatError
from sdfstream.numeric import codec
from sdfstream.records.finding import Evidence
from tests.unit.detect.learned.test_features import FINDING


def made(n: int) -> Labels:
    labels = Labels()
    for i in range(n):
        labels.note(replace(FINDING, id=f"f{i}", evidence=(Evidence("probes", float(i), "1", "x"),)))
    return labels


def test_a_finding_is_remembered_as_it_settled() -> None:
    labels = Labels()
    for at_ns, probes in ((0, 1.0), (SETTLED_NS, 20.0), (SETTLED_NS + 1, 300.0)):
        fact = Evidence("probes", probes, "1", "x")
        labels.note(replace(FINDING, seen_at_ns=at_ns, evidence=(fact,), status="update"))
    labels.note(replace(FINDING, seen_at_ns=SETTLED_NS, status="resolved", cause="unknown"))
    labels.take(FINDING.id, "degraded-link")
    (one,) = labels.labelled["loss"]
    assert (one.facts.rules_cause, one.facts.features["probes"]) == ("gray-failure", scaled(20.0))


def test_what_was_over_before_it_was_found_is_remembered_too() -> None:
    labels = Labels()
    labels.note(replace(FINDING, status="resolved"))
    assert labels.take(FINDING.id, "degraded-link") == "loss"


def test_a_later_label_replaces_and_unknown_takes_it_back() -> None:
    labels = made(3)
    assert [labels.take("f1", "cabling"), labels.take("f1", "cabling"), labels.take("f2", "clock")] == [
        "loss",
        None,
        "loss",
    ]
    labels.take("f1", "degraded-link")
    assert [(x.finding, x.cause) for x in labels.labelled["loss"]] == [("f2", "clock"), ("f1", "degraded-link")]
    labels.take("f1", "unknown")
    assert [x.finding for x in labels.labelled["loss"]] == ["f2"]


def test_a_label_for_what_nobody_knows_is_refused() -> None:
    with pytest.raises(FormatError, match="label-finding"):
        made(1).take("f9", "cabling")


def test_memory_is_bounded_and_the_newest_stay() -> None:
    labels = made(MOST_FINDINGS + 10)
    with pytest.raises(FormatError):
        labels.take("f9", "cabling")
    for i in range(10, MOST_FINDINGS + 10):
        labels.take(f"f{i}", "cabling")
        assert len(labels.labelled["loss"]) <= MOST_LABELS
    assert labels.labelled["loss"][-1].finding == f"f{MOST_FINDINGS + 9}"
    assert len(codec.dump(labels.snapshot())) < 600_000


def test_a_snapshot_holds_everything() -> None:
    labels = made(30)
    for i in range(0, 30, 3):
        labels.take(f"f{i}", "cabling")
    saved, again = codec.dump(labels.snapshot()), Labels()
    again.restore(codec.load(saved))
    assert codec.dump(again.snapshot()) == saved
    assert again.labelled == labels.labelled
    assert again.take("f1", "clock") == "loss"
