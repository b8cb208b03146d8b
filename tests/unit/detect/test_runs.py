"""Runs of lost probes among rows that may have been shed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.detect.runs import LONG_RUN, LossRuns
from sdfstream.detect.sessions import Sessions

S = 1_000_000_000
T0 = 1_800_000_000 * S


def runs_of(rows: list[tuple[int, bool]], shed: set[int], cuts: set[int]) -> tuple[int, int]:
    """(loss events counted, length of the last run) of one session; a lost probe's row comes after 8 more were sent."""
    sessions = Sessions(10)
    slot = sessions.of_names([("a/0", "b/0", "udp", 50000, 0)], T0)
    runs = LossRuns(sessions)
    runs.ensure()
    due = sorted((seq if ok else seq + 8, seq, ok) for seq, ok in rows if seq not in shed)
    batch: list[tuple[int, bool]] = []
    for i, (_, seq, ok) in enumerate(due):
        batch.append((seq, ok))
        if i in cuts or i == len(due) - 1:
            number, answered = (np.array(x) for x in zip(*batch, strict=True))
            runs.take_rows(
                np.repeat(slot, len(batch)), number, answered, np.full(len(batch), T0), np.zeros(len(batch), np.int64)
            )
            batch.clear()
    return int(runs.windows[1].totals("events")[0]), int(runs.table["run"][0])


def reference(rows: list[tuple[int, bool]], shed: set[int]) -> tuple[int, int]:
    """What is left, in order: every run of lost rows is an event unless it is long."""
    lengths, length = [], 0
    for _, ok in [row for row in rows if row[0] not in shed]:
        if ok and length:
            lengths.append(length)
            length = 0
        length += not ok
    lengths += [length] if length else []
    return sum(n < LONG_RUN for n in lengths), lengths[-1] if lengths else 0


@given(
    st.lists(st.booleans(), min_size=1, max_size=50),
    st.sets(st.integers(0, 49)),
    st.sets(st.integers(0, 49)),
)
def test_shed_rows_neither_end_a_run_nor_count_in_one(ok: list[bool], shed: set[int], cuts: set[int]) -> None:
    rows = list(enumerate(ok))
    assert runs_of(rows, shed, cuts) == reference(rows, shed)


def test_losses_and_late_answers_of_what_was_sent_before_a_wipe_do_not_count() -> None:
    sessions = Sessions(8)
    slot = sessions.of_names([("a/0", "b/0", "udp", 50000, 0)], T0)
    runs = LossRuns(sessions)
    runs.ensure()

    def take(seq: int, ok: bool, at_ms: int, age_ms: int) -> None:
        at, age = np.array([T0 + at_ms * 1_000_000]), np.array([age_ms * 1_000_000])
        runs.take_rows(slot, np.array([seq]), np.array([ok]), at, age)

    take(0, True, 100, 0)
    runs.wipe(slot)
    take(1, False, 700, 550)
    take(2, True, 700, 600)
    assert [runs.windows[0].totals(name)[slot[0]] for name in ("events", "probes")] == [0, 0]
    take(3, True, 900, 0)
    take(4, False, 1500, 550)
    assert [runs.windows[0].totals(name)[slot[0]] for name in ("events", "probes")] == [1, 2]


def test_a_run_of_an_outage_is_taken_back_once_and_stays_so_when_it_grows() -> None:
    sessions = Sessions(8)
    slot = sessions.of_names([("a/0", "b/0", "udp", 50000, 0)], T0)
    runs = LossRuns(sessions)
    runs.ensure()

    def take(seq: int, ok: bool) -> list[int]:
        at = np.array([T0 + seq * 100_000_000])
        runs.take_rows(slot, np.array([seq]), np.array([ok]), at, np.zeros(1, np.int64))
        return [int(runs.windows[1].totals(name)[slot[0]]) for name in ("events", "probes")]

    assert take(0, True) == [0, 1] and take(1, False) == [1, 2] and take(2, True) == [1, 3]
    for seq in (3, 4, 5):
        assert take(seq, False) == [2, 4]
    runs.take_back(slot)
    runs.take_back(slot)
    assert take(6, False) == [1, 3], "only the last run was the outage's, and it is taken back once"
    assert take(7, True) == [1, 4]
    assert take(8, False) == [2, 5], "gray loss goes on counting"
