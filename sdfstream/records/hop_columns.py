"""Columns of ``sdf.derived.hop.v1``."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from sdfstream.records.field import NAME, column

HOP_COLUMNS: Final = pa.schema(
    [
        column("at_ns", pa.int64(), "begin of the span", unit="ns since epoch, reference time"),
        column("window_ns", pa.int64(), "length of the span", unit="ns"),
        column("link", NAME, "link id a--b; NIC id where its cable is not declared"),
        column("direction", NAME, "a->b; host/nic tx or rx where its cable is not declared"),
        column("speed_bps", pa.float64(), "declared speed", unit="bit/s", null=True),
        column("queue_ns", pa.float64(), "queueing delay, mean of the span", unit="ns", null=True),
        column("queue_err_ns", pa.float64(), "its standard error", unit="ns", null=True),
        column(
            "queue_bytes",
            pa.float64(),
            "queueing delay × rate at which it drains",
            unit="bytes",
            null=True,
        ),
        column("paths", pa.uint32(), "directed probe paths behind it"),
        column("utilisation", pa.float64(), "share of the speed in use, mean", unit="1", null=True),
        column("utilisation_err", pa.float64(), "its standard error", unit="1", null=True),
        column("utilisation_at_ns", pa.int64(), "from when it is", unit="ns since epoch, reference time", null=True),
        column("utilisation_window_ns", pa.int64(), "over how long", unit="ns", null=True),
        column("utilisation_by", NAME, "ports: counters of the host's port; flows: queue pairs' bytes", null=True),
    ]
)
