"""A driver's own counters (``ethtool -S``): the names that make each column.

Pause frames per priority (PFC) and what a port dropped for want of buffer are in no standard statistic, only under
names that every driver chooses. The names here are those of mlx5, mlx4, ice, i40e and bnxt_en; a driver with
none of them simply has nothing to add.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from sdfstream.probes.ports.reading import NOT_SET_64, PortReading

_PAUSE: Final = (
    # mlx5, mlx4: one name per priority with flow control, and one for pause without priority
    r"{dir}_prio\d_pause|{dir}_global_pause|{dir}_pause_prio_\d|{dir}_pause"
    # ice, i40e
    r"|(port\.)?{dir}_priority_\d_xoff(\.nic)?|(port\.)?link_xoff_{dir}(\.nic)?"
    # bnxt_en
    r"|{dir}_pfc_frames|{dir}_pause_frames"
)
_MEANING: Final[dict[str, re.Pattern[str]]] = {
    # column: names whose values are summed
    "rx_pause": re.compile(_PAUSE.replace("{dir}", "rx")),
    "tx_pause": re.compile(_PAUSE.replace("{dir}", "tx")),
    "rx_discards": re.compile(r"rx_discards_phy|rx_out_of_buffer"),
    "tx_discards": re.compile(r"tx_discards_phy"),
    "link_downed": re.compile(r"link_down_events_phy"),
}

CounterIndexes = Mapping[str, tuple[int, ...]]
"""Column to the indexes of its counters."""


def counter_indexes(names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Which of a driver's counters make which column; columns without any are left out.

    >>> counter_indexes(["rx_packets", "rx_prio0_pause", "rx_prio3_pause", "link_down_events_phy"])
    {'rx_pause': (1, 2), 'link_downed': (3,)}
    """
    found = {c: tuple(i for i, n in enumerate(names) if p.fullmatch(n)) for c, p in _MEANING.items()}
    return {column: indexes for column, indexes in found.items() if indexes}


def driver_reading(indexes_of: CounterIndexes, values: Sequence[int]) -> PortReading:
    """Sums of a driver's counters; a column with a counter that is not set or not there is left out."""
    reading = PortReading("driver")
    for column, indexes in indexes_of.items():
        counts = [values[i] for i in indexes if i < len(values)]
        if len(counts) == len(indexes) and NOT_SET_64 not in counts and sum(counts) < NOT_SET_64:
            reading.values[column] = sum(counts)
    return reading
