"""The API of a process: its part of the boards' process, from the settings to the socket."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from sdfstream.alerts.received import ReceivedAlerts
from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.runtime.live_io import Watcher
from sdfstream.runtime.output_io import progress
from sdfstream.serve.api.app_io import Api, Override
from sdfstream.serve.api.callers_io import Callers
from sdfstream.serve.api.follow_io import Followers
from sdfstream.serve.api.histories_io import Histories
from sdfstream.serve.api.picture import Picture
from sdfstream.serve.api.pictures_io import Pictures
from sdfstream.serve.api.server_io import ApiServer, is_for_others
from sdfstream.serve.api.stream import TOPICS, ChangeLog

CHANGES = "changes"
"""Name of the reader that feeds the stream of changes."""


class ProcessApi:
    """The API over the boards of one process.

    Parameters
    ----------
    board, jobs
        Fed by the process.
    instants : callable
        Bus time now, the bus time of which findings speak, and lag by reader.
    data : Path
        Data folder: tokens, and the file that says where the API is.
    archive : (str, str or None), optional
        Data folder and server of the archive for ``?at=``; None: there is none.
    """

    def __init__(
        self,
        board: Board,
        jobs: JobBoard,
        instants: Callable[[], tuple[int, int, Mapping[str, int]]],
        data: Path,
        archive: tuple[str, str | None] | None,
    ) -> None:
        self.received = ReceivedAlerts()
        """What an Alertmanager told of."""

        def now() -> Picture:
            at_ns, known_at_ns, lag = instants()
            return Picture(board, jobs, at_ns, known_at_ns, lag=lag, received=self.received)

        self._data = data
        self.pictures = Pictures(now, None) if archive is None else Pictures.of_archive(now, *archive)
        self._histories = Histories(None) if archive is None else Histories.of_archive(*archive)
        self.followers = Followers(ChangeLog(uuid.uuid4().hex[:8]), self.pictures)

    @property
    def watcher(self) -> Watcher:
        """Feeds the stream of changes."""
        return Watcher(CHANGES, tuple(TOPICS), self.followers.take)

    async def start(self, stack: AsyncExitStack, address: str, override: Override | None) -> ApiServer:
        """Answer at `address` until `stack` closes.

        Raises
        ------
        ConfigError, UnavailableError
            The address is none, or cannot be used.
        """
        application = Api(self.pictures, self.followers, Callers(self._data), override, self._histories, self.received)
        server = await ApiServer.start(application.app, address, self._data)
        stack.push_async_callback(server.close)
        stack.callback(self.followers.close)
        if is_for_others(address):
            progress(
                f"API at {server.url}: whoever asks needs a token (sdfstream token add), and all passes in the "
                "clear: put a proxy with TLS before it"
            )
        return server


def override_of(answer: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Override:
    """How the API puts an override on the bus: as a request of the verbs."""
    return lambda given: answer({"want": "override", "override": given})
