"""Questions about stretches of the past, one at a time: the archive is asked in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from sdfstream.board import path_cells
from sdfstream.errors import SdfError
from sdfstream.serve import history_io
from sdfstream.serve.api.parameters import AT, Parameter
from sdfstream.serve.api.problem import ProblemError

MOST_WAITING: Final = 16
LONGEST_WAIT_S: Final = 30.0
PARAMETERS: Final = (
    AT,
    Parameter("span_s", "so many seconds up to `at`; usual: 3600", "whole", least=1, most=history_io.LONGEST_S),
    Parameter("a", "a pair's one end: NIC or host; with `b`"),
    Parameter("b", "its other end"),
    Parameter("job", "a job's throughput"),
    Parameter("nic", "what befell a NIC"),
    Parameter("cells", "cells of the map of paths over the whole stretch: this figure", "choice", path_cells.FIGURES),
    Parameter("percentile", "of cells: over the paths of each; usual: 50", "number", most=100),
    Parameter("by", "of cells: rows and columns, as in /v1/cells", "choice", ("host", "leaf")),
)
USUAL_SPAN_S: Final = 3600
Read = Callable[[Mapping[str, Any], int], dict[str, Any]]


class Histories:
    """Reads histories by `read` (a question, its newest instant); None: there is no archive."""

    def __init__(self, read: Read | None) -> None:
        self._read = read
        self._reading = asyncio.Lock()
        self._waiting = 0

    @classmethod
    def of_archive(cls, data: str, url: str | None) -> Histories:
        """Of the archive of a data folder, or of the server at `url`."""
        return cls(partial(history_io.history, data, url))

    async def answer(self, asked: Mapping[str, Any], end_ns: int) -> dict[str, Any]:
        """The step and the items.

        Raises
        ------
        ProblemError
            400: not one of pair, job, NIC and cells; 429: too many ask; 503: no archive answers.
        """
        kinds = [{"a", "b"}, {"job"}, {"nic"}, {"cells"}]
        if asked.keys() & {"a", "b", "job", "nic", "cells"} not in kinds:
            raise ProblemError(400, "a history is of a pair (a and b), or of a job, a nic, or cells")
        if asked.keys() & {"percentile", "by"} and "cells" not in asked:
            raise ProblemError(400, "percentile and by are of cells")
        if self._read is None:
            raise ProblemError(503, "there is no archive here, so nothing of the past is known")
        if self._waiting >= MOST_WAITING:
            raise ProblemError(429, "too many ask for histories; try again later")
        self._waiting += 1
        try:
            async with asyncio.timeout(LONGEST_WAIT_S), self._reading:
                return await asyncio.to_thread(self._read, {"span_s": USUAL_SPAN_S, **asked}, end_ns)
        except TimeoutError as error:
            raise ProblemError(503, f"the archive did not answer within {LONGEST_WAIT_S:g} s") from error
        except SdfError as error:
            raise ProblemError(503, f"the archive could not be read: {error}") from error
        finally:
            self._waiting -= 1
