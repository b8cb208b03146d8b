"""Requests of the verbs, answered from the boards of the running pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sdfstream.board.board import Board
from sdfstream.serve.job_queries_io import JobQueries

ProcessFigures = Callable[[], tuple[int, Mapping[str, int], Mapping[str, int], Mapping[str, Any]]]
"""Bus time now, all counters, lag by reader, the pipeline itself (mode, start, data folder)."""

_LIMITS = {"hosts": 100_000, "worst": 100_000}


class PipelineQueries:
    """Answer of one request, for `QueryServer`."""

    def __init__(self, board: Board, figures: ProcessFigures, jobs: JobQueries | None = None) -> None:
        self._board = board
        self._figures = figures
        self._jobs = jobs

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One answer; an unknown request or an odd option is an ``error`` with a sentence."""
        want = request.get("want")
        now_ns, counters, lag, run = self._figures()
        if want == "board":
            options: dict[str, Any] = {"full": bool(request.get("full"))}
            for name, most in _LIMITS.items():
                value = request.get(name)
                if value is None:
                    continue
                if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
                    return {"error": f"{name} must be a whole number from 0 to {most}"}
                options[name] = value
            view = self._board.view(now_ns, counters=counters, lag=lag, run=run, **options)
            return view if self._jobs is None else view | self._jobs.summary(now_ns)
        if want == "findings":
            return {"at_ns": now_ns, "findings": self._board.findings()}
        if self._jobs is not None and want in self._jobs.requests:
            return self._jobs(request, now_ns)
        known = ("board", "findings", *(self._jobs.requests if self._jobs is not None else ()))
        return {"error": f"unknown wish {want!r}; known are {', '.join(known)}"}
