"""Findings against truth: the rules, one by one; the table; the verb on a recording made here."""

import json
from pathlib import Path
from typing import Any

import pytest

from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.cli import main
from sdfstream.records import topics
from sdfstream.records.units import NS_PER_S
from sdfstream.score import report
from sdfstream.score.location import LocationMatch, locate
from sdfstream.score.match import GRACE_NS, Scorecard, match
from tests.fixtures import board_messages as bm

T0 = bm.NOW_NS


def fault(
    kind: str, target: str, at_s: float = 10.0, healed_s: float | None = 20.0, key: str = "F1", **more: Any
) -> dict[str, Any]:
    healed = None if healed_s is None else T0 + int(healed_s * NS_PER_S)
    return {
        "id": key,
        "kind": kind,
        "target": target,
        "direction": more.pop("direction", None),
        "at_ns": T0 + int(at_s * NS_PER_S),
        "healed_at_ns": healed,
        "parameters": more,
    }


def said(kind: str, subject: str, seen_s: float, key: str = "a", status: str = "open", **more: Any) -> dict[str, Any]:
    what = "link" if "--" in subject else "path" if ">" in subject else "nic" if "/" in subject else "switch"
    if what == "switch" and subject.startswith("h"):
        what = "host"
    return (
        bm.finding(
            key,
            status,
            kind,
            (what, subject),
            seen_at_ns=T0 + int(seen_s * NS_PER_S),
            suspects=more.pop("suspects", ()),
        )
        | more
    )


def only(card: Scorecard) -> tuple[str, float | None]:
    (outcome,) = card.outcomes
    return outcome.verdict, None if outcome.delay_ns is None else outcome.delay_ns / NS_PER_S


@pytest.mark.parametrize(
    ("target", "subject", "want"),
    [
        ("h03/r1", "h03/r1", LocationMatch.EXACT),
        ("h03/r1", "h03/r1--l0", LocationMatch.EXACT),
        ("h03/r1--l0", "h03/r1", LocationMatch.EXACT),
        ("l0--s1", "s1--l0", LocationMatch.EXACT),
        ("l0->s1", "l0--s1", LocationMatch.EXACT),
        ("s1", "s1", LocationMatch.EXACT),
        ("h03", "h03", LocationMatch.EXACT),
        ("h03", "h03/r0", LocationMatch.EXACT),
        ("h03", "h03/r1--l0", LocationMatch.EXACT),
        ("h03/r1", "h03", LocationMatch.NEAR),
        ("h03/r1--l0", "h03", LocationMatch.NEAR),
        ("l0--s1", "s1", LocationMatch.NEAR),
        ("s1", "l0--s1", LocationMatch.NEAR),
        ("h03/r1--l0", "l0", LocationMatch.NEAR),
        ("h03/r1", "h03/r0", LocationMatch.ELSEWHERE),
        ("h03/r1", "h04", LocationMatch.ELSEWHERE),
        ("l0--s1", "l0--s2", LocationMatch.ELSEWHERE),
        ("l0--s1", "s2", LocationMatch.ELSEWHERE),
        ("h03/r1", "l0--s1", LocationMatch.ELSEWHERE),
        ("s1", "s2", LocationMatch.ELSEWHERE),
        ("l0--s1", "h00/r0>h04/r0 udp:50001 dscp46 fwd", LocationMatch.SYMPTOM),
    ],
)
def test_locations(target: str, subject: str, want: LocationMatch) -> None:
    assert locate(target, said("loss", subject, 0)) is want


def test_a_port_is_its_nic_and_suspects_count_less_than_the_subject() -> None:
    assert locate("h03/r1", {"subject": {"type": "port", "id": "h03/r1:1"}}) is LocationMatch.EXACT
    listed = said("loss", "h00/r0>h04/r0 x", 0, suspects=(("l0--s2", 0.5), ("l0--s1", 0.5)))
    assert locate("l0--s1", listed) is LocationMatch.SUSPECT
    assert locate("l0--s3", listed) is LocationMatch.SYMPTOM
    assert locate("l0--s3", {}) is LocationMatch.ELSEWHERE


def test_right_on_the_spot_with_its_delay_and_clearing() -> None:
    history = [said("nic-down", "h03/r1", 10.4), said("nic-down", "h03/r1", 21.0, status="resolved")]
    card = match([fault("link-down", "h03/r1--l0")], history)
    assert only(card) == ("right", 0.4)
    assert card.outcomes[0].cleared_ns == NS_PER_S
    assert card.false_alarms == []


def test_a_first_sign_that_grows_into_the_right_finding() -> None:
    path = "h03/r1>h04/r1 udp:1 dscp0 fwd"
    history = [said("path-down", path, 10.2), said("nic-down", "h03/r1", 11.5, status="update")]
    card = match([fault("black-hole", "h03/r1")], history)
    assert only(card) == ("right", 1.5)
    assert card.outcomes[0].first_sign_ns == NS_PER_S // 5


@pytest.mark.parametrize(
    ("kind", "target", "finding", "verdict"),
    [
        ("gray-loss", "l0--s1", said("loss", "l0--s1", 12), "right"),
        ("gray-loss", "l0--s1", said("link-down", "l0--s1", 12), "near"),
        ("gray-loss", "l0--s1", said("loss", "s1", 12), "near"),
        ("gray-loss", "l0--s1", said("loss", "a>b x", 12, suspects=(("l0--s1", 0.5),)), "near"),
        ("gray-loss", "l0--s1", said("loss", "a>b x", 12), "missed"),
        ("gray-loss", "l0--s1", said("loss", "l0--s2", 12), "wrong"),
        ("gray-loss", "l0--s1", said("congestion", "l0--s2", 12), "missed"),
        ("congestion", "l0->s1", said("congestion", "l0--s1", 12), "right"),
        ("congestion", "s1", said("ecn-marks", "l0--s1", 12), "near"),
        ("flap", "h03/r1", said("link-flap", "h03/r1", 12), "right"),
        ("flap", "h03/r1", said("nic-down", "h03/r1", 12), "near"),
        ("miscabled", "h03", said("miscabled", "h03/r0", 12), "right"),
        ("link-down", "s1", said("link-down", "s1", 12), "right"),
        ("link-down", "h03/r1", said("nic-down", "h04/r1", 12), "wrong"),
        ("link-down", "h03/r1", said("clock-faulty", "h03", 12), "missed"),
        ("something-new", "s1", said("loss", "s1", 12), "missed"),
    ],
)
def test_verdicts(kind: str, target: str, finding: dict[str, Any], verdict: str) -> None:
    assert only(match([fault(kind, target)], [finding]))[0] == verdict


def test_before_and_long_after_a_fault_are_false_alarms() -> None:
    early, late = said("nic-down", "h03/r1", 9.0, "e"), said("nic-down", "h03/r1", 20 + GRACE_NS / NS_PER_S + 0.1, "l")
    card = match([fault("link-down", "h03/r1")], [late, early])
    assert only(card) == ("missed", None)
    assert [f["id"] for f in card.false_alarms] == ["e", "l"]
    assert (card.alarms, card.as_dict()["precision"], card.as_dict()["recall"]) == (2, 0.0, 0.0)


def test_symptoms_and_side_effects_on_the_spot_are_no_false_alarms() -> None:
    history = [
        said("path-down", "h03/r1>h04/r1 x", 10.2, "p"),
        said("nic-down", "h03/r1", 10.5, "n"),
        said("ecn-marks", "h03/r1", 11, "m"),
        said("congestion", "l2--s0", 11, "x"),
        said("clock-unsynced", "h09", 11, "i", severity="info"),
    ]
    card = match([fault("link-down", "h03/r1")], history)
    assert [f["id"] for f in card.false_alarms] == ["x"]
    assert card.alarms == 4
    assert card.outcomes[0].tied == {"p", "n", "m"}


def test_each_finding_goes_to_the_fault_it_meets_best() -> None:
    faults = [fault("gray-loss", "l0--s1", 10, None, "A"), fault("link-down", "h03/r1", 12, None, "B")]
    card = match(faults, [said("nic-down", "h03/r1", 12.5, "n"), said("loss", "l0--s1", 13, "l")])
    assert [o.verdict for o in card.outcomes] == ["right", "right"]
    assert [o.tied for o in card.outcomes] == [{"l"}, {"n"}]
    assert [o.delay_ns for o in card.outcomes] == [3 * NS_PER_S, NS_PER_S // 2]


def test_the_same_fault_twice_is_found_twice() -> None:
    faults = [fault("link-down", "h03/r1", 10, 12, "A"), fault("link-down", "h03/r1", 20, 22, "B")]
    card = match(faults, [said("nic-down", "h03/r1", 10.3, "a"), said("nic-down", "h03/r1", 20.6, "b")])
    assert [o.delay_ns for o in card.outcomes] == [300_000_000, 600_000_000]


def test_nothing_injected_and_nothing_said() -> None:
    card = match([], []).as_dict()
    assert (card["faults"], card["alarms"], card["precision"], card["delay_median_ns"]) == (0, 0, None, None)
    assert "no fault was injected" in report.summary(card)


def test_the_closing_table() -> None:
    faults = [
        fault("link-down", "h03/r1", 10, 14, "A"),
        fault("gray-loss", "l0--s1", 20, 25, "B", direction="l0->s1", share=0.02),
        fault("congestion", "l1->s2", 40, 45, "C"),
        fault("black-hole", "h05/r0", 60, None, "D"),
    ]
    history = [
        said("nic-down", "h03/r1", 10.4, "a"),
        said("nic-down", "h03/r1", 15.0, "a", "resolved"),
        said("loss", "a>b x", 22, "b", suspects=(("l0--s1", 0.5), ("l0--s2", 0.5))),
        said("congestion", "l1--s3", 41, "c"),
    ]
    text = report.summary(match(faults, history).as_dict(), T0, "demo-data")
    lines = text.splitlines()
    assert lines[1].split("  ")[0] == "link-down"
    assert all(words in lines[1] for words in ("10 s", "nic-down nic h03/r1", "400 ms", "● right", "1 s"))
    assert all(words in lines[2] for words in ("gray-loss 2 %", "l0->s1", "(suspect)", "◐ near"))
    assert all(words in lines[3] for words in ("congestion link l1--s3", "✖ wrong"))
    assert all(words in lines[4] for words in ("◌ missed", "not healed"))
    assert "4 injected: 1 right, 1 near, 1 wrong, 1 missed; 3 alarms, 1 of them false" in text
    assert "median 400 ms, worst 400 ms" in text
    assert "sdfstream sql --data demo-data" in text
    assert "WHERE id = 'a'" in text


def recorded(folder: Path) -> Path:
    writer = RecordingWriter(folder / "rec", start_at_ns=T0)
    for i, data in enumerate(
        [
            said("nic-down", "h03/r1", 10.4),
            said("nic-down", "h03/r1", 21, status="resolved"),
            said("loss", "l0--s2", 30, "x"),
        ]
    ):
        event = bm.event(topics.FINDING, data, data["seen_at_ns"])
        writer.write([event.__class__(event.topic, event.key, event.body, event.bus_at_ns, i)])
    for i in range(20):
        message = bm.clocks({"h00": 0.0, "h01": 500.0}, T0 + (i + 1) * NS_PER_S // 10)
        writer.write([message.__class__(message.topic, message.key, message.body, message.bus_at_ns, i)])
    writer.finish()
    truth = folder / "truth"
    truth.mkdir()
    (truth / "faults.jsonl").write_text(json.dumps(fault("link-down", "h03/r1")) + "\n")
    return folder / "rec"


def test_the_verb_on_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded(tmp_path)
    assert main(["score", str(folder), "--json"]) == 0
    out, err = capsys.readouterr()
    card = json.loads(out.splitlines()[-1])
    assert (card["right"], card["false_alarms"], card["delay_median_ns"]) == (1, 1, 400_000_000)
    assert "● right" in err
    truth = [
        {"clock": c, "at_ns": T0 + s * NS_PER_S, "offset_ns": o}
        for s in (0, 60)
        for c, o in (("h00", 7.0), ("h01", 57.0))
    ]
    (tmp_path / "truth" / "clock.jsonl").write_text("".join(json.dumps(line) + "\n" for line in truth))
    assert main(["score", str(folder)]) == 0
    out, _ = capsys.readouterr()
    assert "causal offsets against reference h00" in out
    assert "100 %" in out, "said 100 ± 500 where 50 is true"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("{\n", "line 1 is no JSON"), ("[]\n", "no JSON object"), ('{"kind":"x"}\n', "lacks what a match needs")],
)
def test_odd_truth_is_exit_2_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, sentence: str
) -> None:
    folder = recorded(tmp_path)
    (tmp_path / "truth" / "faults.jsonl").write_text(content)
    assert main(["score", str(folder)]) == 2
    assert sentence in capsys.readouterr().err


def test_no_truth_and_no_recording_are_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", str(tmp_path)]) == 2
    assert "no truth in" in capsys.readouterr().err
    (tmp_path / "truth").mkdir()
    (tmp_path / "truth" / "faults.jsonl").write_text("")
    assert main(["score", str(tmp_path / "none"), "--truth", str(tmp_path / "truth")]) == 2
    assert "no such folder" in capsys.readouterr().err


def classes(faults: list[dict[str, Any]], statements: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["class"], one["id"]) for one in match(faults, statements).as_dict()["beside"]]


def test_what_tells_a_fault_again_or_blames_what_it_did_not_touch_is_listed_and_counted() -> None:
    statements = [
        said("congestion", "l0--s1", 11, "right"),
        said("congestion", "h0/r0>h1/r0 udp:1 dscp0 fwd", 11.5, "victim"),
        said("loss", "l0--s1", 12, "drops"),
        said("congestion", "s1", 13, "switch"),
    ]
    faults = [fault("congestion", "l0->s1")]
    assert classes(faults, statements) == [("extra", "victim"), ("extra", "drops"), ("false", "switch")]
    told = match(faults, statements).as_dict()
    assert (told["alarms"], told["false_alarms"], told["extra"], told["precision"]) == (4, 1, 2, 0.75)
    last = report.totals(told)
    assert "4 alarms, 1 of them false, 2 told a fault once more" in last
    assert "drops" in report.summary(told)


@pytest.mark.parametrize(
    ("kind", "found", "resolved_s", "want"),
    [
        ("gray-loss", "loss", 21, []),
        ("gray-loss", "loss", 17, ["early"]),
        ("gray-loss", "loss", 33, ["late"]),
        ("gray-loss", "loss", None, ["late"]),
        ("flap", "link-flap", 17, []),
        ("flap", "link-flap", None, []),
    ],
)
def test_a_finding_ends_with_its_fault(kind: str, found: str, resolved_s: float | None, want: list[str]) -> None:
    statements = [said(found, "l0--s1", 12)]
    if resolved_s is not None:
        statements.append(said(found, "l0--s1", resolved_s, status="resolved"))
    later = [fault("link-down", "l3--s3", 40, 50, "F2"), fault(kind, "l0--s1")]
    assert [what for what, _ in classes(later, [*statements, said("link-down", "l3--s3", 41, "b")])] == want


def test_an_agent_that_says_it_starves_is_listed_apart() -> None:
    told = match([fault("gray-loss", "l0--s1")], [said("agent-degraded", "h3", 12), said("nic-down", "h3/r0", 12, "b")])
    assert [(one, f["id"]) for one, f, _ in told.beside] == [("telemetry", "a"), ("false", "b")]
    assert told.as_dict()["false_alarms"] == 1 and told.as_dict()["telemetry"] == 1


def test_what_is_over_at_once_may_be_told_as_information() -> None:
    faults = [fault("link-down", "l0--s1", 10, 20, "A", reroute_s=0.3), fault("bursts", "h03/r1", 40, 80, "B")]
    told = [
        said("link-down", "l0--s1", 11, "l", "resolved", severity="info"),
        said("congestion", "h03/r1", 41, "b", "resolved", severity="info"),
        said("congestion", "h05/r1", 42, "other", "resolved", severity="info"),
    ]
    card = match(faults, told)
    assert [(o.verdict, o.tied) for o in card.outcomes] == [("right", {"l"}), ("right", {"b"})]
    assert (card.alarms, card.false_alarms) == (0, [])


def test_what_stays_is_not_found_by_information() -> None:
    card = match([fault("link-down", "l0--s1")], [said("link-down", "l0--s1", 11, "l", "resolved", severity="info")])
    assert card.outcomes[0].verdict == "missed"
