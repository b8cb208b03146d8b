"""What sync takes for a host edge, and what it refuses."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.probes import phc
from sdfstream.records.hostclock import edges_in, paths_only
from sdfstream.sync import intake
from sdfstream.sync.delays import NO_PATH, DelayWindows, WindowRows

NOW = 1_800_000_000 * 10**9
EDGES = {f"h1/r{i}": phc.Sample(NOW + i, NOW + 37 * 10**9, NOW + 900 + i) for i in range(3)}


def batch(**changes: Any) -> pa.RecordBatch:
    """Three host edges of h1, columns replaced; None: null."""
    rows = phc.rows("h1", EDGES, {}, 7)
    for name, values in changes.items():
        index = rows.schema.get_field_index(name)
        column = pa.array(values)
        column = column.dictionary_encode() if pa.types.is_string(column.type) else column.cast(rows.schema[index].type)
        rows = rows.set_column(index, name, column)
    return rows


def test_edges_are_taken_in_both_directions() -> None:
    x, refused = intake.read(batch())
    assert not refused.any() and x.host.all() and x.forward.all() and x.reverse.all() and not x.lost.any()
    assert x.ends.row(0) == ("h1/r0", "h1/r0", "host", "h1", "h1/r0")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dst": ["h1/r0", "h1/r9", "h1/r2"]}, "host-edge"),
        ({"clock_dst": ["h1/r0", "h1", "h1/r2"]}, "host-edge"),
        ({"t4_ns": [NOW + 900, None, NOW + 902]}, "host-edge"),
        ({"clock_dst": ["h1/r0", "utc", "h1/r2"]}, "reserved-clock"),
        ({"clock_src": ["h1", "utc", "h1"]}, "reserved-clock"),
        ({"t4_ns": [NOW + 900, NOW - 1, NOW + 902]}, "negative-round-trip"),
    ],
)
def test_what_cannot_be_an_edge_is_refused_and_nothing_else_is_lost(changes: dict[str, Any], reason: str) -> None:
    x, refused = intake.read(batch(**changes))
    assert refused.tolist() == [0, 1 + intake.REASONS.index(reason), 0]
    assert x.row.tolist() == [0, 2] and x.host.tolist() == [True, True]


def test_paths_and_edges_in_one_batch_are_distinguished() -> None:
    mixed = batch(
        transport=["host", "udp", "host"], dst=["h1/r0", "h2/r0", "h1/r2"], clock_dst=["h1/r0", "h2", "h1/r2"]
    )
    x, refused = intake.read(mixed)
    assert not refused.any() and x.host.tolist() == [True, False, True]
    edges = edges_in(mixed)
    assert edges is not None and edges.tolist() == [True, False, True]
    assert paths_only(mixed).column("src").to_pylist() == ["h1/r1"]
    plain = batch(transport=["udp"] * 3)
    assert edges_in(plain) is None and paths_only(plain) is plain


def test_rows_without_a_path_have_no_window() -> None:
    no, yes = np.zeros(3, dtype=bool), np.ones(3, dtype=bool)
    path = np.array([NO_PATH, 4, NO_PATH])
    windows = DelayWindows()
    delay = np.full(3, 1.0)
    windows.put(WindowRows(np.full(3, 5), path, delay, delay, np.zeros(3), no, yes, yes), np.full(3, 5))
    (closed,) = windows.close(5)
    assert closed.path.tolist() == [4, 4] and closed.n.tolist() == [1, 1]
    windows.put(WindowRows(np.full(3, 6), np.full(3, NO_PATH), *([np.full(3, 1.0)] * 3), no, no, no), np.full(3, 6))
    assert windows.close(6) == []
