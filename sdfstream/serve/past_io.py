"""The boards as they were at an instant of the past, from the archive: for verbs that answer when nothing runs."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sdfstream.board.board import Board
from sdfstream.board.humanize import seconds
from sdfstream.board.jobs import JobBoard
from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.records.units import NS_PER_S
from sdfstream.serve import archived_io
from sdfstream.serve.job_queries_io import JobQueries
from sdfstream.serve.queries import PipelineQueries

if TYPE_CHECKING:
    from sdfstream.archive.query_io import Console

ARCHIVE_MODE: Final = "archive"
"""Value of ``run.mode`` of a board that an archive tells."""
NOT_ARCHIVED: Final = ("rates", "lag", "lost", "aside")
"""Figures of a running pipeline that no archive has."""


@dataclass(frozen=True, slots=True)
class PastBoards:
    """Both boards as of `at_ns`."""

    board: Board
    jobs: JobBoard
    at_ns: int
    ends_at_ns: int
    """Bus time of the archive's newest row."""
    archive: str
    """Where it was read, without a password."""
    newest_ns: int | None = None
    """Bus time of the newest row up to `at_ns`: nothing is known since; None: nothing was archived up to then."""

    @property
    def source(self) -> dict[str, Any]:
        """Where an answer comes from, as of when, and until when that archive goes."""
        return {
            "kind": ARCHIVE_MODE,
            "archive": self.archive,
            "as_of_ns": self.at_ns,
            "newest_ns": self.newest_ns,
            "ends_at_ns": self.ends_at_ns,
        }

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of `PipelineQueries` to the same request, of then, with its source.

        Raises
        ------
        UnavailableError
            The request cannot be answered of the past.
        """
        run = {"mode": ARCHIVE_MODE, "reached_at_ns": {"detect": self.newest_ns}}
        jobs = JobQueries(self.jobs, lambda _: False)
        found = PipelineQueries(self.board, lambda: (self.at_ns, {}, {}, run), jobs)(request)
        if "error" in found:
            raise UnavailableError(str(found["error"]))
        if "pipeline" in found:
            found["pipeline"] = {name: v for name, v in found["pipeline"].items() if name not in NOT_ARCHIVED}
        return found | {"source": self.source}


def past(data: str, url: str | None = None, at_ns: int | None = None) -> PastBoards:
    """The boards at `at_ns`; None: at the last moment of the archive.

    Parameters
    ----------
    data : str
        Data folder; its archive is asked through the pipeline that has it open, where one runs.
    url : str, optional
        A ClickHouse server in its place.

    Raises
    ------
    UnavailableError
        There is no archive to be read, or it is empty.
    """
    from sdfstream.archive.query_io import ARCHIVE_FOLDER, Console
    from sdfstream.archive.target import parse

    console = Console.open(data, url)
    try:
        return of_console(console, at_ns, str(Path(data) / ARCHIVE_FOLDER) if url is None else str(parse(url)))
    finally:
        console.close()


def of_console(console: Console, at_ns: int | None, archive: str) -> PastBoards:
    """As `past`, of an archive that is open."""
    ends_at_ns = archived_io.ends_at_ns(console)
    if ends_at_ns is None:
        raise UnavailableError(f"the archive {archive} is empty: nothing was archived there yet")
    at_ns = ends_at_ns if at_ns is None else at_ns
    board = Board()
    jobs = JobBoard(board.notes)
    moment = archived_io.moment(console, at_ns)
    said = archived_io.messages(console, moment)
    board.take(message for message in said if message.topic in Board.reads)
    jobs.take(message for message in said if message.topic in JobBoard.reads)
    return PastBoards(board, jobs, at_ns, ends_at_ns, archive, moment.newest_ns)


def instant(text: str) -> int:
    """An instant as people type it, ns since the Unix epoch: ``10m`` or ``10m ago``, or ISO 8601 (UTC by default).

    Raises
    ------
    ConfigError
        With a sentence.
    """
    try:
        return time.time_ns() - round(seconds(text.removesuffix("ago").strip()) * NS_PER_S)
    except ValueError:
        pass
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is no instant; write 10m (ago) or 2027-01-15T08:00:00Z") from error
    at = at if at.tzinfo is not None else at.replace(tzinfo=datetime.UTC)
    since = at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (since.days * 86_400 + since.seconds) * NS_PER_S + since.microseconds * 1_000
