"""Requests to the API: who is let in, what is answered, what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sdfstream.alerts.received import ReceivedAlerts
from sdfstream.serve.api import callers_io, tokens_io
from sdfstream.serve.api.app_io import Api
from sdfstream.serve.api.callers_io import Callers
from sdfstream.serve.api.follow_io import Followers
from sdfstream.serve.api.picture import Picture
from sdfstream.serve.api.pictures_io import Pictures
from sdfstream.serve.api.resources import RESOURCES
from sdfstream.serve.api.stream import ChangeLog
from tests.fixtures import asgi
from tests.fixtures import board_messages as bm
from tests.fixtures.notes import answered, label, silence
from tests.unit.alerts.test_webhook import raw

OWNER = ("127.0.0.1", 40_001)


@pytest.fixture
def taken() -> list[Any]:
    return []


@pytest.fixture
def api(tmp_path: Path, taken: list[Any]) -> Api:
    def override(given: Any) -> dict[str, Any]:
        taken.append(given)
        return {"taken": str(given.get("id"))} if given.get("id") else {"error": "id must be str"}

    return asgi.api_over(tmp_path, *asgi.boards(), override=override)


@pytest.fixture
def view(tmp_path: Path, api: Api) -> dict[str, str]:
    return {"Authorization": f"Bearer {tokens_io.add(tmp_path, 'grafana', 'view')}"}


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kernel says that `OWNER` is a socket of this process's user."""
    monkeypatch.setattr(callers_io, "uid_of", lambda lines, caller, ours: os.geteuid() if caller == OWNER else 4711)
    yield


async def test_every_list_says_how_old_its_data_is(api: Api, view: dict[str, str]) -> None:
    for name in RESOURCES:
        answer = await asgi.ask(api, f"/v1/{name}", headers=view)
        assert answer.status == 200, (name, answer.body)
        page = answer.json
        assert (page["as_of_ns"], page["data_age_ns"], page["fresh"]) == (bm.NOW_NS, 0, True), name
        assert page["source"] == {"kind": "pipeline"}
        assert answer.headers["cache-control"] == "no-store"


async def test_unknown_is_not_healthy(api: Api, view: dict[str, str]) -> None:
    nics = {n["nic"]: n for n in (await asgi.ask(api, "/v1/nics", headers=view)).json["items"]}
    assert nics["h05/r0"]["state"] == "unknown", "stated healthy a minute ago, and nothing since"
    assert nics["h03/r1"]["state"] == "unhealthy"
    assert nics["h06/r0"]["state"] == "absent"
    two = (await asgi.ask(api, "/v1/nics", query=b"nic=h03/r1,h00/r0,h99/r0,h00/r0", headers=view)).json
    assert [n["nic"] for n in two["items"]] == ["h00/r0", "h03/r1"] and two["total"] == 2


async def test_filters_choose_and_pages_hold_everything_once(api: Api, view: dict[str, str]) -> None:
    whole = (await asgi.ask(api, "/v1/paths", query=b"limit=1000", headers=view)).json
    ids = [path["id"] for path in whole["items"]]
    assert whole["total"] == len(ids) == len(set(ids)) > 40
    assert whole["next"] is None
    got: list[str] = []
    query = "limit=7"
    while True:
        page = (await asgi.ask(api, "/v1/paths", query=query.encode(), headers=view)).json
        got += [path["id"] for path in page["items"]]
        if page["next"] is None:
            break
        query = f"limit=7&cursor={page['next']}"
    assert got == ids
    lossy = (await asgi.ask(api, "/v1/paths", query=b"min_loss=0.01", headers=view)).json
    assert [(path["state"], path["loss"], path["owd_p50_ns"]) for path in lossy["items"]] == [("lost", 1.0, None)]
    back = (await asgi.ask(api, "/v1/paths", query=b"dir=rev&limit=1000", headers=view)).json["items"]
    assert {path["loss"] for path in back} == {None}, "a lost exchange has no direction: it is told on fwd"
    found = (await asgi.ask(api, "/v1/findings", query=b"open=true&kind=congestion", headers=view)).json
    assert [f["id"] for f in found["items"]] == ["f2"]


@pytest.mark.parametrize(
    ("path", "query", "status", "words"),
    [
        ("/v1/nics", b"stat=healthy", 400, "there is no parameter"),
        ("/v1/nics", b"state=well", 400, "one of healthy"),
        ("/v1/nics", b"limit=0", 400, "from 1 to 1000"),
        ("/v1/nics", b"limit=1&limit=2", 400, "stands twice"),
        ("/v1/nics", b"cursor=abc", 400, "not the `next`"),
        ("/v1/nics", b"at=noon", 400, "an instant"),
        ("/v1/nics", b"at=2099-01-01", 400, "future"),
        ("/v1/nics", b"at=2020-01-01", 503, "no archive"),
        ("/v1/findings", b"open=1", 400, "true or false"),
        ("/v1/paths", b"min_loss=nan", 400, "a number"),
        ("/v1/nics", b"x=" + b"y" * 9000, 413, "longer"),
        ("/v1/stream", b"topics=finding,weather", 400, "there is no 'weather'"),
        ("/v1/nowhere", b"", 404, "/v1/nics"),
    ],
)
async def test_what_cannot_be_answered_is_a_problem_in_words(
    api: Api, view: dict[str, str], path: str, query: bytes, status: int, words: str
) -> None:
    answer = await asgi.ask(api, path, query=query, headers=view)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    assert words in answer.json["detail"]


async def test_a_cursor_of_another_question_is_refused(api: Api, view: dict[str, str]) -> None:
    page = (await asgi.ask(api, "/v1/nics", query=b"limit=3", headers=view)).json
    other = await asgi.ask(api, "/v1/nics", query=b"limit=3&host=h01&cursor=" + page["next"].encode(), headers=view)
    assert (other.status, "another question" in other.json["detail"]) == (400, True)
    elsewhere = await asgi.ask(api, "/v1/clocks", query=b"cursor=" + page["next"].encode(), headers=view)
    assert elsewhere.status == 400


async def test_nobody_gets_in_without_a_token_but_the_owner_on_loopback(api: Api, loopback: None) -> None:
    assert (await asgi.ask(api, "/v1/nics")).status == 401
    assert (await asgi.ask(api, "/v1/nics", headers={"Authorization": "Bearer sdf_wrong"})).status == 401
    local = {"Host": "127.0.0.1:9465"}
    assert (await asgi.ask(api, "/v1/nics", headers=local, client=OWNER)).status == 200
    assert (await asgi.ask(api, "/v1/nics", headers=local, client=("127.0.0.1", 40_002))).status == 401, "another user"
    forwarded = local | {"X-Forwarded-For": "192.0.2.1"}
    assert (await asgi.ask(api, "/v1/nics", headers=forwarded, client=OWNER)).status == 401, "a proxy of the owner's"
    for host, status in (("evil.example:9465", 421), ("localhost:9465", 200), ("[::1]:9465", 200), ("", 400)):
        assert (await asgi.ask(api, "/v1/nics", headers={"Host": host}, client=OWNER)).status == status, host
    for origin in ("http://evil.example", "http://[", "null"):
        page = local | {"Origin": origin}
        assert (await asgi.ask(api, "/v1/nics", headers=page, client=OWNER)).status == 403, origin
    assert (
        await asgi.ask(api, "/v1/nics", headers=local | {"Sec-Fetch-Site": "cross-site"}, client=OWNER)
    ).status == 403
    own = local | {"Origin": "http://127.0.0.1:9465", "Sec-Fetch-Site": "same-origin"}
    assert (await asgi.ask(api, "/v1/nics", headers=own, client=OWNER)).status == 200
    for path in ("/healthz", "/openapi.json"):
        assert (await asgi.ask(api, path)).status == 200, "anybody may ask"


async def test_an_override_needs_the_role_that_fits_it(api: Api, tmp_path: Path, taken: list[Any]) -> None:
    kind = {"Content-Type": "application/json"}
    tokens = {
        r: {"Authorization": f"Bearer {tokens_io.add(tmp_path, r, r)}"} | kind for r in ("view", "approve", "admin")
    }
    approval, mode = b'{"id": "o1", "what": "approve"}', b'{"id": "o2", "what": "mode"}'
    for role, body, status in (
        ("view", approval, 403), ("approve", approval, 202), ("approve", mode, 403), ("admin", mode, 202),
        ("admin", b"[]", 400), ("admin", b"{", 400), ("admin", b'{"what": "mode"}', 400),
        ("admin", b" " * 70_000, 413),
    ):  # fmt: skip
        answer = await asgi.ask(api, "/v1/overrides", method="POST", headers=tokens[role], body=body)
        assert answer.status == status, (role, body[:40], answer.body)
    assert [given["id"] for given in taken if given.get("id")] == ["o1", "o2"]
    plain = tokens["admin"] | {"Content-Type": "text/plain"}  # what a page's form could send
    assert (await asgi.ask(api, "/v1/overrides", method="POST", headers=plain, body=mode)).status == 415
    assert (await asgi.ask(api, "/v1/nics", method="POST", headers=tokens["admin"])).status == 405


async def test_who_may_say_something_of_findings(tmp_path: Path, taken: list[Any]) -> None:
    board, jobs = asgi.boards()
    board.take(answered(silence("host", "h03", "o-plain"), silence("host", "h04", "o-work", maintenance=True)))
    api = asgi.api_over(tmp_path, board, jobs, override=lambda given: taken.append(given) or {"taken": given["id"]})
    roles = ("view", "label", "approve", "admin")
    tokens = {r: {"Authorization": f"Bearer {tokens_io.add(tmp_path, r, r)}"} for r in roles}

    def lift(name: Any) -> dict[str, Any]:
        return {"what": "lift", "target": {"type": "override", "id": name}}

    for wanted, given in (
        ("label", {"what": "label"}),
        ("label", {"what": "silence"}),
        ("label", {"what": "silence", "set": {"maintenance": False}}),
        ("approve", {"what": "silence", "set": {"maintenance": True}}),
        ("approve", {"what": "silence", "set": {"maintenance": 0}}),
        ("approve", {"what": "silence", "set": "maintenance"}),
        ("label", lift("o-plain")),
        ("approve", lift("o-work")),
        ("admin", lift("o-hold")),
        ("admin", lift(["o-plain"])),
        ("admin", {"what": "lift"}),
        ("admin", {"what": "hold"}),
    ):
        for role in roles:
            headers = tokens[role] | {"Content-Type": "application/json"}
            body = json.dumps({"id": "o1"} | given).encode()
            answer = await asgi.ask(api, "/v1/overrides", method="POST", headers=headers, body=body)
            may = roles.index(role) >= roles.index(wanted)
            assert answer.status == (202 if may else 403), (role, given, answer.body)


async def test_silenced_findings_are_asked_for_apart(tmp_path: Path) -> None:
    board, jobs = asgi.boards()
    board.take(answered(silence("host", "h03", reason="firmware"), label("f2", "false-alarm")))
    api = asgi.api_over(tmp_path, board, jobs)
    headers = {"Authorization": f"Bearer {tokens_io.add(tmp_path, 'v', 'view')}"}

    async def items(path: str, query: bytes) -> list[dict[str, Any]]:
        return list((await asgi.ask(api, f"/v1/{path}", query=query, headers=headers)).json["items"])

    (silenced,) = await items("findings", b"silenced=true")
    until_ns = bm.NOW_NS + 3600 * 10**9
    said = {"id": "s1", "by": "anna", "until_ns": until_ns, "reason": "firmware", "maintenance": False}
    assert (silenced["id"], silenced["silence"], silenced["label"]) == ("f1", said, None)
    others = await items("findings", b"silenced=false")
    assert [(f["id"], (f["label"] or {}).get("cause")) for f in others] == [("f0", None), ("f2", "false-alarm")]
    for query, n in ((b"subject=host+h03", 1), (b"subject=h03", 1), (b"subject=h02", 0), (b"maintenance=true", 0),
                     (b"state=over", 0), (b"id=s1", 1)):  # fmt: skip
        assert len(await items("silences", query)) == n, query


async def test_health_means_that_data_is_fresh(tmp_path: Path) -> None:
    board, jobs = asgi.boards()
    fresh = await asgi.ask(asgi.api_over(tmp_path, board, jobs), "/healthz")
    assert (fresh.status, fresh.json["fresh"]) == (200, True)
    empty = await asgi.ask(asgi.api_over(tmp_path, type(board)(), type(jobs)()), "/healthz")
    assert (empty.status, empty.json["why"]) == (503, "no host has reported anything yet")
    stale = asgi.api_over(tmp_path, board, jobs)
    later = bm.NOW_NS + 6_000_000_000
    stale._pictures._now = lambda: asgi.Picture(board, jobs, later, later)
    answer = await asgi.ask(stale, "/healthz")
    assert (answer.status, answer.json["why"]) == (503, "the newest data is 6.0 s old")
    token = {"Authorization": f"Bearer {tokens_io.add(tmp_path, 'v', 'view')}"}
    assert (await asgi.ask(stale, "/v1/nics", query=b"state=healthy", headers=token)).json["total"] == 0
    assert (await asgi.ask(stale, "/v1/paths", query=b"state=measured", headers=token)).json["total"] == 0


async def test_an_alertmanager_says_what_it_told_of(tmp_path: Path) -> None:
    board, jobs = asgi.boards()
    known = ReceivedAlerts()
    pictures = Pictures(lambda: Picture(board, jobs, bm.NOW_NS, bm.NOW_NS, received=known), None)
    api = Api(pictures, Followers(ChangeLog("run"), pictures), Callers(tmp_path), received=known)
    tokens = {role: f"Bearer {tokens_io.add(tmp_path, role, role)}" for role in ("view", "label")}

    async def post(role: str, body: bytes, form: str = "application/json") -> int:
        headers = {"authorization": tokens.get(role, ""), "content-type": form} if role else {"content-type": form}
        return (await asgi.ask(api, "/v1/alerts", method="POST", headers=headers, body=body)).status

    assert await post("", raw()) == 401
    assert await post("view", raw()) == 403
    assert await post("label", raw(), "text/plain") == 415
    assert await post("label", raw(version="3")) == 400
    assert await post("label", b" " * (2 << 20)) == 413
    assert known.items() == []
    assert known.counters.as_dict() == {"received.refused.version": 1}
    assert await post("label", raw({"labels": {"alertname": "SdfFinding", "id": "f1"}})) == 202
    view = {"authorization": tokens["view"]}
    page = (await asgi.ask(api, "/v1/alerts", query=b"finding=f1&status=firing", headers=view)).json
    assert [(item["receiver"], item["status"]) for item in page["items"]] == [("sdfstream", "firing")]
    assert (await asgi.ask(api, "/v1/alerts", query=b"status=resolved", headers=view)).json["total"] == 0
    document = (await asgi.ask(api, "/openapi.json")).json
    assert document["paths"]["/v1/alerts"].keys() == {"get", "post"}
