"""The table of a topic, and the names and stored forms of its columns.

The rules are mechanical, so that a new column of a topic needs one line in a migration and nothing here:

- ``sdf.raw.probe.v1`` → ``raw_probe``; a later version keeps its number: ``sdf.raw.probe.v2`` → ``raw_probe_v2``.
- An instant (unit "ns since epoch") ``at_ns`` is stored as ``at DateTime64(9, 'UTC')``; ``at_ns`` is an ALIAS of it.
- The stamps and host delays of a probe are split into columns that compress (`packing`), exactly.
- The instants of a chunk of ``raw_qp`` are stored as their difference to sent_at, for the same reason.
- Delays in ``derived_owd`` and ``derived_qp`` are rounded to 1/16 ns, far below any error bar (an owd row takes 14
  instead of 37 bytes).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from sdfstream.records.topics import OWD, PROBE, QP, QP_WINDOW, Topic

INSTANT: Final = pa.timestamp("ns", "UTC")
"""Arrow's form of DateTime64(9, 'UTC'); the int64 inside is ns since the Unix epoch."""

REJECT_TABLE: Final = "reject"

OWD_STEPS_PER_NS: Final = 16


def table_of(topic: str) -> str:
    """The table of a topic.

    >>> table_of("sdf.state.clock.v1"), table_of("sdf.raw.probe.v2")
    ('state_clock', 'raw_probe_v2')
    """
    _, kind, entity, version = topic.split(".")
    return f"{kind}_{entity}" if version == "v1" else f"{kind}_{entity}_{version}"


def is_instant(field: pa.Field) -> bool:
    """Whether a column of a topic is an instant (and not a duration), by its unit."""
    unit: bytes = (field.metadata or {}).get(b"unit", b"")
    return unit.startswith(b"ns since epoch")


_PACKED: Final = ("t1_ns", "t2_ns", "t3_ns", "t4_ns", "tx_host_ns", "rx_host_ns")

_DIFFERENCES: Final = {
    QP.name: {f"{what}_at_ns": ("sent_at_ns", f"{what}_after_ns") for what in ("arrived", "completed", "acknowledged")},
}
"""By topic and column: the instant that it is stored as a difference to, and the stored column's name."""


def base_of(topic: Topic, field: pa.Field) -> str | None:
    """The column that this one is stored as a difference to; None: it is stored as it is."""
    base, _ = _DIFFERENCES.get(topic.name, {}).get(field.name, (None, ""))
    return base


def packed_fields(topic: Topic) -> tuple[str, ...]:
    """The columns of a topic that `packing` splits, in the order of `packing.probe_columns`."""
    return _PACKED if topic.name == PROBE.name else ()


def is_rounded(topic: Topic, field: pa.Field) -> bool:
    """Whether the column is stored rounded to 1/`OWD_STEPS_PER_NS` ns."""
    return topic.name in (OWD.name, QP_WINDOW.name) and bool(field.type == pa.float64())


def stored_name(topic: Topic, field: pa.Field) -> str:
    """The name of the stored column: ``at_ns`` → ``at``, ``arrived_at_ns`` → ``arrived_after_ns``, ``n`` → ``n``."""
    name: str = field.name
    if name in _DIFFERENCES.get(topic.name, {}):
        return _DIFFERENCES[topic.name][name][1]
    return name.removesuffix("_ns") if is_instant(field) else name
