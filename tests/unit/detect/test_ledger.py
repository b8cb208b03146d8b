"""The life of findings: pending, open, updated, resolved; damped when they come and go."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.detections import Detection
from sdfstream.detect.ledger import NEVER_NS, Ledger
from sdfstream.records.finding import Evidence, Subject
from sdfstream.stats import Counters

S = 1_000_000_000
T0 = 1_800_000_000 * S
DETECTION = Detection(
    "nic-down",
    Subject("nic", "h03/r1"),
    T0,
    "link-failure",
    0.9,
    (Evidence("silent-paths", 3.0, "paths", "h03/r1->l1"),),
    confirm_ns=S // 4,
)


def life(
    ledger: Ledger, detected: list[bool], detection: Detection = DETECTION, step_ns: int = S // 10
) -> list[tuple[float, dict]]:
    """Claim or not at every 100 ms; what is said, with the time in seconds."""
    said = []
    for i, yes in enumerate(detected):
        outputs = ledger.take("silence", [detection] if yes else [], T0 + i * step_ns)
        said += [(round(i * step_ns / S, 1), dict(out.body.data)) for out in outputs]
    return said


def make() -> Ledger:
    return Ledger(DetectConfig(), Counters("detect"))


def test_it_opens_once_confirmed_and_resolves_once_gone() -> None:
    said = life(make(), [True] * 20 + [False] * 20)
    assert [(t, f["status"]) for t, f in said] == [(0.3, "open"), (2.9, "resolved")]
    assert said[0][1]["since_at_ns"] == said[1][1]["since_at_ns"] == T0
    assert said[0][1]["id"] == said[1][1]["id"]
    assert said[1][1]["resolved_at_ns"] == T0 + 19 * S // 10
    assert said[0][1]["remedy"] and said[0][1]["class"] == "link" and said[0][1]["runbook"]


@pytest.mark.parametrize(
    ("directions", "known", "said"),
    [
        (("h03/r1->l1",), True, "h03/r1->l1"),
        (("h03/r1->l1",), False, None),
        (("h03/r1->l1", "l1->h03/r1"), True, None),
        ((), True, None),
    ],
)
def test_the_subject_has_the_one_direction_that_is_at_fault(
    directions: tuple[str, ...], known: bool, said: str | None
) -> None:
    found = life(make(), [True] * 5, replace(DETECTION, directions=directions, direction_known=known))
    assert found[0][1]["subject"].get("direction") == said
    switch = replace(DETECTION, subject=Subject("switch", "l1"), directions=directions, direction_known=known)
    assert "direction" not in life(make(), [True] * 5, switch)[0][1]["subject"]


def test_it_knows_when_what_is_pending_will_have_lasted() -> None:
    ledger = make()
    assert ledger.due_ns("silence", T0) == NEVER_NS
    later = replace(DETECTION, subject=Subject("link", "l2--s2"), confirm_ns=DETECTION.confirm_ns + S)
    ledger.take("silence", [DETECTION, later], T0)
    first_ns = T0 + DETECTION.confirm_ns
    assert ledger.due_ns("silence", T0) == first_ns
    assert ledger.due_ns("silence", first_ns) == first_ns + S, "an instant that has passed is not due again"
    assert ledger.due_ns("loss", T0) == NEVER_NS
    ledger.take("silence", [DETECTION, later], first_ns)
    assert ledger.due_ns("silence", T0) == first_ns + S, "what is reported waits for nothing"


def test_what_does_not_last_is_never_said_and_a_short_gap_does_not_resolve() -> None:
    assert life(make(), [True, True, False] * 4 + [False] * 20)[:1] != []  # gaps of 100 ms are bridged
    assert life(make(), [True, True] + [False] * 30) == []
    said = life(make(), [True] * 10 + [False] * 5 + [True] * 10)
    assert [f["status"] for _, f in said] == ["open"]


def test_it_opens_once_measurements_show_it_as_long_as_time_has_passed() -> None:
    ledger, said = make(), []
    for tick, shown in enumerate([1, 1, 1, 1, 1, 1, 2, 3, 4]):
        detection = replace(DETECTION, measured_ns=shown * S // 10)
        said += [(tick, out) for out in ledger.take("queues", [detection], T0 + tick * S // 10)]
    assert [tick for tick, _ in said] == [7]


def test_a_change_soon_after_a_statement_is_told_a_second_after_that() -> None:
    """Not at the next regular update: what changed is compared with what was stated, not with a moment ago."""
    ledger, said = make(), []
    for tick in range(30):
        cause = "link-failure" if tick < 6 else "port-disabled"
        said += [
            (tick, o.body.data["cause"])
            for o in ledger.take("s", [replace(DETECTION, cause=cause)], T0 + tick * S // 10)
        ]
    assert said == [(3, "link-failure"), (13, "port-disabled")]


@pytest.mark.parametrize(("ticks", "told"), [(10, ["info", "info"]), (20, ["info", "warning", "warning"])])
def test_what_ends_is_no_worse_than_was_said_while_it_stood(ticks: int, told: list[str]) -> None:
    """It opens at 0.3 s and is worse from 0.6 s on, which is said a second after it opened, if it still stands."""
    ledger, said = make(), []
    for tick in range(ticks + 20):
        now = replace(DETECTION, severity="info" if tick < 6 else "warning")
        out = ledger.take("s", [now] if tick < ticks else [], T0 + tick * S // 10)
        said += [o.body.data["severity"] for o in out]
    assert said == told


def test_ids_are_stable_and_differ_between_findings() -> None:
    first, again = life(make(), [True] * 5)[0][1], life(make(), [True] * 5)[0][1]
    other = life(make(), [True] * 5, replace(DETECTION, since_ns=T0 + 1))[0][1]
    assert first["id"] == again["id"] != other["id"]


def test_updates_are_rate_limited_and_come_at_once_only_for_news() -> None:
    ledger, said = make(), []
    for i in range(200):
        detection = replace(
            DETECTION, evidence=(Evidence("silent-for", i / 10, "s", "x"),), detail="a" if i < 50 else "b"
        )
        said += [(i / 10, o.body.data["status"]) for o in ledger.take("silence", [detection], T0 + i * S // 10)]
    assert said == [(0.3, "open"), (5.0, "update"), (10.0, "update"), (15.0, "update")]


@given(st.integers(3, 30), st.integers(11, 40), st.integers(3, 60))
def test_flapping_never_spams(on: int, off: int, times: int) -> None:
    """However it comes and goes, at most one finding opens in the time a penalty needs to decay from suppression."""
    ledger = make()
    said = life(ledger, ([True] * on + [False] * off) * times)
    opened = [t for t, f in said if f["status"] == "open"]
    total_s = (on + off) * times / 10
    assert len(opened) <= 2 + total_s / 6.2  # 15 s · log2(1600 / 1200)
    assert all(f["status"] != "update" or f["evidence"] for _, f in said)


@pytest.mark.parametrize("apart", [8, 15, 20])
def test_eight_outages_are_counted_as_eight(apart: int) -> None:
    """However many findings they were: some are resolved between two outages, later ones are damped."""
    reported = life(make(), ([True] * 10 + [False] * apart) * 7 + [True] * 10 + [False] * 600)
    assert reported[-1][1]["status"] == "resolved"
    assert [e["value"] for e in reported[-1][1]["evidence"] if e["what"] == "outages"] == [8.0]


def test_damped_findings_are_resolved_in_the_end_and_memory_is_bounded() -> None:
    ledger = make()
    said = life(ledger, ([True] * 10 + [False] * 20) * 6 + [False] * 500)
    assert said[-1][1]["status"] == "resolved"
    assert any(e["what"] == "outages" and e["value"] > 1 for e in said[-1][1]["evidence"])
    for i in range(5000):
        ledger.take("flood", [replace(DETECTION, subject=Subject("nic", f"h/{j}")) for j in (i, i + 1)], T0 + i)
    assert ledger.counters.get("shed", "findings-full") > 0


def test_what_came_back_once_is_watched_for_longer_than_it_stayed_away() -> None:
    ledger = make()
    outage, well = [True] * 30, [False] * 90
    said = life(ledger, [*(outage + well) * 4, *[False] * 200])
    opened = [t for t, f in said if f["status"] == "open"]
    resolved = [t for t, f in said if f["status"] == "resolved"]
    assert opened == [0.3, 12.3]  # the second finding has the third outage and the fourth
    assert len(resolved) == 2
    assert 13 <= resolved[1] - (3 * 12 + 2.9) <= 14  # nine seconds and half as much
    assert {e["what"]: e["value"] for e in said[-1][1]["evidence"]}["outages"] == 4


def test_a_ledger_of_a_release_before_knows_how_often_alone() -> None:
    ledger = make()
    life(ledger, [True] * 20 + [False] * 20)
    state = ledger.snapshot()
    state["outages"] = [[key, outages["times"]] for key, outages in state["outages"]]
    revived = make()
    revived.restore(state)
    assert life(revived, [True] * 20)[0][1]["evidence"][-1]["value"] == 2


def test_sources_do_not_resolve_each_others_findings() -> None:
    ledger = make()
    life(ledger, [True] * 5)
    for i in range(100):
        assert ledger.take("loss", [], T0 + S + i * S) == []
    assert ledger.is_open("nic-down", Subject("nic", "h03/r1"))


def test_what_waits_for_a_suspicion_is_told_at_once_when_that_is_over() -> None:
    """Loss that is pending while its link seems down for an instant has lasted all the while."""
    ledger = make()
    loss = replace(DETECTION, kind="loss", subject=Subject("link", "l0--s0"))
    down = replace(loss, kind="link-down")
    ledger.take("loss", [loss], T0)
    key = ("loss", "link", "l0--s0")
    for i in (1, 2, 3):
        assert not ledger.take("loss", [], T0 + i * S // 10, explained={key: down})
    (said,) = ledger.take("loss", [loss], T0 + 4 * S // 10)
    assert dict(said.body.data)["status"] == "open"


def test_what_waited_for_a_suspicion_that_came_true_is_never_told() -> None:
    ledger = make()
    loss = replace(DETECTION, kind="loss", subject=Subject("link", "l0--s0"))
    down = replace(loss, kind="link-down")
    ledger.take("loss", [loss], T0)
    for i in range(10):
        ledger.take("silence", [down], T0 + i * S // 10)
        assert not ledger.take("loss", [], T0 + i * S // 10, explained={("loss", "link", "l0--s0"): down})
    assert not ledger.open_ids(("loss",))
