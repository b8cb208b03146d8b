"""Laws of the match: nothing is lost, order does not matter, anything may be said."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.score import report
from sdfstream.score.match import RELATED_KINDS, RIGHT_KINDS, match

ELEMENTS = st.sampled_from(["h00/r0", "h01/r1", "h00", "l0--s1", "l0->s1", "h00/r0--l0", "s1", "l0", "", "--", "a>b x"])
KINDS = sorted(set().union(*RIGHT_KINDS.values(), *RELATED_KINDS.values()) | {"surprise"})


@st.composite
def faults(draw: st.DrawFn) -> dict[str, Any]:
    at_ns = draw(st.integers(0, 100)) * 10**9
    healed = draw(st.none() | st.integers(0, 30).map(lambda s: at_ns + s * 10**9))
    kind = draw(st.sampled_from([*RIGHT_KINDS, "surprise"]))
    return {"id": "F", "kind": kind, "target": draw(ELEMENTS), "at_ns": at_ns, "healed_at_ns": healed}


@st.composite
def statements(draw: st.DrawFn) -> dict[str, Any]:
    suspects = [{"id": i, "probability": 0.5} for i in draw(st.lists(ELEMENTS, max_size=2))]
    return {
        "id": draw(st.sampled_from("abcdef")),
        "kind": draw(st.sampled_from(KINDS)),
        "severity": draw(st.sampled_from(["info", "warning", "urgent"])),
        "status": draw(st.sampled_from(["open", "update", "resolved"])),
        "subject": {"type": draw(st.sampled_from(["nic", "link", "path", "switch", "port"])), "id": draw(ELEMENTS)},
        "seen_at_ns": draw(st.integers(0, 140)) * 10**9 + draw(st.integers(0, 10**9 - 1)),
        "suspects": suspects,
    }


@settings(max_examples=200, deadline=None)
@given(
    st.lists(faults(), max_size=4),
    st.lists(statements(), max_size=12, unique_by=lambda s: s["seen_at_ns"]),
    st.randoms(),
)
def test_every_alarm_is_tied_once_or_false_and_order_does_not_matter(
    injected: list[dict[str, Any]], said: list[dict[str, Any]], chance: Any
) -> None:
    card = match(injected, said)
    tied = [key for outcome in card.outcomes for key in outcome.tied]
    assert len(tied) == len(set(tied))
    assert len(tied) + len(card.false_alarms) + len(card.telemetry) == card.alarms
    assert len(card.outcomes) == len(injected)
    for outcome in card.outcomes:
        assert (outcome.finding is None) == (outcome.verdict == "missed")
        assert outcome.verdict != "right" or outcome.tied
    shuffled = list(said)
    chance.shuffle(shuffled)
    assert match(injected, shuffled).as_dict() == card.as_dict()
    assert report.summary(card.as_dict(), data="x")


@settings(max_examples=100, deadline=None)
@given(st.lists(faults(), max_size=3), st.lists(statements(), max_size=8))
def test_saying_less_never_finds_more(injected: list[dict[str, Any]], said: list[dict[str, Any]]) -> None:
    whole, none = match(injected, said), match(injected, [])
    assert none.count("right") == 0
    assert none.alarms == 0
    assert whole.count("missed") <= none.count("missed")
