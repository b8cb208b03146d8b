"""One kind's model: silent without labels and before the unknown, right where labels agree, else careful."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.detect.learned.kind import LEAST_LABELS, LEAST_OF_CAUSE, KindModel
from sdfstream.detect.learned.labels import FindingFacts, Labelled
from sdfstream.records.silences import FALSE_ALARM

CAUSES = ("gray-failure", "degraded-link", FALSE_ALARM)


def facts(value: float, rules: str = "gray-failure") -> FindingFacts:
    return FindingFacts("loss", rules, 0, {"loss-share": value, f"rules say {rules}": 1.0})


def labelled(*of: tuple[float, str]) -> list[Labelled]:
    return [Labelled(f"f{i}", facts(value), cause) for i, (value, cause) in enumerate(of)]


def two_groups(n: int) -> list[Labelled]:
    return labelled(*((1.0 + i / 50, "gray-failure") if i % 2 else (2.2 + i / 50, "degraded-link") for i in range(n)))


def test_until_there_are_enough_labels_nothing_is_said() -> None:
    assert KindModel(two_groups(LEAST_LABELS - 1)).assess(facts(2.2), 0.9) is None
    assert KindModel(two_groups(LEAST_LABELS)).assess(facts(2.2), 0.9) is not None


def test_a_cause_that_was_said_too_seldom_is_not_learned() -> None:
    many = labelled(*[(1.0, "gray-failure")] * 20, *[(2.2, "degraded-link")] * (LEAST_OF_CAUSE - 1))
    said = KindModel(many).assess(facts(2.2), 0.1)
    assert said is not None and said.labels == 0


def test_what_labels_agree_on_is_said_and_the_rules_cause_stays_where_it_was_right() -> None:
    model = KindModel(two_groups(20))
    far, near = model.assess(facts(2.4), 1.0), model.assess(facts(1.2), 1.0)
    assert far is not None and (far.cause, far.labels) == ("degraded-link", 10) and far.probability > 0.7
    assert near is not None and (near.cause, near.labels, near.false_alarm) == ("gray-failure", 0, None)


def test_rules_that_labels_confirm_are_not_overruled() -> None:
    """Nine of ten labels say that the rules are right, whatever the odd neighbour says."""
    noisy = labelled(*((1.0 + i / 50, "cabling" if i % 10 == 9 else "gray-failure") for i in range(60)))
    said = KindModel(noisy).assess(facts(1.18), 0.9)
    assert said is not None and said.labels == 0


def test_of_what_is_unlike_everything_nothing_is_said() -> None:
    model = KindModel([*two_groups(20), *labelled((1.0, FALSE_ALARM))])
    assert model.assess(facts(9.0), 0.2) is None
    shown = model.assess(facts(1.2), 0.9)
    assert shown is not None and shown.false_alarm is not None


def test_a_false_alarm_is_a_probability_and_never_a_cause() -> None:
    model = KindModel(labelled(*[(1.0 + i / 99, FALSE_ALARM) for i in range(20)]))
    said = model.assess(facts(1.1), 0.1)
    assert said is not None and said.cause == "gray-failure" and said.labels == 0
    assert said.false_alarm is not None and said.false_alarm > 0.9


labels = st.lists(st.tuples(st.floats(-9, 9), st.sampled_from(CAUSES)), max_size=40)


@settings(max_examples=30, deadline=None)
@given(labels, st.integers(0, 40), st.floats(-9, 9), st.floats(0, 1))
def test_learning_on_is_learning_anew(of: Sequence[tuple[float, str]], cut: int, value: float, sure: float) -> None:
    """Bit for bit, wherever the labels are cut; and probabilities are some."""
    everything = labelled(*of)
    model = KindModel(everything[:cut])
    model.assess(facts(value), sure)
    assert model.follow(everything)
    said = model.assess(facts(value), sure)
    assert said == KindModel(everything).assess(facts(value), sure)
    if said is not None:
        assert 0 <= said.probability <= 1 and 0 <= (said.false_alarm or 0) <= 1


def test_what_was_corrected_is_learned_anew() -> None:
    before = two_groups(10)
    model = KindModel(before)
    assert model.follow([*before, *labelled((1.0, "cabling"))])
    assert not model.follow(before[1:])
    assert not model.follow([*labelled((1.0, "cabling")), *before[1:]])


def test_a_cause_that_is_less_likely_than_not_is_not_said() -> None:
    """However wrong the rules were: with three causes as likely each, none of them is."""
    causes = ("cabling", "clock", "naming")
    mixed = labelled(*((1.0 + i / 99, causes[i % 3]) for i in range(30)))
    for value in (1.05, 1.12, 1.2):
        said = KindModel(mixed).assess(facts(value), 0.0)
        assert said is not None and said.labels == 0
