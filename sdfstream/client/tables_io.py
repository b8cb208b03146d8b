"""The archive's tables and views as polars frames.

Answers travel as Parquet, whose types polars takes over as they are: instants are ``datetime[ns, UTC]``, unknown is
null. What is too large for one answer is asked for in slices of the column ``bus_at``.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Final

import polars as pl

from sdfstream.archive.failures import EngineError
from sdfstream.archive.query_io import Console, has_format
from sdfstream.archive.sqltext import quoted
from sdfstream.client.choice import Choice, instant
from sdfstream.errors import ArchiveError, ConfigError
from sdfstream.records.units import NS_PER_S

SLICE_ROWS: Final = 250_000
"""Rows of a table that are asked for at once; a second that brought more comes in one piece all the same."""
_STATE: Final = "AggregateFunction"


class Tables:
    """Tables and views of an open archive."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._names: dict[str, str] = {}

    def names(self) -> dict[str, str]:
        """Table or view → what it holds; views first."""
        if not self._names:
            self._names = dict(self._console.catalogue())
        return self._names

    def sql(self, text: str) -> pl.DataFrame:
        """The rows of a statement.

        Raises
        ------
        ArchiveError
            The statement is wrong, or names a FORMAT of its own.
        """
        if has_format(text.strip().rstrip(";")):
            raise ArchiveError("a FORMAT clause has no place here: rows come as a polars frame")
        answer = self._console.text(text, "Parquet")
        return pl.read_parquet(io.BytesIO(answer)) if answer else pl.DataFrame()

    def schema_of(self, name: str) -> pl.Schema:
        """Columns of a table or view, as its frames have them.

        Raises
        ------
        ConfigError
            It holds states of aggregates, which nothing but the engine understands.
        """
        states = [column for column, kind in self._types(name).items() if kind.startswith(_STATE)]
        if states:
            raise ConfigError(f"{name} holds unfinished aggregates ({', '.join(states)}); export its view instead")
        return self.sql(f"SELECT * FROM {quoted(name)} LIMIT 0").schema

    def frames(self, name: str, choice: Choice) -> Iterator[pl.DataFrame]:
        """The chosen rows of a table or view, a slice at a time.

        Raises
        ------
        ConfigError
            It has no column for what is chosen.
        """
        types = self._types(name)
        where = choice.sql(name, types)
        order = ", ".join(quoted(column) for column in ("bus_at", "bus_seq") if column in types)
        for span in self._slices(name, where) if "bus_at" in types else [""]:
            conditions = " AND ".join(f"({one})" for one in (where, span) if one)
            yield self.sql(
                f"SELECT * FROM {quoted(name)}"
                + (f" WHERE {conditions}" if conditions else "")
                + (f" ORDER BY {order}" if order else "")
            )

    def _types(self, name: str) -> dict[str, str]:
        try:
            described = self.sql(f"DESCRIBE TABLE {quoted(name)}")
        except EngineError as error:
            raise ConfigError(f"{name}: {error}") from error
        return dict(zip(described["name"], described["type"], strict=True))

    def _slices(self, name: str, where: str) -> Iterator[str]:
        """Conditions on ``bus_at`` that part the rows, in order."""
        counted = self.sql(
            f"SELECT toInt64(toUnixTimestamp(bus_at)) AS second, count() AS n FROM {quoted(name)}"
            + (f" WHERE {where}" if where else "")
            + " GROUP BY second ORDER BY second"
        )
        begin, rows = None, 0
        for second, n in counted.iter_rows():
            if begin is not None and rows + n > SLICE_ROWS:
                yield _span(begin, second)
                begin, rows = second, 0
            begin, rows = second if begin is None else begin, rows + n
        if begin is not None:
            yield _span(begin, counted["second"][-1] + 1)


def _span(begin_s: int, end_s: int) -> str:
    return f"bus_at >= {instant(begin_s * NS_PER_S)} AND bus_at < {instant(end_s * NS_PER_S)}"
