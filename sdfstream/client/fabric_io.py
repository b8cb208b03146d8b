"""`Fabric`: what was measured and found, as polars frames; of a recording, a bus, an archive, or all three."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, TypeAlias

import polars as pl
from polars.io.plugins import register_io_source

from sdfstream.archive.query_io import Console
from sdfstream.archive.server_password_io import with_password
from sdfstream.archive.sqltext import literal
from sdfstream.bus.codec import topic_of
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.client import frames
from sdfstream.client.choice import Choice
from sdfstream.client.tables_io import Tables
from sdfstream.client.topics_io import Topics, topics_of
from sdfstream.errors import ConfigError
from sdfstream.records.units import NS_PER_S, NS_PER_US

Instant: TypeAlias = int | str | datetime
"""ns since the Unix epoch, ISO 8601 text (UTC where it says no zone), or a datetime."""
Step: TypeAlias = Literal["1s", "1m", "1h"]
Seen: TypeAlias = Callable[[Iterator[pl.DataFrame]], Iterator[pl.DataFrame]]
_TOPIC: Final = "sdf."
_ALL: Final = Choice()
_STEPS: Final[dict[str, tuple[str, str]]] = {
    "1s": ("v_path_1s", "second"),
    "1m": ("v_path_1m", "minute"),
    "1h": ("v_path_1h", "hour"),
}


class Fabric:
    """Topics and archive of one fabric.

    Parameters
    ----------
    data : path
        Data folder of ``sdfstream up``, ``demo`` or ``replay``: SQL goes to the pipeline that runs on it, else to its
        archive; topics are those recorded in it.
    recording : path, optional
        Where topics are read instead.
    bus : str, optional
        ``kafka://HOST:PORT``, where topics are read instead.
    kafka : KafkaConfig, optional
        How the brokers are reached.
    url : str, optional
        A ClickHouse server where SQL is asked instead: ``http://user@host:8123/database``.
    password_file : path, optional
        Password of the user in `url`; default: the environment's SDFSTREAM_SQL_PASSWORD.

    Notes
    -----
    Nothing is opened before it is used. chDB lets a process have one archive open at a time: close, or use ``with``.
    """

    def __init__(
        self,
        data: str | Path = "sdfstream-data",
        *,
        recording: str | Path | None = None,
        bus: str | None = None,
        kafka: KafkaConfig | None = None,
        url: str | None = None,
        password_file: Path | None = None,
    ) -> None:
        self._data = Path(data)
        self._recording = None if recording is None else Path(recording)
        self._bus = bus
        self._kafka = kafka
        self._url = None if url is None else with_password(url, password_file)
        self._opened_topics: Topics | None = None
        self._console: Console | None = None
        self._opened_tables: Tables | None = None

    def topics(self) -> tuple[str, ...]:
        """Names of the topics that can be read."""
        return self._topics().names()

    def tables(self) -> pl.DataFrame:
        """Name and meaning of the archive's views and tables."""
        known = self._tables().names()
        return pl.DataFrame({"name": list(known), "doc": list(known.values())})

    def sql(self, text: str) -> pl.DataFrame:
        """The rows of a statement in ClickHouse's SQL; tables and views: ``schemas/clickhouse/README.md``."""
        return self._tables().sql(text)

    def topic(
        self, name: str, *, since: Instant | None = None, until: Instant | None = None, nic: str = "", job: str = ""
    ) -> pl.DataFrame:
        """A topic's rows that entered the bus from `since` to before `until`, about `nic` and `job`, in memory."""
        return self.scan(name, choice=_choice(since, until, nic, job)).collect()

    def table(
        self, name: str, *, since: Instant | None = None, until: Instant | None = None, nic: str = "", job: str = ""
    ) -> pl.DataFrame:
        """A table's or view's rows in memory, chosen as by `topic`."""
        return self.scan(name, choice=_choice(since, until, nic, job)).collect()

    def scan(self, name: str, *, choice: Choice = _ALL, seen: Seen = iter) -> pl.LazyFrame:
        """A topic, table or view for polars to read as it needs it: a second's rows at a time, never all at once.

        Raises
        ------
        ConfigError
            There is no such name (the message says which there are), or it has no column for what is chosen.
        """
        self.check_name(name)
        self.check_choice(name, choice)
        schema = frames.schema_of(topic_of(name)) if name.startswith(_TOPIC) else self._tables().schema_of(name)

        def read(
            columns: list[str] | None, predicate: pl.Expr | None, most_rows: int | None, _: int | None
        ) -> Iterator[pl.DataFrame]:
            left = most_rows
            for frame in seen(self._frames(name, choice)):
                chosen = frame if predicate is None else frame.filter(predicate)
                chosen = chosen if columns is None else chosen.select(columns)
                if left is not None:
                    chosen = chosen.head(left)
                    left -= chosen.height
                yield chosen
                if left == 0:
                    return

        return register_io_source(read, schema=schema)

    def findings(self, status: Literal["open", "resolved"] | None = None) -> pl.DataFrame:
        """One row per finding as last stated, newest first; an open finding may be stated as ``open`` or ``update``."""
        where = {None: "", "open": "WHERE status != 'resolved'", "resolved": "WHERE status = 'resolved'"}[status]
        return self.sql(f"SELECT * FROM v_findings {where} ORDER BY since_at DESC, id")

    def clocks(self) -> pl.DataFrame:
        """Every clock as last stated: offset (that clock − reference) with the bound of its error."""
        return self.sql("SELECT * FROM v_clock ORDER BY clock")

    def nics(self) -> pl.DataFrame:
        """Latest stated health of every NIC and direction; `age_s` is how long ago it was stated."""
        return self.sql("SELECT * FROM v_nic_state ORDER BY nic, direction")

    def jobs(self) -> pl.DataFrame:
        """One row per job over its hosts."""
        return self.sql("SELECT * FROM v_jobs ORDER BY job")

    def commands(self) -> pl.DataFrame:
        """One row per command with its lease, what became of it, and throughput before and after."""
        return self.sql("SELECT * FROM v_commands ORDER BY issued_at, id")

    def owd(
        self,
        src: str | None = None,
        dst: str | None = None,
        *,
        dir: Literal["fwd", "rev"] | None = None,
        step: Step = "1s",
        since: Instant | None = None,
        until: Instant | None = None,
    ) -> pl.DataFrame:
        """One-way delay with its error bar, per path, direction and step of time; of all pairs, or of those chosen.

        `src` and `dst` are the session's ends; ``rev`` is what went from `dst` back to `src`. ``err_ns`` bounds the
        error of each row's delays.
        """
        if step not in _STEPS:
            raise ConfigError(f"step is {step!r}; there are {', '.join(_STEPS)}")
        view, column = _STEPS[step]
        named = {"src": src, "dst": dst, "dir": dir}
        equal = [f"{name} = {literal(value)}" for name, value in named.items() if value is not None]
        span = _choice(since, until, "", "").sql(view, {column: "DateTime"})
        where = " AND ".join([*equal, *([span] if span else [])])
        order = f"ORDER BY src, dst, path, dscp, dir, {column}"
        return self.sql(f"SELECT * FROM {view} {'WHERE ' + where if where else ''} {order}")

    def check_name(self, name: str) -> None:
        """Raise ConfigError, with the list of what there is, for a name that is no topic, table or view here."""
        if name.startswith(_TOPIC):
            known: tuple[str, ...] = self.topics()
            what = "topic"
        else:
            known, what = tuple(self._tables().names()), "table or view"
        if name not in known:
            raise ConfigError(f"there is no {what} {name!r}; there are: {', '.join(known) or 'none'}")

    def check_choice(self, name: str, choice: Choice) -> None:
        """Raise ConfigError where no column of `name` could name what is chosen."""
        if not name.startswith(_TOPIC):
            schema = self._tables().schema_of(name)
            choice.sql(name, {column: str(kind) for column, kind in schema.items()})
        elif (columns := topic_of(name).columns) is not None:
            choice.rows(name, columns.names)

    def refused(self, name: str) -> dict[str, int]:
        """What the last reading of a topic could not read, by reason; of a table: nothing."""
        if not name.startswith(_TOPIC):
            return {}
        counted = self._topics().counters().as_dict()
        return {key.partition(".refused.")[2]: n for key, n in counted.items() if ".refused." in key and n}

    def close(self) -> None:
        """Let go of the archive."""
        console, self._console, self._opened_tables = self._console, None, None
        if console is not None:
            console.close()

    def __enter__(self) -> Fabric:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _frames(self, name: str, choice: Choice) -> Iterator[pl.DataFrame]:
        if name.startswith(_TOPIC):
            return frames.frames(topic_of(name), self._topics().messages(name, choice), choice)
        return self._tables().frames(name, choice)

    def _topics(self) -> Topics:
        if self._opened_topics is None:
            self._opened_topics = topics_of(self._data, self._recording, self._bus, self._kafka)
        return self._opened_topics

    def _tables(self) -> Tables:
        if self._opened_tables is None:
            self._console = Console.open(str(self._data), self._url)
            self._opened_tables = Tables(self._console)
        return self._opened_tables


def _choice(since: Instant | None, until: Instant | None, nic: str, job: str) -> Choice:
    conditions = [*([f"nic={nic}"] if nic else []), *([f"job={job}"] if job else [])]
    return Choice.where(_ns(since), _ns(until), conditions)


def _ns(at: Instant | None) -> int | None:
    """An instant in ns since the Unix epoch, exact to the microsecond that a datetime holds."""
    if at is None or isinstance(at, int):
        return at
    try:
        at = datetime.fromisoformat(at) if isinstance(at, str) else at
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    except (AttributeError, ValueError) as error:
        raise ConfigError(f"{at!r} is no instant; write whole ns, a datetime or 2027-01-15T08:00:00Z") from error
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * NS_PER_S + since.microseconds * NS_PER_US
