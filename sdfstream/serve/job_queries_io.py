"""Requests about jobs and commands, answered by the running pipeline; how an operator's override enters its bus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from sdfstream.board.jobs import JobBoard
from sdfstream.board.why import explain
from sdfstream.bus import Bus
from sdfstream.errors import ConfigError, FormatError, SdfError
from sdfstream.records.command import override
from sdfstream.records.message import Output
from sdfstream.serve.overrides_io import output_of
from sdfstream.stats import Counters

MOST_IDS: Final = 64
MOST_WAITING: Final = 1000
MOST_SHOWN: Final = 50
MOST_COMMANDS: Final = 2_000
"""Commands in one answer: the newest. All of them are in the archive."""


class BackgroundPublisher:
    """Publishes single outputs in the background; at most `MOST_WAITING` are in flight.

    Notes
    -----
    Counters: ``published``, ``refused`` (full), ``failed``.
    """

    def __init__(self, bus: Bus) -> None:
        self.counters = Counters("overrides")
        self._bus = bus
        self._in_flight: set[asyncio.Task[None]] = set()

    def __call__(self, output: Output) -> bool:
        """Take `output`; False when too many wait for the bus."""
        if len(self._in_flight) >= MOST_WAITING:
            self.counters.add("refused", "full")
            return False
        task = asyncio.create_task(self._publish(output), name="override")
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return True

    async def close(self) -> None:
        """Wait at most a second for outputs in flight, then cancel them."""
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=1.0)
        for task in self._in_flight:
            task.cancel()

    async def _publish(self, output: Output) -> None:
        try:
            await self._bus.publish([output])
            self.counters.add("published")
        except SdfError:
            self.counters.add("failed")


class JobQueries:
    """Answers the requests about jobs, which `queries.PipelineQueries` passes on.

    Parameters
    ----------
    jobs : JobBoard
    publish : callable
        Puts an output on the bus; False when it cannot be taken.
    operators : callable
        Names of the operators whose keys are trusted.
    mode : str, optional
        The mode in the settings.
    """

    def __init__(
        self,
        jobs: JobBoard,
        publish: Callable[[Output], bool],
        *,
        operators: Callable[[], Iterable[str]] = tuple,
        mode: str | None = None,
    ) -> None:
        self._jobs = jobs
        self._publish = publish
        self._operators = operators
        self._mode = mode
        self._answers: dict[str, Callable[[Mapping[str, Any], int], dict[str, Any]]] = {
            "jobs": lambda request, now_ns: {"jobs": jobs.view(now_ns)},
            "commands": self._commands,
            "why": self._why,
            "outcomes": self._outcomes,
            "policy": self._policy,
            "override": self._override,
        }

    @property
    def requests(self) -> tuple[str, ...]:
        """The values of ``want`` that are answered here."""
        return tuple(self._answers)

    def __call__(self, request: Mapping[str, Any], now_ns: int, known_ns: int | None = None) -> dict[str, Any]:
        """One answer, of what is known as of `known_ns`; an odd option is an ``error`` with a sentence."""
        if not isinstance(request.get("job", ""), str | None):
            return {"error": "job must be text"}
        if request["want"] == "why":
            return {"at_ns": now_ns} | self._why(request, now_ns, known_ns)
        return {"at_ns": now_ns} | self._answers[str(request["want"])](request, now_ns)

    def summary(self, now_ns: int) -> dict[str, Any]:
        """Jobs and commands for the board's view: running jobs first, the newest commands first."""
        commands = self._jobs.commands.views(now_ns)
        armed = sum(c["in_force"] for c in commands if _is_armed(c))
        done = sorted(
            (c for c in commands if not _is_armed(c)), key=lambda c: -max(c["began_at_ns"], c["said_at_ns"] or 0)
        )
        jobs = self._jobs.view(now_ns)
        return {
            "jobs": {"known": len(jobs), "list": jobs[:MOST_SHOWN]},
            "commands": {
                "known": len(commands),
                "in_force": sum(c["in_force"] for c in commands),
                "armed": armed,
                "last": done[:MOST_SHOWN],
            },
        }

    def _commands(self, request: Mapping[str, Any], now_ns: int) -> dict[str, Any]:
        since_ns = request.get("since_ns")
        if since_ns is not None and not isinstance(since_ns, int):
            return {"error": "since_ns must be a whole number"}
        return {
            "commands": self._jobs.commands.views(now_ns, request.get("job"), since_ns=since_ns, most=MOST_COMMANDS)
        }

    def _why(self, request: Mapping[str, Any], now_ns: int, known_ns: int | None = None) -> dict[str, Any]:
        return {"verdict": explain(self._jobs.facts(str(request.get("job") or ""), now_ns, known_ns)).as_data()}

    def _outcomes(self, request: Mapping[str, Any], now_ns: int) -> dict[str, Any]:
        ids, since_ns = request.get("ids"), request.get("since_ns")
        if not isinstance(ids, list) or len(ids) > MOST_IDS or not all(isinstance(i, str) for i in ids):
            return {"error": f"ids must be a list of at most {MOST_IDS} texts"}
        if not isinstance(since_ns, int):
            return {"error": "since_ns must be a whole number"}
        return {"outcomes": self._jobs.commands.outcomes(ids, since_ns)}

    def _policy(self, request: Mapping[str, Any], now_ns: int) -> dict[str, Any]:
        try:
            operators, why = sorted(self._operators()), None
        except ConfigError as error:
            operators, why = [], str(error)
        commands = self._jobs.commands
        return {
            "mode": (commands.mode or {}).get("mode", self._mode),
            "mode_in_settings": self._mode,
            "mode_by": commands.mode,
            "overrides": commands.overrides(now_ns),
            "in_force": commands.in_force(now_ns).total(),
            "waiting": commands.waiting(),
            "operators": operators,
            "operators_refused": why,
        }

    def _override(self, request: Mapping[str, Any], now_ns: int) -> dict[str, Any]:
        """Publish the override; whether it is trusted and obeyed is decided by the controller."""
        data = request.get("override")
        data = data if isinstance(data, Mapping) else {}
        try:
            parsed = override(data)
        except FormatError as error:
            return {"error": f"the override cannot be read: {error.detail}"}
        if parsed.expires_at_ns <= now_ns:
            return {"error": "the override has lapsed already; is this machine's clock right?"}
        if not self._publish(output_of(data)):
            return {"error": "too many overrides wait for the bus"}
        return {"taken": parsed.id}


def _is_armed(command: Mapping[str, Any]) -> bool:
    """Whether a failover waits for the death of its path: nothing was changed yet."""
    return bool(command["action"] == "failover" and command["state"] in (None, "accepted"))
