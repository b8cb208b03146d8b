"""Rows on disk: what a file says of itself, how much there may be, and what is not one of them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdfstream.archive import insert_file
from sdfstream.archive.config import ArchiveConfig
from sdfstream.archive.disk_io import RealDisk, put
from sdfstream.archive.failed_inserts_io import FailedInserts
from sdfstream.archive.failures import EngineError
from sdfstream.archive.insert_file import TableInsert
from sdfstream.archive.insert_io import Inserter, build_inserts
from sdfstream.archive.intent import Intent, Span
from sdfstream.archive.spill_io import Spill
from sdfstream.errors import FormatError
from sdfstream.records.topics import CLOCK, NIC
from sdfstream.stats import Counters
from tests.fixtures.archive import EVENTS, bulk, event, message

INTENT = Intent(CLOCK.name, "bus-1/t", 5, {0: Span(-1, 4, ((0, 4),))}, 17)
ROWS = pa.table({"a": np.arange(5), "name": pa.array(list("xyxyx")).dictionary_encode()})
INSERTS = [TableInsert("state_clock", ROWS, "bus-1/t"), TableInsert("reject", ROWS.slice(0, 2), "bus-1/t/reject")]


def _spill(folder: Path, limit: int = 1 << 20) -> tuple[Spill, Counters]:
    counters = Counters("archive")
    return Spill(folder, limit, RealDisk(), counters), counters


def test_what_is_spilled_is_found_again_in_order(tmp_path) -> None:
    spill, _ = _spill(tmp_path / "spill")
    names = [spill.put(INSERTS, INTENT, "bus-1", only=number % 2 == 0) for number in range(3)]
    again, counters = _spill(tmp_path / "spill")
    found = again.scan()
    assert [f.name for f in found] == names
    assert [f.only for f in found] == [True, False, True]
    assert all((f.intent, f.bus_id) == (INTENT, "bus-1") for f in found)
    assert again.bytes == spill.bytes == sum(p.stat().st_size for p in (tmp_path / "spill").iterdir())
    for one, other in zip(again.read(names[0]), INSERTS, strict=True):
        assert (one.table, one.token) == (other.table, other.token)
        assert one.rows.equals(other.rows)
    fourth = again.put(INSERTS, INTENT, "bus-1", only=True)
    assert fourth > max(names)
    for name in (*names, fourth):
        again.remove(name)
    assert (again.bytes, again.files, counters.values) == (0, 0, {})


def test_the_spill_is_bounded_unless_rows_would_be_lost(tmp_path) -> None:
    spill, counters = _spill(tmp_path / "spill", limit=100)
    assert spill.put(INSERTS, INTENT, "bus-1", only=True) is None
    assert counters.get("spill-full") == 1
    assert spill.put(INSERTS, INTENT, "bus-1", only=True, beyond=True) is not None


def test_a_disk_that_refuses_is_a_spill_that_is_full(tmp_path) -> None:
    (tmp_path / "spill").write_text("not a folder")
    spill, counters = _spill(tmp_path / "spill")
    assert spill.put(INSERTS, INTENT, "bus-1", only=True) is None
    assert counters.get("spill-full") == 1


def test_what_is_no_file_of_ours_is_set_aside_and_unfinished_files_are_removed(tmp_path) -> None:
    folder = tmp_path / "spill"
    spill, counters = _spill(folder)
    name = spill.put(INSERTS, INTENT, "bus-1", only=True)
    whole = (folder / name).read_bytes()
    (folder / "0000000007-x.arrows").write_bytes(b"junk")
    put(
        RealDisk(),
        folder / "0000000008-x.arrows",
        insert_file.encode(INSERTS, {"intent": "{}", "bus": "b", "only": "1"}),
    )
    (folder / "0000000009-x.arrows.part").write_bytes(whole)
    assert [f.name for f in spill.scan()] == [name]
    assert counters.get("spill-damaged") == 2
    assert sorted(p.suffix for p in folder.iterdir()) == [".arrows", ".damaged", ".damaged"]
    assert spill.bytes == len(whole)


calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=150)
WHOLE = insert_file.encode(INSERTS, {}).to_pybytes()


@calm
@given(st.binary(max_size=60) | st.integers(0, len(WHOLE) - 1).map(lambda n: WHOLE[:n]))
def test_a_file_that_is_not_whole_is_refused(data: bytes) -> None:
    try:
        found = insert_file.decode(io.BytesIO(data))
    except FormatError as error:
        assert error.reason == "sheet"
    else:  # only the mark of its end is missing
        assert len(WHOLE) - len(data) <= 8
        assert [s.rows for s in found] == [s.rows for s in INSERTS]


def test_a_file_cut_between_its_inserts_is_refused() -> None:
    first = len(insert_file.encode(INSERTS[:1], {"sheets": "2"}))
    for cut in range(first - 20, first + 20):
        with pytest.raises(FormatError, match="sheet"):
            insert_file.decode(io.BytesIO(WHOLE[:cut]))


def test_failed_inserts_are_stored_up_to_a_limit(tmp_path) -> None:
    stored = FailedInserts(tmp_path / "kept", 6000)
    path = stored.store(INSERTS[0], "refused")
    assert stored.store(INSERTS[0], "refused") == path, "the same insert again takes no more room"
    with pytest.raises(OSError, match="kept_bytes"):
        for number in range(10):
            stored.store(TableInsert("state_clock", ROWS, f"other {number}"), "refused")
    assert stored.read(path).reason == "refused"


class Refuses:
    """An engine that takes the main table's rows and is away for `reject`."""

    def __init__(self) -> None:
        self.took: list[str] = []

    def insert(self, table, rows, token) -> None:
        if table == "reject" and len(self.took) < 2:
            self.took.append("-")
            raise EngineError("gone")
        self.took.append(table)

    def command(self, sql: str) -> None:
        return None


def test_what_was_acknowledged_of_an_insert_is_not_sent_again(tmp_path) -> None:
    sent = [event(NIC, EVENTS[NIC.name], 0), event(NIC, {"nic": "x"}, 1)]
    what = build_inserts(Intent(NIC.name, "t", 2, {}), sent, "bus-1")
    engine, counters = Refuses(), Counters("archive")
    inserter = Inserter(engine, FailedInserts(tmp_path, 1 << 20), counters)
    with pytest.raises(EngineError):
        inserter.insert(what.inserts)
    inserter.insert(what.inserts)
    inserter.count_refused(what)
    assert engine.took == ["state_nic", "-", "reject"]
    assert counters.get("rows", "state_nic") == counters.get("rows", "reject") == 1
    assert counters.get("refused", "field-missing") == 1


def test_default_folders_lie_beside_the_target() -> None:
    assert FailedInserts.of(ArchiveConfig("data/archive/", "b")).folder == Path("data/archive-kept")
    assert FailedInserts.of(ArchiveConfig("http://h/", "b")).folder == Path("sdfstream-kept")


def test_the_same_messages_give_the_same_rows_however_often_they_are_built() -> None:
    sent = [message(CLOCK, bulk(CLOCK, 9, np.random.default_rng(i)), i) for i in range(4)]
    one, other = (build_inserts(INTENT, sent, "bus-1").inserts[0].rows for _ in range(2))
    assert one.equals(other)
