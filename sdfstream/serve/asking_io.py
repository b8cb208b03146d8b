"""A verb's answer: from the running pipeline, or from the archive where none runs or the past is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sdfstream.errors import NothingRunsError, UnavailableError
from sdfstream.serve import past_io, query_io

LIVE: Final = "pipeline"


def ask(data: str, request: Mapping[str, Any], *, at: str | None = None, url: str | None = None) -> dict[str, Any]:
    """The answer to `request`, with ``source``: where it comes from, and as of when where that is the past.

    Parameters
    ----------
    data : str
        Data folder.
    at : str, optional
        An instant of the past, as people type it; None: now, or the archive's last moment where nothing runs.
    url : str, optional
        A ClickHouse server: its archive is asked, whatever runs.

    Raises
    ------
    UnavailableError
        Nothing runs and no archive can be read; the pipeline runs and does not answer.
    """
    if at is not None:
        return past_io.past(data, url, past_io.instant(at)).answer(request)
    if url is not None:
        return past_io.past(data, url).answer(request)
    try:
        return query_io.fetch(Path(data), request) | {"source": {"kind": LIVE}}
    except NothingRunsError as nothing_runs:
        try:
            return past_io.past(data).answer(request)
        except UnavailableError as no_archive:
            raise UnavailableError(f"{nothing_runs}; of the past: {no_archive}") from no_archive
