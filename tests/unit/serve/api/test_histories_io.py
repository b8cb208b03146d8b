"""Questions about stretches of the past: what is refused, and what the archive is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sdfstream.errors import ArchiveError
from sdfstream.records.units import NS_PER_S
from sdfstream.serve.api import openapi, tokens_io
from sdfstream.serve.api.histories_io import Read
from sdfstream.serve.history_io import MOST_POINTS, statement
from tests.fixtures import asgi
from tests.fixtures import board_messages as bm


async def answer(data: Path, read: Read | None, query: str) -> asgi.Answer:
    api = asgi.api_over(data, *asgi.boards(), history=read)
    headers = {"Authorization": f"Bearer {tokens_io.add(data, f't{len(query)}', 'view')}"}
    return await asgi.ask(api, "/v1/history", query=query.encode(), headers=headers)


async def test_an_answer_is_what_the_document_says(tmp_path: Path) -> None:
    seen: list[Any] = []

    def read(asked: Mapping[str, Any], end_ns: int) -> dict[str, Any]:
        seen.append((dict(asked), end_ns))
        return {"step_ns": NS_PER_S, "items": [{"at_ns": end_ns, "mean_bps": 1e9}]}

    said = await answer(tmp_path, read, "job=train-7")
    assert said.status == 200, said.body
    schema = openapi.document()["paths"]["/v1/history"]["get"]["responses"]["200"]["content"]["application/json"]
    jsonschema.validate(said.json, schema["schema"])
    assert seen == [({"job": "train-7", "span_s": 3600}, bm.NOW_NS)]


@pytest.mark.parametrize(
    "query", ["", "a=h00", "a=h00&b=h01&job=x", "nic=h00/r0&job=x", "job=x&span_s=0", "job=x&at=9999-01-01"]
)
async def test_a_question_of_nothing_or_of_two_things_is_refused(tmp_path: Path, query: str) -> None:
    assert (await answer(tmp_path, lambda asked, end_ns: {"step_ns": 1, "items": []}, query)).status == 400


async def test_without_an_archive_it_says_so(tmp_path: Path) -> None:
    said = await answer(tmp_path, None, "job=x")
    assert (said.status, "no archive" in said.json["detail"]) == (503, True)


async def test_an_archive_that_fails_is_no_defect(tmp_path: Path) -> None:
    def fails(asked: Mapping[str, Any], end_ns: int) -> dict[str, Any]:
        raise ArchiveError("it is away")

    said = await answer(tmp_path, fails, "nic=h00/r0")
    assert (said.status, "it is away" in said.json["detail"]) == (503, True)


def test_names_are_quoted_and_steps_grow_with_the_span() -> None:
    sql, step = statement({"job": "x' OR 1=1 --", "span_s": 86_400}, bm.NOW_NS)
    assert "'x\\' OR 1=1 --'" in sql
    assert step == 86_400 // MOST_POINTS
    assert statement({"nic": "h00/r0", "span_s": 60}, bm.NOW_NS)[1] == 1


def test_the_sql_of_4000_nics_is_short_enough() -> None:
    leaf_of = {f"gpu-{i // 8:04d}/mlx5_{i % 8}": f"leaf-{i // 64}" for i in range(4000)}
    sql, _ = statement({"cells": "owd", "leaf_of": leaf_of, "span_s": 60}, bm.NOW_NS)
    assert len(sql) < 200_000, "ClickHouse reads 262,144 characters"
