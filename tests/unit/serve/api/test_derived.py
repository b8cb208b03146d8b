"""Lists that are worked out for the page say what the boards say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.board.why import explain
from sdfstream.serve.api import tokens_io
from sdfstream.serve.api.app_io import Api
from tests.fixtures import asgi
from tests.fixtures import board_messages as bm
from tests.fixtures.job_cases import SLOW
from tests.fixtures.job_messages import World


@pytest.fixture
def boards() -> tuple[Board, JobBoard]:
    board, jobs = asgi.boards()
    world = World()
    story = [*world.running("train-7", "train-8"), *world.windows("train-7", -60, -10, 1e9)]
    story += [*world.windows("train-7", -10, 0, SLOW), world.finding()]
    board.take(m for m in story if m.topic in Board.reads)
    jobs.take(m for m in story if m.topic in JobBoard.reads)
    return board, jobs


async def items(boards: tuple[Board, JobBoard], data: Path, path: str, query: str = "") -> list[dict[str, Any]]:
    api: Api = asgi.api_over(data, *boards)
    headers = {"Authorization": f"Bearer {tokens_io.add(data, f't{path}{len(query)}', 'view')}"}
    answer = await asgi.ask(api, f"/v1/{path}", query=query.encode(), headers=headers)
    assert answer.status == 200, answer.body
    return list(answer.json["items"])


async def test_queue_pairs_with_their_route(boards: tuple[Board, JobBoard], tmp_path: Path) -> None:
    found = await items(boards, tmp_path, "qps", "job=train-7")
    assert [qp["qp"] for qp in found] == ["h00/r0#16", "h00/r0#17", "h02/r0#16", "h02/r0#17"]
    rates = {qp["qp"]: qp["rate_bps"] for qp in found}
    assert rates["h00/r0#17"] == pytest.approx(1e8, rel=0.01)
    over = await items(boards, tmp_path, "qps", "node=s1")
    assert {qp["qp"] for qp in over} == {"h00/r0#17", "h02/r0#17", "h01/r0#17"}
    assert {qp["job"] for qp in await items(boards, tmp_path, "qps", "node=h01")} == {"train-8"}


async def test_why_is_what_the_terminal_says(boards: tuple[Board, JobBoard], tmp_path: Path) -> None:
    found = await items(boards, tmp_path, "why")
    expected = explain(boards[1].facts("train-7", bm.NOW_NS, bm.NOW_NS))
    first = next(one for one in found if one["job"] == "train-7")
    assert first["sentences"] == list(expected.sentences)
    newest_first = ["f2", "f1"]
    assert (first["network"], first["findings"]) == ("yes", newest_first)
    assert [one["case"] for one in await items(boards, tmp_path, "why", "job=nobody")] == ["unknown-job"]


async def test_cells_by_host_and_by_leaf(boards: tuple[Board, JobBoard], tmp_path: Path) -> None:
    hosts = await items(boards, tmp_path, "cells")
    assert {row["by"] for row in hosts} == {"host"}
    assert [row["src"] for row in hosts] == ["h00", "h01", "h02", "h03", "h04", "h06", "h07"]
    leaves = await items(boards, tmp_path, "cells", "by=leaf&percentile=99&figure=excess")
    assert {row["src"] for row in leaves} == {"l0", "l1", "no leaf"}


async def test_the_pipeline_in_figures(boards: tuple[Board, JobBoard], tmp_path: Path) -> None:
    found = await items(boards, tmp_path, "pipeline")
    by_id = {item["id"]: item for item in found}
    assert by_id["topic sdf.derived.owd.v1"]["rows_per_s"] > 0
    assert by_id["hosts all"]["count"] == 7, "h05 said nothing"
    assert {item["type"] for item in await items(boards, tmp_path, "pipeline", "type=topic")} == {"topic"}
