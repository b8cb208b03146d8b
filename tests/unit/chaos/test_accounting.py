"""The books of a chaos run: each thing that may go wrong makes them not balance, and says where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos import accounting, judgements
from tests.chaos.accounting import Books, Kept, Made, Record, Run
from tests.chaos.judgements import Said
from tests.chaos.story import Known

TOPIC = "sdf.raw.probe.v1"
RUNS = {"a.1": Run("a.1", "a", False), "a.2": Run("a.2", "a", True)}


class World:
    """Twenty messages of two runs of an agent, all acknowledged, all on the bus and in the archive."""

    def __init__(self) -> None:
        self.made = [Made(TOPIC, "h00", 10 + i, 1000 + i, "a.1" if i < 10 else "a.2", True, "h00") for i in range(20)]
        self.records = [Record(TOPIC, 0, i, "h00", m.run, i % 10, m.rows, m.digest) for i, m in enumerate(self.made)]
        self.kept = [Kept(TOPIC, 0, r.offset, r.rows, r.digest) for r in self.records]
        self.runs = dict(RUNS)

    def books(self) -> Books:
        books = Books()
        records, again = accounting.once(self.records)
        accounting.archive(books, records, again, self.kept)
        accounting.agents(books, self.made, self.runs, records)
        return books


def test_a_whole_world_balances() -> None:
    books = World().books()
    assert books.balanced
    assert books.produced == books.archived == books.archived_of_agents == sum(range(10, 30))
    assert (books.lost, books.doubled, books.died, books.shed) == (0, 0, 0, 0)


def lost_on_the_bus(w: World) -> None:
    del w.records[13], w.kept[13]


def lost_before_the_archive(w: World) -> None:
    del w.kept[3]


def lost_one_row(w: World) -> None:
    w.kept[3] = replace(w.kept[3], rows=w.kept[3].rows - 1)


def doubled_row(w: World) -> None:
    w.kept[3] = replace(w.kept[3], rows=w.kept[3].rows + 1)


def doubled_message(w: World) -> None:
    w.kept[3] = replace(w.kept[3], rows=2 * w.kept[3].rows)


def other_number(w: World) -> None:
    again = replace(w.records[4], offset=50, batch_seq=77)
    w.records.append(again)
    w.kept.append(Kept(TOPIC, 0, 50, again.rows, again.digest))


def archived_repeat(w: World) -> None:
    again = replace(w.records[4], offset=50)
    w.records.append(again)
    w.kept.append(Kept(TOPIC, 0, 50, again.rows, again.digest))


def stranger(w: World) -> None:
    w.records.append(Record(TOPIC, 0, 60, "h09", "x", 0, 5, 99))
    w.kept.append(Kept(TOPIC, 0, 60, 5, 99))


def other_content(w: World) -> None:
    w.kept[5] = replace(w.kept[5], digest=1)


def not_on_the_topic(w: World) -> None:
    w.kept.append(Kept(TOPIC, 0, 70, 3, 9))


def shed_and_arrived(w: World) -> None:
    w.runs["a.2"] = replace(w.runs["a.2"], shed_rows=7)


def shed_too_little(w: World) -> None:
    w.made[13] = replace(w.made[13], taken=False)
    del w.records[13], w.kept[13]
    w.runs["a.2"] = replace(w.runs["a.2"], shed_rows=w.made[13].rows - 1)


@pytest.mark.parametrize(
    ("wrong", "lost", "doubled"),
    [
        (lost_on_the_bus, 23, 0),
        (lost_before_the_archive, 13, 0),
        (lost_one_row, 1, 0),
        (doubled_row, 0, 1),
        (doubled_message, 0, 13),
        (other_number, 0, 14),
        (archived_repeat, 0, 14),
        (stranger, 0, 5),
        (other_content, 0, 0),
        (not_on_the_topic, 0, 3),
        (shed_and_arrived, 0, 0),
        (shed_too_little, 1, 0),
    ],
)
def test_what_goes_wrong_is_seen_and_located(wrong: Callable[[World], None], lost: int, doubled: int) -> None:
    world = World()
    wrong(world)
    books = world.books()
    assert not books.balanced
    assert (books.lost, books.doubled) == (lost, doubled)
    assert books.gaps or books.remarks
    assert all(TOPIC in str(gap) for gap in books.gaps)


def test_what_may_happen_balances() -> None:
    """A repeat on the bus, a copy of it archived in place of the first, what died with its agent, what was shed."""
    world = World()
    again = replace(world.records[4], offset=50)
    world.records.append(again)
    world.kept[4] = replace(world.kept[4], offset=50)
    world.made[9] = replace(world.made[9], taken=False)
    world.made[19] = replace(world.made[19], taken=False)
    for i in (19, 9):
        del world.records[i], world.kept[i]
    world.runs["a.2"] = replace(world.runs["a.2"], shed_rows=world.made[19].rows)
    books = world.books()
    assert books.balanced, (books.gaps, books.remarks)
    assert (books.repeats, books.died, books.shed) == (1, world.made[9].rows, world.made[19].rows)
    assert books.produced == books.archived


def test_gaps_name_ranges_of_offsets() -> None:
    records = [Record(TOPIC, 1, i, f"h0{i % 2}", "", -1, 5, i) for i in (*range(100, 110), *range(500, 503))]
    one, two = accounting.ranges("not archived", records)
    assert (one.first, one.last, one.messages, one.rows, one.keys) == (100, 109, 10, 50, ("h00", "h01"))
    assert str(two) == "not archived: sdf.raw.probe.v1[1] 500..502: 3 messages, 15 rows; of h00, h01"


def test_poison_is_a_dead_letter_and_nothing_else_is() -> None:
    books = Books()
    tally = accounting.letters(books, {"f1": "garbage"}, [("t.dlq", "f1"), ("t.dlq", "f1")])
    assert books.balanced
    assert tally == {"poison": 1, "letters": 2, "distinct": 1, "of_rows": 0}
    accounting.letters(books, {"f1": "garbage"}, [("t.dlq", "f1")], [(TOPIC, 0, 7)], {(TOPIC, 0, 7)})
    assert books.balanced
    accounting.letters(books, {"f1": "garbage", "f2": "nulls"}, [("t.dlq", "f1"), ("t.dlq", "f3")])
    assert books.remarks == [
        "poison nulls is not among the dead letters",
        "1 dead letters in t.dlq that were no poison",
    ]


def test_more_work_than_there_was_was_done_twice() -> None:
    books = Books()
    assert accounting.worked_on(books, "exchanges", {("a", 1): 10, ("b", 1): 10}, {("a", 1): 9, ("b", 1): 10}) == 0.95
    assert books.balanced
    accounting.worked_on(books, "exchanges", {("a", 1): 10, ("b", 1): 10}, {("a", 1): 12, ("b", 1): 3})
    assert (books.doubled, books.remarks) == (2, ["exchanges: 2 more than there were; of a/1 2"])


# --- findings and commands -------------------------------------------------------------------------------------------

KNOWN = [Known("link", 10.0, 25.0, "l0--s1", ("link-down",))]


def said(at_s: float, status: str, id_: str = "f1", subject: str = "l0--s1", kind: str = "link-down") -> Said:
    data = {"id": id_, "status": status, "kind": kind, "subject": {"type": "link", "id": subject}, "suspects": []}
    return Said(f"f[0]@{at_s}", f"{id_}-{at_s}", at_s, {**data, "seen_at_ns": int(at_s * 1e9)})


WHOLE = [said(11, "open"), said(16, "update"), said(27, "resolved")]


@pytest.mark.parametrize("more", [[], [said(30, "open"), said(33, "resolved")], [said(60, "resolved", "passed")]])
def test_a_fault_found_once_and_resolved(more: list[Said]) -> None:
    verdict = judgements.findings(KNOWN, [*WHOLE, *more])
    assert (verdict.expected, verdict.seen, verdict.doubled, verdict.remarks) == (1, 1, 0, [])
    assert verdict.faults[0]["after_s"] == 1.0


@pytest.mark.parametrize(
    ("events", "seen", "doubled"),
    [
        ([], 0, 0),
        ([said(11, "open", subject="l1--s1"), said(27, "resolved", subject="l1--s1")], 0, 0),
        ([said(11, "open", kind="loss"), said(27, "resolved", kind="loss")], 0, 0),
        ([said(60, "open"), said(70, "resolved")], 0, 0),
        (WHOLE[:2], 1, 0),
        (WHOLE[1:], 1, 0),
        ([*WHOLE, replace(WHOLE[0], place="again")], 1, 1),
        ([*WHOLE, replace(WHOLE[0], place="again", event_id="other")], 1, 1),
        ([*WHOLE, replace(WHOLE[1], data=WHOLE[0].data | {"seen_at_ns": 5})], 1, 1),
        ([*WHOLE, said(28, "update")], 1, 0),
        ([WHOLE[0], said(13, "open"), *WHOLE[1:]], 1, 0),
        ([*WHOLE, said(13, "open", "f2"), said(27.5, "resolved", "f2")], 1, 1),
    ],
)
def test_findings_that_are_missing_doubled_or_broken(events: list[Said], seen: int, doubled: int) -> None:
    verdict = judgements.findings(KNOWN, events)
    assert verdict.remarks
    assert (verdict.seen, verdict.doubled) == (seen, doubled)


def command(issued_s: float, id_: str = "c1", **other: Any) -> Said:
    data = {"id": id_, "epoch": 1, "action": "failover", "target": {"id": "q1"}, "expected": {"path": 5}}
    times = {"issued_at_ns": int(issued_s * 1e9), "expires_at_ns": int((issued_s + 12) * 1e9)}
    return Said(f"c[0]@{issued_s}", f"{id_}-{issued_s}", issued_s, {**data, **times, **other})


def test_a_lease_renewed_is_one_command() -> None:
    verdict = judgements.commands([command(1), command(5), command(9), command(30, "c2")])
    assert (verdict.seen, verdict.doubled, verdict.remarks) == (4, 0, [])


@pytest.mark.parametrize(
    "again",
    [
        command(5),
        replace(command(5), event_id="other"),
        replace(command(5, set={"path": 9}), event_id="other"),
        command(10, "c2"),
        replace(command(11), event_id="c1-5"),
    ],
)
def test_a_command_said_again_is_seen(again: Said) -> None:
    verdict = judgements.commands([command(1), command(5), again])
    assert verdict.doubled == 1
    assert len(verdict.remarks) == 1
