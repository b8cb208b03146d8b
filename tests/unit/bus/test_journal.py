"""The journal of a stage: what a commit keeps, and what comes of it when it cannot be read."""

from __future__ import annotations

import pytest

from sdfstream.bus.journal import SNAPSHOT, Given, Journal, Moved, Snapshot
from sdfstream.errors import FormatError

PARTITION = ("sdf.raw.probe.v1", 3)


def test_calls_come_back_in_order_and_moves_in_a_row_are_one() -> None:
    journal, notes = Journal(), {}
    journal.given({PARTITION: 4}, {PARTITION: 9, ("sdf.state.nic.v1", 0): 0})
    journal.moved(100)
    journal.moved(200)
    notes |= journal.entry()
    journal.committed(mark=False)
    journal.given({PARTITION: 9}, {PARTITION: 9})
    assert journal.empty
    journal.moved(300)
    notes |= journal.entry()
    again = Journal()
    assert again.resume(notes) == [Given({PARTITION: 9, ("sdf.state.nic.v1", 0): 0}), Moved(200), Moved(300)]
    assert again.entries == 2, "the next entry stands behind them"


def test_a_journal_with_a_hole_makes_no_state() -> None:
    journal, notes = Journal(), {}
    for to_ns in (1, 2, 3):
        journal.moved(to_ns)
        notes |= journal.entry()
        journal.committed(mark=False)
    del notes[sorted(notes)[1]]
    with pytest.raises(FormatError):
        Journal().resume(notes)


def test_a_mark_begins_the_entries_anew() -> None:
    journal = Journal()
    journal.moved(1)
    journal.committed(mark=False)
    journal.moved(2)
    journal.committed(mark=True)
    journal.moved(3)
    (name,) = journal.entry()
    assert name.endswith("000000")


@pytest.mark.parametrize("state", [b"", b"a\nb\n" * 1000, bytes(range(256)) * 4096])
def test_snapshots_come_back(state: bytes) -> None:
    made = Snapshot("detect 0.1 abc", None, 7, state)
    assert Snapshot.unpack(made.pack()) == made


def test_a_note_that_is_no_snapshot_is_said_to_be_none() -> None:
    good = Snapshot("detect", 1, 2, b"x" * 10_000).pack()
    for bad in (b"", SNAPSHOT.encode(), good[:-3], good[:20], good.replace(b"sdf-snapshot-2", b"sdf-snapshot-3")):
        with pytest.raises(FormatError):
            Snapshot.unpack(bad)


def test_a_snapshot_with_another_byte_is_none() -> None:
    """Found by the fuzzer: a state with a flipped bit was taken up, or raised what nobody caught."""
    good = Snapshot("detect", 1, 2, bytes(range(256)) * 40).pack()
    assert Snapshot.unpack(good).state == bytes(range(256)) * 40
    for at in range(0, len(good), 7):
        spoilt = bytearray(good)
        spoilt[at] ^= 4
        with pytest.raises(FormatError, match="snapshot"):
            Snapshot.unpack(bytes(spoilt))
