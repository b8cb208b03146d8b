"""Pushes findings to an Alertmanager (API v2); which, and when: `sdfstream.alerts`.

Off unless ``alerts.alertmanager`` names one. A push that fails is due again: after 1 s, then twice as long, at most
30 s; while it fails that is a trouble of the process (``/health``, `status`), since nobody is told of findings.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from sdfstream import secret
from sdfstream.alerts.alert import Alert
from sdfstream.alerts.config import AlertsConfig
from sdfstream.alerts.ledger import AlertLedger
from sdfstream.board.board import Board
from sdfstream.errors import UnavailableError
from sdfstream.stats import HasCounters

log = logging.getLogger("sdfstream.alerts")
PATH: Final = "/api/v2/alerts"
_MOST_ANSWER_BYTES: Final = 64 << 10
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_ITS_OWN_FAULT: Final = frozenset({401, 403, 404, 405, 407, 408, 429})
"""Of the answers from 400 to 499 those that say nothing about the alerts: they are pushed again."""

Send = Callable[[Sequence[Mapping[str, Any]]], tuple[int, str]]
"""Posts alerts; status and text of the answer."""


class AlertPusher:
    """Pushes what is due of one board's findings, until it is cancelled.

    Parameters
    ----------
    board : Board
        Its open findings are the alerts, but for silenced ones.
    is_current : callable
        Whether the board has read what is on the bus: before, findings that were resolved long ago look open.
    send : callable, optional
        In place of an HTTP request.
    """

    def __init__(
        self,
        config: AlertsConfig,
        cluster: str,
        board: Board,
        is_current: Callable[[], bool],
        send: Send | None = None,
    ) -> None:
        self.ledger = AlertLedger(config, cluster)
        self._config, self._board, self._is_current = config, board, is_current
        self._send = send or Alertmanager(config).post
        # there from the start: a rule over a counter that appears with its first count would miss that count
        self.ledger.counters.values["failed", "unreachable"] = 0
        self._wait_s = 0.0
        self._push_from_s = 0.0
        """Not before this is an Alertmanager asked that failed; monotonic clock."""

    @property
    def counters(self) -> Any:
        """Pushed, failed and shed alerts."""
        return self.ledger.counters

    async def run(self) -> None:
        """Look and push for ever."""
        while True:
            if self._is_current():
                await self.look(time.monotonic(), time.time_ns())
            await asyncio.sleep(self._config.look_s)

    async def look(self, now_s: float, now_ns: int) -> None:
        """Look once, and push all that is due."""
        self.ledger.look(self._board.findings(open_only=True, now_ns=now_ns), self._board.resolved_at_ns, now_ns)
        if now_s < self._push_from_s:
            return
        while (due := self.ledger.due(now_ns)) and await self._push(due, now_s, now_ns):
            pass

    async def _push(self, due: Sequence[Alert], now_s: float, now_ns: int) -> bool:
        """Push once; whether the next may follow at once."""
        counters = self.counters
        try:
            status, said = await asyncio.to_thread(self._send, [alert.as_data() for alert in due])
        except UnavailableError as error:
            counters.add("failed", "unreachable")
            return self._failed(str(error), now_s)
        if not 200 <= status < 300 and (not 400 <= status < 500 or status in _ITS_OWN_FAULT):
            counters.add("failed", f"status-{status}")
            log.info("Alertmanager answers %d: %s", status, said)
            return self._failed(f"Alertmanager answers {status}", now_s)
        if status >= 400:  # of several alerts it has taken the sound ones; the others would be refused again
            counters.add("refused", f"status-{status}")
            log.warning("Alertmanager refused some of %d alerts: %s", len(due), said)
        self._wait_s = self._push_from_s = 0.0
        counters.troubles.end("alertmanager")
        self.ledger.delivered(due, now_ns)
        return True

    def _failed(self, why: str, now_s: float) -> bool:
        self._wait_s = min(max(2 * self._wait_s, _FIRST_WAIT_S), _LONGEST_WAIT_S)
        self._push_from_s = now_s + self._wait_s
        self.counters.troubles.begin("alertmanager", f"findings are not pushed: {why}")
        return False


class Alertmanager:
    """One Alertmanager, a connection a push. Blocking; redirects and proxies are not followed."""

    def __init__(self, config: AlertsConfig) -> None:
        split = urlsplit(config.alertmanager)
        self._config = config
        self._host, self._port, self._is_tls = split.hostname or "", split.port, split.scheme == "https"
        self._path = split.path.rstrip("/") + PATH
        self._user = split.username
        self._password = split.password
        self.name = secret.without_password(config.alertmanager)

    def post(self, alerts: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
        """Post `alerts`; status and the first words of the answer.

        Raises
        ------
        UnavailableError
            Nobody answers there, or the token's file cannot be read.
        """
        body = json.dumps(alerts, ensure_ascii=False).encode("utf-8", "replace")
        link: http.client.HTTPConnection | None = None
        try:
            headers = {"Content-Type": "application/json", **self._authorization()}
            link = self._connection()
            link.request("POST", self._path, body, headers)
            answer = link.getresponse()
            said = answer.read(_MOST_ANSWER_BYTES).decode("utf-8", "replace")
            return answer.status, " ".join(said.split())[:200]
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise UnavailableError(f"{self.name} does not take alerts: {error}") from error
        finally:
            if link is not None:
                link.close()

    def _connection(self) -> http.client.HTTPConnection:
        timeout_s = self._config.timeout_s
        if self._is_tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    def _authorization(self) -> dict[str, str]:
        if self._config.bearer_file:
            first = Path(self._config.bearer_file).read_text(encoding="ascii").splitlines()[:1]
            return {"Authorization": f"Bearer {''.join(first).strip()}"}
        if self._user is not None:
            pair = f"{unquote(self._user)}:{unquote(self._password or '')}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}


@asynccontextmanager
async def pushing(
    config: AlertsConfig, cluster: str, board: Board, is_current: Callable[[], bool], counted: list[HasCounters]
) -> AsyncIterator[None]:
    """Push while the block runs, counted among `counted`; nothing where no Alertmanager is named."""
    if not config.alertmanager:
        yield
        return
    pusher = AlertPusher(config, cluster, board, is_current)
    counted.append(pusher)
    work = asyncio.create_task(pusher.run(), name="alerts")
    work.add_done_callback(partial(_log_end, pusher))
    try:
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def _log_end(pusher: AlertPusher, work: asyncio.Task[None]) -> None:
    if not work.cancelled() and (error := work.exception()) is not None:
        pusher.counters.troubles.begin("pusher", f"findings are no longer pushed: {error!r}")
        log.error("findings are no longer pushed", exc_info=error)
