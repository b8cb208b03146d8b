"""Probes lost on the way there, by the reflector's own numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.detect.gray.lost_there import LostThere
from sdfstream.detect.runs import LossRuns
from sdfstream.detect.sessions import Sessions

S = 1_000_000_000
T0 = 1_800_000_000 * S
WRAP = 1 << 32


def lost(rows: list[tuple[int, int | None]], cuts: tuple[int, ...] = ()) -> int:
    """What is counted of rows (number of the probe, the reflector's) of one session, cut into messages."""
    counted = LostThere()
    counted.ensure(1)
    for i, part in enumerate(np.split(np.arange(len(rows)), cuts)):
        seq = np.array([rows[j][0] for j in part], np.int64)
        number = np.array([-1 if rows[j][1] is None else rows[j][1] for j in part], np.int64)
        counted.take(np.zeros(part.size, np.int64), seq, number, number >= 0, T0 + i)
    return int(counted.since(T0)[0])


def exchange(fates: str, first: int = 0, reflector: int = 0) -> list[tuple[int, int | None]]:
    """Rows of probes that were answered (``a``), lost there (``t``) or whose answers were lost (``b``)."""
    rows: list[tuple[int, int | None]] = []
    for i, fate in enumerate(fates):
        seq = (first + i) % WRAP
        rows.append((seq, reflector % WRAP if fate == "a" else None))
        reflector += fate != "t"
    return rows


@pytest.mark.parametrize(
    ("fates", "there"),
    [("aaaa", 0), ("ata", 1), ("aba", 0), ("attba", 2), ("tta", 0), ("atatabbata", 3), ("a" + "t" * 9 + "a", 0)],
)
def test_only_what_is_lost_on_the_way_there_is_counted(fates: str, there: int) -> None:
    assert lost(exchange(fates)) == there
    assert lost(exchange(fates, WRAP - 2, WRAP - 3), tuple(range(1, len(fates)))) == there


def test_a_stateless_reflector_proves_nothing() -> None:
    rows = [(seq, None if number is None else seq) for seq, number in exchange("atabattaba")]
    assert lost(rows) == 0


def test_a_reflector_that_was_restarted_begins_anew() -> None:
    assert lost([*exchange("aaaa", 0, 500), *exchange("taata", 4, 0)]) == 1


@given(st.text("aatb", min_size=1, max_size=30), st.sets(st.integers(1, 29)))
def test_however_rows_are_cut_into_messages_the_count_is_the_same(fates: str, cuts: set[int]) -> None:
    rows = exchange(fates)
    assert lost(rows, tuple(sorted(c for c in cuts if c < len(rows)))) == lost(rows)


def test_what_is_a_minute_old_is_forgotten_and_a_snapshot_is_the_same() -> None:
    counted = LostThere()
    counted.ensure(1)
    zero = np.zeros(3, np.int64)
    counted.take(zero, np.array([0, 1, 2]), np.array([0, -1, 1]), np.array([True, False, True]), T0)
    revived = LostThere()
    revived.restore(counted.snapshot())
    for one in (counted, revived):
        assert one.since(T0).tolist() == [1]
        one.take(zero[:1], np.array([3]), np.array([2]), np.array([True]), T0 + 70 * S)
        assert one.since(T0).tolist() == [0]


def test_of_a_state_of_the_release_before_nothing_is_known_of_any_session() -> None:
    """It has no reflectors' numbers: all sessions that it knew are asked for before any row of theirs comes."""
    sessions = Sessions(10)
    sessions.of_names([(f"a{i}/0", "b/0", "udp", 50000, 0) for i in range(3)], 0)
    before, after = LossRuns(sessions), LossRuns(sessions)
    before.ensure()
    saved = before.snapshot()
    del saved["there"]
    after.restore(saved)
    assert after.there.since(0).tolist() == [0, 0, 0]
