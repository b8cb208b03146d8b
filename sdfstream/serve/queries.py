"""Requests of the verbs, answered from the boards of the running pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sdfstream.board.board import Board
from sdfstream.board.topology_view import topology_view
from sdfstream.serve.job_queries_io import JobQueries

ProcessFigures = Callable[[], tuple[int, Mapping[str, int], Mapping[str, int], Mapping[str, Any]]]
"""Bus time now, all counters, lag by reader, the process (mode, start, folder, stages' bus time)."""

_LIMITS = {"hosts": 100_000, "worst": 100_000}


def known_at_ns(board: Board, now_ns: int, lag: Mapping[str, int], reached_at_ns: Mapping[str, int]) -> int:
    """Bus time of which the board's findings speak, by what detect has reached and what waits for the board."""
    return board.known_ns(now_ns, detect_reached_ns(reached_at_ns), behind=bool(lag.get("board")))


def detect_reached_ns(reached_at_ns: Mapping[str, int]) -> int | None:
    """Bus time that every unit of detect has reached, of tasks named ``detect`` or ``detect/0of1``; None: none has.

    Others' names begin with the stage as well: a process that runs detect reports its own troubles by the task
    ``detect/troubles/…``, which commits when there is one.
    """
    units = [at_ns for name, at_ns in reached_at_ns.items() if "detect" in (name, name.rpartition("/")[0]) and at_ns]
    return min(units, default=None)


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
        known_ns = known_at_ns(self._board, now_ns, lag, run.get("reached_at_ns") or {})
        if want == "board":
            options: dict[str, Any] = {"full": bool(request.get("full"))}
            for name, most in _LIMITS.items():
                value = request.get(name)
                if value is None:
                    continue
                if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
                    return {"error": f"{name} must be a whole number from 0 to {most}"}
                options[name] = value
            view = self._board.view(now_ns, counters=counters, lag=lag, run=run, known_ns=known_ns, **options)
            return view if self._jobs is None else view | self._jobs.summary(now_ns)
        if want == "findings":
            return {"at_ns": now_ns, "known_at_ns": known_ns, "findings": self._board.findings(now_ns=now_ns)}
        if want == "topology":
            return topology_view(self._board, now_ns)
        if want == "silences":
            return {"at_ns": now_ns, "silences": self._board.notes.silences(now_ns)}
        if self._jobs is not None and want in self._jobs.requests:
            return self._jobs(request, now_ns, known_ns)
        known = ("board", "findings", "topology", *(self._jobs.requests if self._jobs is not None else ()), "silences")
        return {"error": f"unknown wish {want!r}; known are {', '.join(known)}"}
