"""The API under anything: no 5xx, no exception, and nothing for whom it is not."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import settings as cases
from hypothesis import strategies as st

from sdfstream.serve.api import callers_io, openapi, tokens_io
from sdfstream.serve.api.app_io import Api
from sdfstream.serve.api.roles import hashed
from sdfstream.serve.history_io import statement
from sdfstream.serve.past_io import PastBoards
from tests.fixtures import asgi
from tests.fixtures import board_messages as bm

DOCUMENT = openapi.document()
ASKED = [path for path in DOCUMENT["paths"] if path.startswith("/v1/") and path not in ("/v1/stream", "/v1/overrides")]
LISTS = [path for path in ASKED if path != "/v1/history"]
PATHS = [*DOCUMENT["paths"], "/openapi.json", "/", "/v1", "/v1/nics/", "//v1/nics", "/v1/../metrics", "/v1/nics/h00"]
TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
NAMES = sorted({p["name"] for path in ASKED for p in DOCUMENT["paths"][path]["get"]["parameters"]})
VALUES = st.one_of(
    TEXTS,
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(["true", "false", "2026-01-01", "9999-12-31T23:59:59.999999+00:00", "0001-01-01", "²", "1e400"]),
    st.sampled_from(["0", "1", "-1", "1000", "1001", "1799999990000000000", "h00", "h00/r0", "healthy", "fwd", "loss"]),
)


@pytest.fixture(scope="module")
def world() -> Any:
    with TemporaryDirectory() as folder:
        board, jobs = asgi.boards()

        def past(at_ns: int) -> PastBoards:
            return PastBoards(board, jobs, at_ns, bm.NOW_NS, "archive", at_ns)

        def override(sent: Any) -> dict[str, Any]:
            return {"taken": str(sent["id"])} if isinstance(sent.get("id"), str) else {"error": "id must be text"}

        def history(question: Any, end_ns: int) -> dict[str, Any]:
            assert "SELECT" in statement(question, end_ns)[0]
            return {"step_ns": 1, "items": []}

        data = Path(folder)
        api = asgi.api_over(data, board, jobs, past=past, override=override, history=history)
        yield api, data, tokens_io.add(data, "all", "admin")


def asked(api: Api, path: str, **more: Any) -> asgi.Answer:
    async def once() -> asgi.Answer:
        return await asyncio.wait_for(asgi.ask(api, path, **more), 60)

    return asyncio.run(once())


@cases(max_examples=600)
@given(
    path=st.one_of(st.sampled_from(PATHS), TEXTS.map(lambda t: "/" + t)),
    query=st.one_of(
        st.binary(max_size=60),
        st.lists(st.tuples(st.one_of(st.sampled_from(NAMES), TEXTS), VALUES), max_size=4).map(
            lambda q: urlencode(q).encode()
        ),
    ),
    method=st.sampled_from(["GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "X"]),
    headers=st.dictionaries(
        st.sampled_from(["content-type", "accept", "origin", "last-event-id", "x-forwarded-for", "range", "host"]),
        st.one_of(st.just("application/json"), st.text(st.characters(max_codepoint=255), max_size=30)),
        max_size=3,
    ),
    body=st.one_of(st.binary(max_size=60), st.just(b'{"id":"o","what":"mode"}'), st.just(b"[" * 200)),
)
def test_nothing_that_is_sent_makes_a_5xx(
    world: Any, path: str, query: bytes, method: str, headers: dict[str, str], body: bytes
) -> None:
    api, _, token = world
    if path == "/v1/stream" and method in ("GET", "HEAD"):
        query += b"&topics=nothing-of-ours"  # a stream that is good would not end
    answer = asked(
        api, path, method=method, query=query, headers=headers | {"authorization": f"Bearer {token}"}, body=body
    )
    assert answer.status < 500, (method, path, query, headers, body, answer.body)
    if answer.status >= 400 and method != "HEAD":
        said = answer.json
        assert (said["status"], bool(said["detail"])) == (answer.status, True)


def _values(parameter: dict[str, Any]) -> st.SearchStrategy[str]:
    """Values that the document says a parameter may have."""
    schema = parameter["schema"]
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("type") == "boolean":
        return st.sampled_from(["true", "false"])
    if schema.get("type") == "integer":
        return st.integers(int(schema["minimum"]), int(schema.get("maximum", 1 << 40))).map(str)
    if schema.get("type") == "number":
        return st.floats(schema["minimum"], schema.get("maximum", 1e12), allow_nan=False).map(str)
    if parameter["name"] in ("at", "since"):
        return st.integers(0, bm.NOW_NS).map(str)
    return TEXTS


@st.composite
def good_requests(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]]]:
    path = draw(st.sampled_from(LISTS))
    known = [p for p in DOCUMENT["paths"][path]["get"]["parameters"] if p["name"] != "cursor"]
    chosen = draw(st.lists(st.sampled_from(known), max_size=4, unique_by=lambda p: p["name"]))
    return path, [(p["name"], draw(_values(p))) for p in chosen]


@cases(max_examples=400)
@given(request=good_requests())
def test_whatever_the_document_allows_is_answered(world: Any, request: tuple[str, list[tuple[str, str]]]) -> None:
    api, _, token = world
    path, parameters = request
    headers = {"authorization": f"Bearer {token}"}
    answer = asked(api, path, query=urlencode(parameters).encode(), headers=headers)
    assert answer.status == 200, (path, parameters, answer.body)
    page = answer.json
    assert page["total"] >= len(page["items"])
    while page["next"] is not None:  # a page behind another has other items
        seen = page["items"][-1]
        page = asked(api, path, query=urlencode([*parameters, ("cursor", page["next"])]).encode(), headers=headers).json
        assert page["items"], "next leads to something"
        assert seen not in page["items"]


ROLES = {"none": 0, "wrong": 0, "over": 0, "removed": 0, "hash": 0, "view": 1, "label": 2, "approve": 3, "admin": 4}
CALLS: dict[tuple[str, str], int] = {("GET", path): 1 for path in [*LISTS, "/metrics"]}
CALLS |= {("HEAD", path): 1 for path in LISTS}
CALLS |= {("GET", "/healthz"): 0, ("GET", "/openapi.json"): 0, ("GET", "/"): 0, ("GET", "/page/main.js"): 0}
CALLS |= {("GET", "/v1/history"): 1, ("POST", "/v1/alerts"): 2}
OVERRIDES = {"approve": 3, "refuse": 3, "undo": 3, "mode": 4, "hold": 4, "kill": 4, "": 4}


def test_of_a_thousand_calls_none_is_wrongly_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table above is written by hand, apart from the one in the code."""
    monkeypatch.setattr(callers_io, "uid_of", lambda lines, caller, ours: os.geteuid() if caller[1] == 1 else 4711)
    rng, wrong, refused = random.Random(17), [], 0
    with TemporaryDirectory() as folder:
        data = Path(folder)
        api = asgi.api_over(data, *asgi.boards(), override=lambda sent: {"taken": "x"})
        tokens = {role: tokens_io.add(data, role, role) for role in ("view", "label", "approve", "admin")}
        tokens["over"] = tokens_io.add(data, "over", "admin", expires_at_ns=1)
        tokens["removed"] = tokens_io.add(data, "removed", "admin")
        tokens_io.remove(data, "removed")
        tokens["wrong"] = tokens["admin"][:-1] + ("A" if tokens["admin"][-1] != "A" else "B")
        tokens["hash"] = hashed(tokens["admin"])
        for _ in range(1000):
            who = rng.choice(list(ROLES))
            owner = rng.random() < 0.2 and who == "none"
            through_proxy = owner and rng.random() < 0.5
            headers = {"host": "127.0.0.1:9465", "content-type": "application/json"}
            if who != "none":
                headers["authorization"] = f"Bearer {tokens[who]}"
            if through_proxy:
                headers[rng.choice(["x-forwarded-for", "forwarded", "via"])] = "192.0.2.9"
            has = 4 if owner and not through_proxy else ROLES[who]
            if rng.random() < 0.4:
                what = rng.choice(list(OVERRIDES))
                method, path, needs = "POST", "/v1/overrides", OVERRIDES[what]
                body = f'{{"id":"o","what":"{what}"}}'.encode()
            else:
                (method, path), needs = rng.choice(list(CALLS.items()))
                body = b'{"version":"4","receiver":"r","alerts":[]}' if method == "POST" else b""
            client = ("127.0.0.1", 1 if owner else rng.choice([2, 3]))
            answer = asked(api, path, method=method, headers=headers, body=body, client=client)
            allowed = answer.status < 400 or (path == "/v1/history" and answer.status == 400)  # it says of what
            refused += not allowed
            if allowed != (has >= needs):
                wrong.append((who, owner, through_proxy, method, path, body, answer.status))
    assert wrong == []
    assert 300 < refused < 900, "both were tried"
