"""Features are few, finite and named by what was measured, whatever the evidence says."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sdfstream.detect.learned.features import MOST_FEATURES, features
from sdfstream.detect.learned.packed import packed, unpacked
from sdfstream.numeric import codec
from sdfstream.records.finding import Evidence, Finding, Subject

FINDING = Finding(
    "f", "loss", "warning", "open", Subject("link", "l0--s1"), 0, 0, "gray-failure", 0.9, (), "", direction="l0->s1"
)
numbers = st.floats() | st.integers(-(2**200), 2**200).map(float) | st.sampled_from([0.0, -0.0, 1e308, -1e308, 5e-324])
evidence = st.builds(Evidence, st.text(max_size=200), numbers, st.just("1"), st.text(max_size=9), st.none() | numbers)


@given(st.lists(evidence, max_size=200), numbers)
def test_hostile_evidence_gives_few_and_finite_features(facts: list[Evidence], confidence: float) -> None:
    found = features(replace(FINDING, evidence=tuple(facts), confidence=confidence))
    assert len(found) <= MOST_FEATURES
    assert all(math.isfinite(value) and abs(value) < 1e20 for value in found.values())
    assert all(len(name) < 80 for name in found)
    assert unpacked(codec.load(codec.dump(packed([found, {}, found])))) == [found, {}, found]


def test_no_name_of_an_element_is_a_feature() -> None:
    fact = Evidence("loss-share", 0.1, "1", "l0->s1", 0.0)
    other = replace(
        FINDING,
        id="g",
        subject=Subject("link", "l3--s9"),
        direction="s9->l3",
        evidence=(replace(fact, where="s9->l3"),),
    )
    assert features(replace(FINDING, evidence=(fact,))) == features(other)


def test_what_differs_is_seen() -> None:
    fact = Evidence("loss-share", 0.1, "1", "l0->s1", 0.001)
    base = features(replace(FINDING, evidence=(fact,)))
    others = [
        replace(FINDING, evidence=(replace(fact, value=0.01),)),
        replace(FINDING, evidence=(replace(fact, baseline=0.01),)),
        replace(FINDING, evidence=(fact, fact)),
        replace(FINDING, evidence=()),
        replace(FINDING, evidence=(fact,), direction=""),
        replace(FINDING, evidence=(fact,), cause="queueing"),
        replace(FINDING, evidence=(fact,), subject=Subject("nic", "l0--s1")),
    ]
    assert all(features(other) != base for other in others)
