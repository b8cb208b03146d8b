"""Ports, pure part: the readings of a port by several sources become one row of ``sdf.raw.port.v1``.

A source (a sysfs folder, an rtnetlink answer, an ethtool answer, a module's EEPROM) yields one `PortReading`;
`combine` joins the readings of a port by precedence; `rows` makes the record batch. Rules that hold everywhere:

- a value that is absent, odd, saturated or a driver's "not known" is null, never 0, and each odd one is counted
  under its column and reason; a file that is simply not there is not odd;
- a column keeps the source it came from until the port vanishes, because the same quantity of two sources
  differs by a constant and a change of source would look like a burst (or a reset) of the counter;
- no state is guessed: a port that cannot be read is ``unknown``, one that is not there is ``absent``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from sdfstream.errors import FormatError
from sdfstream.records import arrow
from sdfstream.records.columns import build
from sdfstream.records.topics import PORT
from sdfstream.stats import Counters

State = Literal["up", "down", "disabled", "absent", "unknown"]

NOT_KNOWN_32: Final = 0xFFFF_FFFF
"""Written by drivers for "not known" (SPEED_UNKNOWN); the value at which 32-bit IB counters saturate."""
NOT_SET_64: Final = 0xFFFF_FFFF_FFFF_FFFF
"""ETHTOOL_STAT_NOT_SET of the kernel."""


@dataclass(slots=True)
class PortReading:
    """State and counters of one port by one source."""

    source: str
    state: State = "unknown"
    values: dict[str, int | float] = field(default_factory=dict)
    """By column of the topic, without those that are not known."""


class PortRow(NamedTuple):
    """One row before it becomes Arrow."""

    nic: str
    port: int
    """Port number, from 1."""
    state: State
    values: Mapping[str, int | float]


def count(text: str, bits: int = 64) -> int:
    r"""A counter from a file's text.

    Parameters
    ----------
    text : str
        Content of the file.
    bits : int
        Width of the hardware counter. InfiniBand's port counters stop at their largest value instead of wrapping
        (IBTA vol. 1, 16.1.3.5), so that value says "at least", which is no count.

    Raises
    ------
    FormatError
        ``empty``, ``not-available``, ``not-a-number``, ``negative``, ``saturated``, ``not-known`` or ``too-large``.

    Examples
    --------
    >>> count("17\n")
    17
    """
    word = text.strip(" \t\r\n")  # strip() alone would take control characters for blanks, and int() not
    if not word:
        raise FormatError("empty")
    if word[:3].upper() == "N/A":
        raise FormatError("not-available", word[:40])
    digits = word.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):  # int() would also take "1_0", "+1" and digits of other scripts
        raise FormatError("not-a-number", word[:40])
    if word[0] == "-":
        raise FormatError("negative", word[:40])
    if len(digits) > 20:
        raise FormatError("too-large", word[:40])
    number = int(digits)
    if number in (NOT_KNOWN_32, NOT_SET_64):
        raise FormatError("not-known", word)
    if number >= (1 << bits) - 1:
        raise FormatError("saturated" if bits < 32 else "too-large", word)
    return number


def combine(readings: Sequence[PortReading], sources: dict[str, str]) -> dict[str, int | float]:
    """Values of `readings`, first source first; `sources` (column to source) binds each column to its first source."""
    values: dict[str, int | float] = {}
    for reading in readings:
        for column, value in reading.values.items():
            if column not in values and sources.setdefault(column, reading.source) == reading.source:
                values[column] = value
    return values


def state_of(readings: Sequence[PortReading]) -> State:
    """The first state that is not ``unknown``."""
    return next((r.state for r in readings if r.state != "unknown"), "unknown")


def put(reading: PortReading, refused: Counters, column: str, number: int, bits: int = 64) -> None:
    """Take a binary counter of `bits` into `reading`, or count why not."""
    if 0 <= number < (1 << bits) - 1:
        reading.values[column] = number
    else:
        refused.add("refused", f"{column}.not-known")


_SCHEMA: Final[pa.Schema] = PORT.columns
_COLUMNS: Final = [f for f in _SCHEMA if f.name not in ("at_ns", "host", "nic", "port", "state")]


def rows(host: str, at_ns: int, ports: Sequence[PortRow]) -> pa.RecordBatch | None:
    """The record batch of one reading of a host's ports; None when there are none.

    Parameters
    ----------
    host : str
        The agent's host.
    at_ns : int, ns since the Unix epoch, the host's clock
        Instant of the reading.
    ports : sequence of PortRow
    """
    if not ports:
        return None
    columns = {f.name: arrow.numbers([p.values.get(f.name) for p in ports], f.type) for f in _COLUMNS}
    return build(
        _SCHEMA,
        {
            "at_ns": np.full(len(ports), at_ns, np.int64),
            "host": [host] * len(ports),
            "nic": [p.nic for p in ports],
            "port": [f"{p.nic}:{p.port}" for p in ports],
            "state": [p.state for p in ports],
            **columns,
        },
    )
