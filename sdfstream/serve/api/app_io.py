"""The API as an ASGI application: who asks, what, and the answer. The rules are in the modules beside it."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sdfstream import strict_json
from sdfstream.alerts import webhook
from sdfstream.alerts.received import ReceivedAlerts
from sdfstream.errors import FormatError
from sdfstream.serve.api import openapi, parameters, problem
from sdfstream.serve.api.callers_io import Callers
from sdfstream.serve.api.derived import rows_by
from sdfstream.serve.api.encoding import encoded
from sdfstream.serve.api.figures import families
from sdfstream.serve.api.follow_io import Followers
from sdfstream.serve.api.histories_io import PARAMETERS, Histories
from sdfstream.serve.api.page_io import WebPage
from sdfstream.serve.api.pictures_io import Pictures
from sdfstream.serve.api.problem import ProblemError
from sdfstream.serve.api.resources import RESOURCES, Resource
from sdfstream.serve.api.roles import ALERTS, ApiRole, needed, needed_for
from sdfstream.serve.api.stream import TOPICS

log = logging.getLogger("sdfstream.api")
MOST_AT_ONCE: Final = 64
MOST_BODY_BYTES: Final = 64 << 10
MOST_QUERY_BYTES: Final = 8 << 10
_SAFE: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
Override = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Puts a signed override on the bus: ``{"taken": id}``, or ``{"error": sentence}``."""


class Api:
    """Answers requests from `pictures` and `followers`; `override` None: this process only reads."""

    def __init__(
        self,
        pictures: Pictures,
        followers: Followers,
        callers: Callers,
        override: Override | None = None,
        histories: Histories | None = None,
        received: ReceivedAlerts | None = None,
    ) -> None:
        self._pictures = pictures
        self._followers = followers
        self._override = override
        self._histories = histories or Histories(None)
        self._received = received or ReceivedAlerts()
        page = WebPage()
        routes = [Route(f"/v1/{r.name}", _of(self._list, r), methods=["GET"]) for r in RESOURCES.values()]
        routes += [
            Route("/v1/history", self._history, methods=["GET"]),
            Route("/v1/stream", self._stream, methods=["GET"]),
            Route("/v1/overrides", self._overrides, methods=["POST"]),
            Route(ALERTS, self._alerts, methods=["POST"]),
            Route("/healthz", self._health, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
            Route("/openapi.json", self._openapi, methods=["GET"]),
            Route("/", page.start, methods=["GET"]),
            Route("/page/{name:path}", page.file, methods=["GET"]),
        ]
        handlers: Any = {ProblemError: _refused, HTTPException: _not_here, Exception: _defect}
        app = Starlette(routes=routes, exception_handlers=handlers)
        app.router.redirect_slashes = False
        self.app: ASGIApp = _Door(app, callers)

    async def _list(self, resource: Resource, request: Request) -> Response:
        asked = parameters.read(resource.parameters, request.query_params.multi_items())
        return _json(resource.answer(await self._pictures.at(asked.get("at")), asked))

    async def _history(self, request: Request) -> Response:
        asked = parameters.read(PARAMETERS, request.query_params.multi_items())
        picture = self._pictures.now()
        end_ns = asked.pop("at", picture.at_ns)
        if end_ns > picture.at_ns:
            raise ProblemError(400, "at lies in the future")
        by = {"by": rows_by(picture, asked)} if "cells" in asked else {}
        if by.get("by") == "leaf":
            asked["leaf_of"] = {nic: str(leaf) for nic, leaf in picture.board.fabric.topology.leaf_of.items()}
        found = await self._histories.answer(asked, end_ns)
        return _json(picture.head | {"ends_at_ns": end_ns} | by | found)

    async def _stream(self, request: Request) -> Response:
        asked = parameters.read(openapi.STREAM, request.query_params.multi_items())
        names = asked["topics"].split(",") if "topics" in asked else list(TOPICS.values())
        if unknown := sorted(set(names) - set(TOPICS.values())):
            raise ProblemError(400, f"topics: there is no {unknown[0][:64]!r}; there are {', '.join(TOPICS.values())}")
        last_id = request.headers.get("last-event-id", asked.get("last_event_id"))
        body = self._followers.follow(names, last_id)
        return StreamingResponse(body, media_type="text/event-stream", headers=_SAFE | {"X-Accel-Buffering": "no"})

    async def _overrides(self, request: Request) -> Response:
        parameters.read((), request.query_params.multi_items())
        _json_only(request)
        try:
            given = strict_json.loads(await _body(request))
        except FormatError as error:
            raise ProblemError(400, f"the body is no JSON: {error.detail}") from None
        if not isinstance(given, dict):
            raise ProblemError(400, "the body is no JSON object")
        wanted = needed_for(given, self._pictures.now().board.notes.silence)
        if request.scope["state"]["role"] < wanted:
            raise ProblemError(403, f"this needs the role {wanted.word}")
        if self._override is None:
            raise ProblemError(503, "this process only reads the bus; send it where the pipeline runs, or by the bus")
        answer = self._override(given)
        if "error" in answer:
            raise ProblemError(400, str(answer["error"]))
        return _json({"taken": answer["taken"]}, 202)

    async def _alerts(self, request: Request) -> Response:
        parameters.read((), request.query_params.multi_items())
        _json_only(request)
        try:
            alerts = webhook.read(await _body(request, webhook.MOST_BYTES))
        except FormatError as error:
            self._received.counters.add("refused", error.reason)
            raise ProblemError(400, f"no webhook of Alertmanager, version 4: {error.detail}") from None
        self._received.take(alerts, time.time_ns())
        return _json({"taken": len(alerts)}, 202)

    async def _health(self, request: Request) -> Response:
        parameters.read((), request.query_params.multi_items())
        is_fresh, said = self._pictures.now().health()
        return _json(said, 200 if is_fresh else 503)

    async def _metrics(self, request: Request) -> Response:
        asked = parameters.read((parameters.AT,), request.query_params.multi_items())
        picture = await self._pictures.at(asked.get("at"))
        text = generate_latest(_Collected(families(picture)))
        return Response(text, headers=_SAFE, media_type=CONTENT_TYPE_LATEST)

    async def _openapi(self, request: Request) -> Response:
        return _json(openapi.document())


class _Collected:
    """What `generate_latest` collects from."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def collect(self) -> Any:
        """The families."""
        return self._found


class _Door:
    """Lets in whoever may: one request after the other is weighed before any of it is read."""

    def __init__(self, app: ASGIApp, callers: Callers) -> None:
        self._app = app
        self._callers = callers
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        try:
            scope.setdefault("state", {})["role"] = self._role(scope)
            if self._inside >= MOST_AT_ONCE:
                raise ProblemError(429, f"{MOST_AT_ONCE} requests are being answered; try again later")
        except ProblemError as refusal:
            await _refused(None, refusal)(scope, receive, send)
            return
        is_stream = scope["path"] == "/v1/stream"  # followers are counted by themselves
        self._inside += not is_stream
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= not is_stream

    def _role(self, scope: Scope) -> ApiRole:
        if len(scope.get("query_string", b"")) > MOST_QUERY_BYTES:
            raise ProblemError(413, f"the query is longer than {MOST_QUERY_BYTES} bytes")
        pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value for name, value in pairs if name == "host"]
        if sum(name == "authorization" for name, _ in pairs) > 1:
            raise ProblemError(400, "Authorization stands twice")
        least = needed(scope["method"], scope["path"])
        if least is None:
            return ApiRole.VIEW
        role = self._callers.role(dict(pairs), hosts, _end(scope.get("client")), _end(scope.get("server")))
        if role is None:
            raise self._callers.refusal()
        if role < least:
            raise ProblemError(403, f"this needs the role {least.word}")
        return role


def _end(of: Any) -> tuple[str, int] | None:
    return (str(of[0]), int(of[1])) if of and of[1] is not None else None


def _of(answer: Callable[[Resource, Request], Awaitable[Response]], resource: Resource) -> Any:
    async def endpoint(request: Request) -> Response:
        return await answer(resource, request)

    return endpoint


def _json_only(request: Request) -> None:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ProblemError(415, "the body is sent as Content-Type: application/json")


async def _body(request: Request, most: int = MOST_BODY_BYTES) -> bytes:
    """The body; ProblemError 413 as soon as it is too large."""
    found = bytearray()
    try:
        async for chunk in request.stream():
            found += chunk
            if len(found) > most:
                raise ProblemError(413, f"the body is larger than {most} bytes")
    except ClientDisconnect:
        raise ProblemError(400, "the body ended before its end") from None
    return bytes(found)


def _json(body: Mapping[str, Any], status: int = 200, media_type: str = "application/json") -> Response:
    return Response(encoded(body), status, headers=_SAFE, media_type=media_type)


def _refused(_: Any, refusal: Any) -> Response:
    response = _json(refusal.body, refusal.status, problem.MEDIA_TYPE)
    if refusal.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if refusal.status in (429, 503):
        response.headers["Retry-After"] = "1"
    return response


def _not_here(request: Request, error: Any) -> Response:
    known = ", ".join([*(f"/v1/{name}" for name in RESOURCES), "/v1/history", "/v1/stream", "/openapi.json", "/"])
    detail = f"{request.method} is not known here" if error.status_code == 405 else f"there are {known}"
    response = _refused(request, ProblemError(error.status_code, detail))
    response.headers.update(error.headers or {})
    return response


def _defect(request: Request, error: Any) -> Response:
    log.error("a request to %s failed: %r", request.url.path, error)
    return _refused(request, ProblemError(500, "a defect of sdfstream; its log says more"))
