"""Which rows of a topic, table or view are wanted: a span of time, NICs, jobs.

A row names a NIC when one of its columns does: an end of a path, a port of the NIC (``h00/r0:1``), a queue pair of it
(``h00/r0#2``), the subject of a finding. In the topics that are JSON any text of the payload may name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from sdfstream.archive.sqltext import literal, quoted
from sdfstream.errors import ConfigError
from sdfstream.records.message import Event, Message

TIME_COLUMNS: Final = (
    "bus_at", "at", "t1", "sent_at", "second", "minute", "hour", "seen_at", "since_at", "traced_at", "last_at",
    "issued_at", "system_at",
)  # fmt: skip
"""Of tables and views, the first that is there says when a row was; topics go by ``bus_at_ns``."""
NIC_COLUMNS: Final = ("src", "dst", "nic", "port", "qp", "nics", "subject_id", "target", "target_id")
JOB_COLUMNS: Final = ("job", "jobs")
_OF_NIC: Final = (":", "#")
"""What stands between a NIC's id and its port, or its queue pair."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Rows from `since_ns` to before `until_ns` that name one of `nics` and one of `jobs`; None and (): any."""

    since_ns: int | None = None
    until_ns: int | None = None
    nics: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()

    @classmethod
    def where(cls, since_ns: int | None, until_ns: int | None, conditions: Sequence[str]) -> Choice:
        """As people type it: ``nic=h00/r0``, ``job=train-7``; several of a kind: any of them.

        Raises
        ------
        ConfigError
            With a sentence.
        """
        named: dict[str, list[str]] = {"nic": [], "job": []}
        for condition in conditions:
            kind, equals, name = condition.partition("=")
            if kind not in named or not equals or not name:
                raise ConfigError(f"--where {condition}: write nic=HOST/NIC or job=NAME")
            named[kind].append(name)
        if since_ns is not None and until_ns is not None and until_ns <= since_ns:
            raise ConfigError("--until is not later than --since")
        return cls(since_ns, until_ns, tuple(named["nic"]), tuple(named["job"]))

    def spans(self, message: Message) -> bool:
        """Whether `message` entered the bus within the span."""
        after = self.since_ns is None or message.bus_at_ns >= self.since_ns
        return after and (self.until_ns is None or message.bus_at_ns < self.until_ns)

    def names(self, event: Event) -> bool:
        """Whether the payload of `event` names what is asked for."""
        return all(
            not wanted or any(matches(text, one) for text in found for one in wanted)
            for wanted, found, matches in (
                (self.nics, _texts(event.data), _is_of_nic),
                (self.jobs, _jobs_in(event.data), str.__eq__),
            )
        )

    def rows(self, topic: str, columns: Sequence[str]) -> pl.Expr | None:
        """The rows of a bulk topic's frame; None: all.

        Raises
        ------
        ConfigError
            No column of the topic could name it.
        """
        asked = [
            pl.any_horizontal([match(pl.col(c), one) for c in present for one in wanted])
            for wanted, present, match in (
                (self.nics, _present(topic, "NIC", NIC_COLUMNS, columns, self.nics), _nic_in_column),
                (self.jobs, _present(topic, "job", JOB_COLUMNS, columns, self.jobs), _equals),
            )
            if wanted
        ]
        return pl.all_horizontal(asked) if asked else None

    def sql(self, table: str, types: Mapping[str, str]) -> str:
        """The same as a condition in SQL, for a table or view with these columns; empty: all rows.

        Raises
        ------
        ConfigError
            No column could name it, or says when a row was.
        """
        columns = list(types)
        asked = []
        for what, wanted, candidates, match in (
            ("NIC", self.nics, NIC_COLUMNS, _nic_in_sql),
            ("job", self.jobs, JOB_COLUMNS, _name_in_sql),
        ):
            present = _present(table, what, candidates, columns, wanted)
            if wanted:
                asked.append(" OR ".join(match(column, types[column], one) for column in present for one in wanted))
        return " AND ".join(f"({condition})" for condition in [*self._span_in_sql(table, columns), *asked])

    def _span_in_sql(self, table: str, columns: Sequence[str]) -> Iterator[str]:
        if self.since_ns is None and self.until_ns is None:
            return
        column = time_column(columns)
        if column is None:
            raise ConfigError(f"{table} has no column of time, so --since and --until mean nothing there")
        if self.since_ns is not None:
            yield f"{quoted(column)} >= {instant(self.since_ns)}"
        if self.until_ns is not None:
            yield f"{quoted(column)} < {instant(self.until_ns)}"


def time_column(columns: Sequence[str]) -> str | None:
    """The column that says when a row was; None: none does.

    >>> time_column(["src", "minute"])
    'minute'
    """
    return next((column for column in TIME_COLUMNS if column in columns), None)


def instant(at_ns: int) -> str:
    """An instant in SQL."""
    return f"fromUnixTimestamp64Nano(toInt64({at_ns}), 'UTC')"


def _present(of: str, what: str, candidates: Sequence[str], columns: Sequence[str], wanted: Sequence[str]) -> list[str]:
    present = [column for column in candidates if column in columns]
    if wanted and not present:
        raise ConfigError(f"{of} has no column that names a {what}")
    return present


def _is_of_nic(text: str, nic: str) -> bool:
    return text == nic or any(text.startswith(nic + mark) for mark in _OF_NIC)


def _nic_in_column(column: pl.Expr, nic: str) -> pl.Expr:
    starts = [column.str.starts_with(nic + mark) for mark in _OF_NIC]
    return pl.any_horizontal(_equals(column, nic), *starts)


def _equals(column: pl.Expr, name: str) -> pl.Expr:
    return (column == name).fill_null(False)


def _nic_in_sql(column: str, kind: str, nic: str) -> str:
    starts = [f"startsWith({quoted(column)}, {literal(nic + mark)})" for mark in _OF_NIC]
    return " OR ".join([_name_in_sql(column, kind, nic), *(starts if not kind.startswith("Array") else [])])


def _name_in_sql(column: str, kind: str, name: str) -> str:
    return (
        f"has({quoted(column)}, {literal(name)})" if kind.startswith("Array") else f"{quoted(column)} = {literal(name)}"
    )


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _jobs_in(data: Mapping[str, Any]) -> Iterator[str]:
    """The jobs that a payload speaks of: its own, those of a finding, and a subject that is one."""
    yield from _texts(data.get("job"))
    yield from _texts(data.get("jobs"))
    for name in ("subject", "target"):
        inner = data.get(name)
        if isinstance(inner, Mapping):
            yield from _texts(inner.get("job"))
            if inner.get("type") == "job":
                yield from _texts(inner.get("id"))
