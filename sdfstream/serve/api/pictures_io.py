"""Pictures for the API: of now from this process's boards, of the past from the archive, a few of them retained."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

from sdfstream.errors import SdfError, UnavailableError
from sdfstream.serve import past_io
from sdfstream.serve.api.picture import Picture
from sdfstream.serve.api.problem import ProblemError

MOST_PAST: Final = 4
"""Pictures of the past retained: all pages of a list and all lists of a page ask for the same instant."""
MOST_WAITING: Final = 16
"""Requests for other instants that wait for the archive; further ones are told to come later."""
PAST_S: Final = 60.0
_STEP_NS: Final = 100_000_000
"""Instants of the past are rounded down to the stages' tick."""


class Pictures:
    """Pictures of now and of the past.

    Parameters
    ----------
    now : callable
        The picture of this moment; called in the loop that feeds the boards.
    past : callable, optional
        `past_io.past` of an archive, by the instant; called in a thread. None: there is no archive.
    """

    def __init__(self, now: Callable[[], Picture], past: Callable[[int], past_io.PastBoards] | None) -> None:
        self._now = now
        self._past = past
        self._retained: OrderedDict[int, Picture] = OrderedDict()
        self._reading = asyncio.Lock()
        self._waiting = 0

    @classmethod
    def of_archive(cls, now: Callable[[], Picture], data: str, url: str | None) -> Pictures:
        """With the archive of a data folder, or of the server at `url`."""
        return cls(now, partial(past_io.past, data, url))

    def now(self) -> Picture:
        """The picture of this moment."""
        return self._now()

    async def at(self, at_ns: int | None) -> Picture:
        """The picture of an instant; None: of now.

        Raises
        ------
        ProblemError
            400: the instant is to come; 429: too many ask for other instants; 503: the archive cannot be read.
        """
        if at_ns is None:
            return self._now()
        if at_ns > self._now().at_ns:
            raise ProblemError(400, "at lies in the future")
        if self._past is None:
            raise ProblemError(503, "there is no archive here: leave out `at`")
        at_ns -= at_ns % _STEP_NS
        if (retained := self._retained.get(at_ns)) is not None:
            self._retained.move_to_end(at_ns)
            return retained
        if self._waiting >= MOST_WAITING:
            raise ProblemError(429, "too many ask for other instants of the past; try again later")
        self._waiting += 1
        try:
            async with asyncio.timeout(PAST_S), self._reading:
                return self._retained.get(at_ns) or await self._read(self._past, at_ns)
        except TimeoutError as error:
            raise ProblemError(503, f"the archive did not answer within {PAST_S:g} s") from error
        finally:
            self._waiting -= 1

    async def _read(self, past: Callable[[int], past_io.PastBoards], at_ns: int) -> Picture:
        try:
            then = await asyncio.to_thread(past, at_ns)
        except UnavailableError as error:
            raise ProblemError(503, str(error)) from error
        except SdfError as error:
            raise ProblemError(503, f"the archive could not be read: {error}") from error
        known_ns = then.board.known_ns(at_ns, then.newest_ns)
        picture = Picture(then.board, then.jobs, at_ns, known_ns, then.source)
        self._retained[at_ns] = picture
        while len(self._retained) > MOST_PAST:
            self._retained.popitem(last=False)
        return picture
