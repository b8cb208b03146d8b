"""Probe rows from columns: what agents publish, built by the twin and by the tests' small fabrics alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.topics import PROBE
from sdfstream.records.units import ABSENT_NS, Bools, Ecn, StampKind

PROBE_BYTES = 128


def probe_batch(
    names: Mapping[str, Any], rows: Mapping[str, Any], answered: Bools, plane: Any = None
) -> pa.RecordBatch:
    """Rows of ``sdf.raw.probe.v1``.

    Parameters
    ----------
    names : mapping
        src, dst, clock_src, clock_dst, transport: name columns.
    rows : mapping of (n,) arrays
        path, seq, t1_ns..t4_ns (each on its end's clock), dscp_sent, dscp_fwd, dscp_rev, ce_fwd, ce_rev. What is not
        known of an unanswered probe is left out here. size_bytes where not all are `PROBE_BYTES`; seq_rev where it is
        known.
    answered : (n,) bool
    """
    n = answered.size
    kinds = np.where(answered, StampKind.KERNEL, StampKind.NONE).astype(np.uint8)
    every = bool(answered.all())

    def seen(values: Any) -> Any:
        plain = np.asarray(values).astype(np.uint8)
        return plain if every else columns.nullable(plain, answered, pa.uint8())

    def number(values: Any) -> Any:
        return columns.nullable(np.asarray(values).astype(np.uint32), answered, pa.uint32())

    def instant(values: Any) -> Any:
        return values if every else np.where(answered, values, ABSENT_NS)

    return columns.build(
        PROBE.columns,
        {
            **names,
            "path": np.asarray(rows["path"], np.uint32),
            "seq": np.asarray(rows["seq"]).astype(np.uint32),
            "t1_ns": rows["t1_ns"],
            **{name: instant(rows[name]) for name in ("t2_ns", "t3_ns", "t4_ns")},
            "t1_kind": np.full(n, StampKind.KERNEL, np.uint8),
            **dict.fromkeys(("t2_kind", "t3_kind", "t4_kind"), kinds),
            "dscp_sent": np.asarray(rows["dscp_sent"]).astype(np.uint8),
            "ecn_sent": np.full(n, Ecn.ECT0, np.uint8),
            "dscp_fwd": seen(rows["dscp_fwd"]),
            "ecn_fwd": seen(Ecn.ECT0 + np.asarray(rows["ce_fwd"], np.uint8)),
            "dscp_rev": seen(rows["dscp_rev"]),
            "ecn_rev": seen(Ecn.ECT0 + np.asarray(rows["ce_rev"], np.uint8)),
            "size_bytes": np.full(n, rows.get("size_bytes", PROBE_BYTES), np.uint16),
            **({} if plane is None else {"plane": plane}),
            **({"seq_rev": number(rows["seq_rev"])} if "seq_rev" in rows else {}),
        },
    )


def same(name: str, rows: int) -> pa.Array:
    """A name column that holds `name` in each row."""
    return columns.name_column(np.zeros(rows, np.int32), [name])


def path_change(
    session: tuple[str, str, int, int], role: str, state: str, since_at_ns: int, interval_ns: int, missed: int
) -> dict[str, Any]:
    """An entry of a liveness message's ``changes``; `session` is (src, dst, path, dscp)."""
    src, dst, port, dscp = session
    return {
        "observer": src if role == "sender" else dst,
        "role": role,
        "src": src,
        "dst": dst,
        "transport": "udp",
        "path": port,
        "dscp": dscp,
        "state": state,
        "since_at_ns": since_at_ns,
        "interval_ns": interval_ns,
        "missed": missed,
    }


def route_data(
    session: tuple[str, str, int, int], direction: str, hops: Sequence[str | None], traced_at_ns: int
) -> dict[str, Any]:
    """Data of ``sdf.state.topology.path.v1``."""
    src, dst, port, dscp = session
    return {
        "src": src,
        "dst": dst,
        "transport": "udp",
        "path": port,
        "dscp": dscp,
        "dir": direction,
        "hops": list(hops),
        "complete": None not in hops,
        "traced_at_ns": traced_at_ns,
    }
