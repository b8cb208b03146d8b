"""One replay, four ways to ask: the terminal's view, REST, SQL and Prometheus say the same numbers.

SQL counts for itself, from the tables; the others are views of the boards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sdfstream import pipeline
from sdfstream.archive.config import REPLAY, ArchiveConfig
from sdfstream.archive.query_io import Console
from sdfstream.archive.writer_io import Archive
from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.board.status_text import text_of
from sdfstream.records.message import Message
from sdfstream.runtime.replay import replay
from sdfstream.serve import past_io
from sdfstream.serve.api import openapi, tokens_io
from sdfstream.serve.api.app_io import Api
from sdfstream.serve.api.callers_io import Callers
from sdfstream.serve.api.follow_io import Followers
from sdfstream.serve.api.picture import Picture
from sdfstream.serve.api.pictures_io import Pictures
from sdfstream.serve.api.resources import RESOURCES
from sdfstream.serve.api.stream import ChangeLog
from sdfstream.settings import Settings
from tests.fixtures import asgi
from tests.fixtures.leafspine import EPOCH, Fabric, Fault, Shape
from tests.fixtures.notes import answered, label, lift, silence

END_S = 13.0
NUMBERS = (
    "nics healthy", "nics unhealthy", "nics unknown", "paths known", "paths measured", "paths lossy", "findings open",
    "findings resolved", "findings silenced", "clocks synced", "clocks known",
)  # fmt: skip


@dataclass
class World:
    board: Board
    jobs: JobBoard
    data: Path
    at_ns: int


@pytest.fixture
def world(tmp_path: Path, archive_folder: Path) -> World:
    """A fabric whose h01/r1 has lost its cable when the replay ends, through every stage, on board and in archive."""
    link = ("h01/r1->l1", "l1->h01/r1")
    faults = [Fault(links=link, at_s=6.0, until_s=60.0, drop=1.0)]
    shape = Shape(hosts=4, ports=2, rate_hz=8.0, clocks=False, owd=False)
    board, jobs = Board(), JobBoard()
    archive = Archive.open(ArchiveConfig(target=str(archive_folder), bus_id="replay", limits=REPLAY, replay=True))
    newest_ns = 0

    def everywhere(messages: list[Message]) -> None:
        nonlocal newest_ns
        newest_ns = max(newest_ns, *(m.bus_at_ns for m in messages))
        archive.add_blocking(messages)
        board.take(m for m in messages if m.topic in Board.reads)
        jobs.take(m for m in messages if m.topic in JobBoard.reads)

    def read() -> Iterator[Message]:
        for message in sorted(Fabric(3, faults, shape).messages(END_S), key=lambda m: m.bus_at_ns):
            everywhere([message])
            yield message

    end_ns = EPOCH + int(END_S * 1e9)
    for message in replay(read(), pipeline.stages(Settings()), EPOCH, end_ns):
        everywhere([message])
    about = next(
        f for f in board.findings(open_only=True) if (f["subject"]["type"], f["subject"]["id"]) == ("nic", "h01/r1")
    )
    at_ns = newest_ns
    said = [silence("nic", "h01/r1", at_ns=at_ns), silence("nic", "h00/r0", "s2", at_ns=at_ns)]
    said += [lift("s2", at_ns=at_ns), label(about["id"], "cabling", at_ns=at_ns)]
    everywhere([replace(message, bus_seq=1_000_000 + n) for n, message in enumerate(answered(*said))])
    archive.close_blocking()
    return World(board, jobs, tmp_path, newest_ns)


def by_terminal(view: dict[str, Any]) -> dict[str, int]:
    text = text_of(view)

    def found(pattern: str) -> int:
        match = re.search(pattern, text, re.MULTILINE)
        return int(match[1].replace(" ", "")) if match else 0

    return {
        "nics healthy": found(r"^NICs .*● (\d+) healthy"),
        "nics unhealthy": found(r"^NICs .*✖ (\d+) unhealthy"),
        "nics unknown": found(r"^NICs .*\? (\d+) unknown"),
        "paths known": found(r"^paths +(\d+) measured") + found(r"^paths .* (\d+) stale"),
        "paths measured": found(r"^paths +(\d+) measured"),
        "paths lossy": found(r"^paths .* (\d+) lossy"),
        "findings open": found(r"^findings +(\d+) open"),
        "findings resolved": found(r"^findings .* (\d+) resolved"),
        "findings silenced": found(r"^findings .*\((\d+) silenced\)"),
        "clocks synced": found(r"^clocks .*?(\d+) synced"),
        "clocks known": sum(found(rf"^clocks .*?(\d+) {s}\b") for s in ("synced", "holdover", "unsynced", "unknown")),
    }


async def by_rest(api: Api, headers: dict[str, str], at: str) -> dict[str, int]:
    async def total(path: str, query: str = "") -> int:
        answer = await asgi.ask(api, f"/v1/{path}", query=f"limit=1&{query}{at}".encode(), headers=headers)
        assert answer.status == 200, answer.body
        return int(answer.json["total"])

    return {
        "nics healthy": await total("nics", "state=healthy"),
        "nics unhealthy": await total("nics", "state=unhealthy"),
        "nics unknown": await total("nics", "state=unknown"),
        "paths known": await total("paths"),
        "paths measured": await total("paths", "state=measured"),
        "paths lossy": await total("paths", "min_loss=0.01"),
        "findings open": await total("findings", "open=true"),
        "findings resolved": await total("findings", "open=false"),
        "findings silenced": await total("findings", "silenced=true"),
        "clocks synced": await total("clocks", "status=synced"),
        "clocks known": await total("clocks"),
    }


async def by_prometheus(api: Api, headers: dict[str, str], at: str) -> dict[str, int]:
    answer = await asgi.ask(api, "/metrics", query=at.removeprefix("&").encode(), headers=headers)
    assert answer.status == 200, answer.body
    of = {
        (s.name, *s.labels.values()): int(s.value)
        for family in text_string_to_metric_families(answer.body.decode())
        for s in family.samples
        if s.name
        in (
            "sdf_nics",
            "sdf_paths",
            "sdf_findings_open",
            "sdf_findings_silenced",
            "sdf_findings_resolved",
            "sdf_clocks",
        )
    }
    return {
        **{f"nics {state}": of["sdf_nics", state] for state in ("healthy", "unhealthy", "unknown")},
        **{f"paths {which}": of["sdf_paths", which] for which in ("known", "measured", "lossy")},
        "findings open": sum(n for name, n in of.items() if name[0] == "sdf_findings_open"),
        "findings resolved": of["sdf_findings_resolved",],
        "findings silenced": sum(n for name, n in of.items() if name[0] == "sdf_findings_silenced"),
        "clocks synced": of["sdf_clocks", "synced"],
        "clocks known": sum(n for name, n in of.items() if name[0] == "sdf_clocks"),
    }


def by_sql(data: Path, at_ns: int) -> dict[str, int]:
    """Counted from the tables; weights of delays halve every 3 s, as the board's do."""
    at = f"fromUnixTimestamp64Nano(toInt64({at_ns}), 'UTC')"
    nics = """
        SELECT multiIf(countIf(state = 'unhealthy') > 0, 'unhealthy', countIf(state = 'healthy') = 2, 'healthy',
            'unknown') AS both
        FROM (SELECT nic, direction, argMax(state, bus_at) AS state FROM state_nic GROUP BY nic, direction) GROUP BY nic
    """
    paths = f"""
        SELECT max(bus_at) > {at} - toIntervalSecond(5) AS fresh, countIf(n > 0) > 0 AS measured,
            sum(n * w) AS kept, sum(lost * w) AS gone
        FROM (SELECT *, exp2(-dateDiff('millisecond', bus_at, {at}) / 3000) AS w FROM derived_owd)
        GROUP BY src, dst, transport, path, dscp, dir
    """
    clocks = "SELECT argMax(status, bus_at) AS status FROM state_clock WHERE kind = 'causal' GROUP BY clock"
    console = Console.open(str(data))
    try:

        def one(sql: str) -> int:
            return int(next(iter(console.answer(sql).rows[0].values())))

        return {
            **{
                f"nics {s}": one(f"SELECT countIf(both = '{s}') FROM ({nics})")
                for s in ("healthy", "unhealthy", "unknown")
            },
            "paths known": one(f"SELECT count() FROM ({paths})"),
            "paths measured": one(f"SELECT countIf(fresh AND measured) FROM ({paths})"),
            "paths lossy": one(f"SELECT countIf(fresh AND gone / (kept + gone) >= 0.01) FROM ({paths})"),
            "findings open": one("SELECT countIf(status != 'resolved') FROM v_findings"),
            "findings resolved": one("SELECT countIf(status = 'resolved') FROM v_findings"),
            "findings silenced": one(
                f"SELECT countIf(status != 'resolved' AND subject_id IN (SELECT subject FROM v_silences "
                f"WHERE from_at <= {at} AND until_at > {at})) FROM v_findings"
            ),
            "clocks synced": one(f"SELECT countIf(status = 'synced') FROM ({clocks})"),
            "clocks known": one(f"SELECT count() FROM ({clocks})"),
        }
    finally:
        console.close()


async def test_four_ways_to_ask_say_the_same_numbers(world: World) -> None:
    now = Picture(world.board, world.jobs, world.at_ns, world.at_ns)
    pictures = Pictures(lambda: now, lambda at_ns: past_io.past(str(world.data), None, at_ns))
    api = Api(pictures, Followers(ChangeLog("run"), pictures), Callers(world.data))
    headers = {"authorization": f"Bearer {tokens_io.add(world.data, 'test', 'view')}"}
    sql = by_sql(world.data, world.at_ns)
    assert set(sql) == set(NUMBERS)
    assert sql["nics unhealthy"] == 1, "the fault is there"
    assert sql["findings open"] >= 1
    assert sql["findings silenced"] == 1
    assert sql["paths measured"] > 20
    assert sql["clocks synced"] == 4
    assert by_terminal(world.board.view(world.at_ns)) == sql
    past = past_io.past(str(world.data), None, world.at_ns)
    assert by_terminal(past.answer({"want": "board"})) == sql, "as `sdfstream status --at`"
    for at in ("", f"&at={world.at_ns}"):
        assert await by_rest(api, headers, at) == sql, at
        assert await by_prometheus(api, headers, at) == sql, at


async def test_silences_and_labels_are_the_same_now_in_the_archive_and_in_sql(world: World) -> None:
    now = Picture(world.board, world.jobs, world.at_ns, world.at_ns)
    pictures = Pictures(lambda: now, lambda at_ns: past_io.past(str(world.data), None, at_ns))
    api = Api(pictures, Followers(ChangeLog("run"), pictures), Callers(world.data))
    headers = {"authorization": f"Bearer {tokens_io.add(world.data, 'test', 'view')}"}
    console = Console.open(str(world.data))
    try:
        silences = console.answer("SELECT id, subject, lifted_by FROM v_silences ORDER BY id").rows
        ((labelled, cause),) = (row.values() for row in console.answer("SELECT finding, cause FROM v_labels").rows)
    finally:
        console.close()
    for at in ("", f"at={world.at_ns}"):
        shown = (await asgi.ask(api, "/v1/silences", query=at.encode(), headers=headers)).json["items"]
        assert sorted([s["id"], s["subject"], s["lifted_by"]] for s in shown) == [[*s.values()] for s in silences]
        assert [s["state"] for s in shown] == ["in-force", "lifted"]
        found = (await asgi.ask(api, "/v1/findings", query=at.encode(), headers=headers)).json["items"]
        assert [(f["id"], f["label"]["cause"]) for f in found if f["label"]] == [(labelled, cause)]
        assert [f["silence"]["by"] for f in found if f["silence"]] == ["anna"]
    pages = [await asgi.ask(api, "/v1/silences", query=b"limit=1", headers=headers)]
    assert pages[0].json["total"] == 2
    cursor = f"limit=1&cursor={pages[0].json['next']}".encode()
    pages.append(await asgi.ask(api, "/v1/silences", query=cursor, headers=headers))
    assert [page.json["items"][0]["id"] for page in pages] == ["s1", "s2"]
    assert pages[1].json["next"] is None
    before = f"at={world.at_ns - 5 * 10**8}".encode()
    assert (await asgi.ask(api, "/v1/silences", query=before, headers=headers)).json["total"] == 0, "said later"


async def test_answers_are_what_the_document_says(world: World) -> None:
    now = Picture(world.board, world.jobs, world.at_ns, world.at_ns)
    pictures = Pictures(lambda: now, None)
    api = Api(pictures, Followers(ChangeLog("run"), pictures), Callers(world.data))
    headers = {"authorization": f"Bearer {tokens_io.add(world.data, 'test', 'view')}"}
    document = (await asgi.ask(api, "/openapi.json")).json
    assert document == openapi.document()
    answered = 0
    for name in RESOURCES:
        schema = document["paths"][f"/v1/{name}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        page = (await asgi.ask(api, f"/v1/{name}", headers=headers)).json
        jsonschema.Draft202012Validator(schema | {"components": document["components"]}).validate(page)
        answered += bool(page["items"])
    assert answered >= 6, "the schemas were held to something"
    health = document["paths"]["/healthz"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.validate((await asgi.ask(api, "/healthz")).json, health)
    refused = (await asgi.ask(api, "/v1/nics")).json
    jsonschema.validate(refused, document["components"]["schemas"]["problem"])
