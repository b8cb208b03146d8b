"""Sums of queue pairs second by second: what no window can have is left out of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.board.rates import RateTable
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters
from tests.fixtures.job_messages import World


@pytest.mark.parametrize(("column", "value"), [("bytes", 1 << 62), ("bytes", (1 << 40) + 1), ("window_ns", 1 << 62)])
def test_a_row_that_counts_what_no_window_has_is_refused(column: str, value: int) -> None:
    """Sums of such are whole numbers beyond 64 bits, which no reader of `status` takes."""
    message = World().windows("train-7", -5, 0, 100e6)[0]
    batch: pa.RecordBatch = message.body  # type: ignore[assignment]
    at = batch.schema.get_field_index(column)
    altered = batch.column(at).to_numpy(zero_copy_only=False).copy()
    altered[0] = np.array(value).astype(altered.dtype)
    counters, whole = Counters("board"), RateTable(Counters("board"))
    table = RateTable(counters)
    whole.take(batch, message.bus_at_ns)
    table.take(batch.set_column(at, batch.schema.field(at), pa.array(altered)), message.bus_at_ns)
    assert counters.get("refused", "qp.range") == 1
    assert table.job("train-7").column("chunks").sum() < whole.job("train-7").column("chunks").sum()
    assert table.job("train-7").seconds.tolist() == whole.job("train-7").seconds.tolist()
    assert abs(table.job("train-7").seconds[0] * NS_PER_S) < 1 << 62
