"""The verbs about the past: what the archive says of an instant is what the running pipeline said at that instant."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sdfstream.archive.engine_io import Engine
from sdfstream.archive.target import Folder
from sdfstream.cli import main
from sdfstream.records.message import Output
from sdfstream.runtime.output_io import compact
from sdfstream.serve import past_io
from sdfstream.serve.query_io import fetch_board
from sdfstream.serve.service_io import service
from sdfstream.settings import Settings
from tests.fixtures import board_messages as bm
from tests.fixtures import switch_rows

WHOLE = {"hosts": 100, "worst": 100, "full": True}


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


async def publish_story(data: Path) -> dict[str, Any]:
    """A small fabric on the bus of a pipeline; its live board a little later, before the pipeline ends."""
    async with service(Settings(data=data)) as running:
        published_at_ns = time.time_ns()
        story = bm.small_fabric(published_at_ns)
        of_switch = replace(switch_rows.message("s0", 0.0, {"e1": {"rx_errors": 7}}), bus_at_ns=published_at_ns)
        story.append(of_switch)
        await running.bus.publish([Output(m.topic, m.key, m.body, m.boot_id, m.batch_seq) for m in story])
        async with asyncio.timeout(20):
            while True:
                live = await asyncio.to_thread(fetch_board, data, **WHOLE)
                if live["nics"]["known"] == 16 and live["paths"]["known"] and len(live["findings"]["open"]) >= 2:
                    break
                await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)  # what the stages said of it has reached board and archive
        live = await asyncio.to_thread(fetch_board, data, **WHOLE)
    return live | {"published_at_ns": published_at_ns}


def shown(board: dict[str, Any]) -> dict[str, Any]:
    """What a board says, without ages and what only a running pipeline has."""
    paths, clocks = board["paths"], board["clocks"]
    return {
        "nics": board["nics"],
        "nic_list": [{k: n.get(k) for k in ("nic", "rail", "tx", "rx", "state", "port")} for n in board["nic_list"]],
        "paths": {k: paths[k] for k in ("known", "measured", "stale", "lossy", "marked", "silent")},
        "worst": {p["id"]: (p.get("loss"), p.get("ce")) for p in paths["worst"]},
        "clocks": (clocks["known"], clocks["by_status"]),
        "findings": {f["id"]: f["status"] for f in board["findings"]["open"]},
        "resolved": board["findings"]["resolved"],
    }


@pytest.mark.usefixtures("archive_folder")
async def test_the_archive_says_of_an_instant_what_the_pipeline_said_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = await publish_story(tmp_path)
    then = await asyncio.to_thread(past_io.past, str(tmp_path), None, live["at_ns"])
    past = json.loads(compact(then.answer({"want": "board", **WHOLE})))
    assert shown(past) == shown(live)
    assert live["paths"]["owd_p50_ns"] == pytest.approx(past["paths"]["owd_p50_ns"], abs=1.0), "1/16 ns on the way in"
    assert then.source["kind"] == "archive"
    assert then.source["as_of_ns"] == live["at_ns"]

    data = ("--data", str(tmp_path))
    code, out, err = await asyncio.to_thread(ask, capsys, "findings", "--json", *data)
    found = json.loads(out)
    assert code == 0, err
    assert found["source"]["as_of_ns"] == found["source"]["ends_at_ns"] == found["at_ns"], "as of its last moment"
    assert {"f0", "f1", "f2"} <= {f["id"] for f in found["findings"]}
    code, out, err = await asyncio.to_thread(ask, capsys, "status", *data)
    assert code == 0, err
    head, *rest = out.splitlines()
    assert head.startswith("as of "), head
    assert f"from the archive {tmp_path / 'archive'}: its last moment" in head
    assert "nothing refused" not in out, "an archive does not know what was refused"
    assert any(line.startswith("findings ") and "resolved" in line for line in rest)
    code, out, _ = await asyncio.to_thread(ask, capsys, "top", "--once", "--width", "120", *data)
    assert code == 0
    assert out.startswith("sdfstream archive, as of "), out[:80]
    of_switches = "SELECT port, rx_errors FROM raw_port WHERE startsWith(boot_id, 'gnmi-')"
    code, out, err = await asyncio.to_thread(ask, capsys, "sql", of_switches, "--json", *data)
    assert code == 0, err
    assert "s0/e1:1" in out, "the archive has rows of switches, the boards have not"
    page = (Path(__file__).parents[2] / "docs" / "switches.md").read_text(encoding="utf-8")
    for statement in page.partition("```sql\n")[2].partition("```")[0].rstrip(";\n").split(";\n"):
        code, out, err = await asyncio.to_thread(ask, capsys, "sql", statement.rstrip(" ;\n"), "--json", *data)
        assert code == 0, err


@pytest.mark.usefixtures("archive_folder")
async def test_what_nobody_reported_any_more_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live = await publish_story(tmp_path)
    later = await asyncio.to_thread(past_io.past, str(tmp_path), None, live["at_ns"] + 60_000_000_000)
    board = later.answer({"want": "board", **WHOLE})
    assert board["nics"] == {"healthy": 0, "unhealthy": 0, "unknown": 16, "absent": 0, "known": 16}
    assert (board["paths"]["measured"], board["paths"]["stale"]) == (0, board["paths"]["known"])
    assert set(board["clocks"]["by_status"]) == {"unknown"}
    assert board["known_at_ns"] <= later.ends_at_ns, "findings speak of the newest row"
    code, out, _ = await asyncio.to_thread(
        ask, capsys, "status", "--at", "2020-01-01", "--data", str(tmp_path)
    )  # before anything was archived
    assert code == 0
    assert "which has nothing up to then" in out.splitlines()[0]
    assert "none known yet" in out
    code, out, err = await asyncio.to_thread(ask, capsys, "commands", "--follow", "--at", "5m", "--data", str(tmp_path))
    assert (code, "--follow" in err) == (2, True)


@pytest.mark.usefixtures("archive_folder")
async def test_where_windows_have_expired_their_seconds_answer(tmp_path: Path) -> None:
    live = await publish_story(tmp_path)

    def without_windows() -> dict[str, Any]:
        engine = Engine.open(Folder(str(tmp_path / "archive")))
        engine.command("TRUNCATE TABLE derived_owd")
        engine.close()
        then = past_io.past(str(tmp_path), None, live["published_at_ns"] + 2_000_000_000)  # their second is over
        return then.answer({"want": "board", **WHOLE})

    board = await asyncio.to_thread(without_windows)
    for name in ("known", "measured", "lossy"):
        assert board["paths"][name] == live["paths"][name], name
    assert board["paths"]["owd_p50_ns"] == pytest.approx(live["paths"]["owd_p50_ns"], abs=1.0)


@pytest.mark.usefixtures("archive_folder")
async def test_a_finding_that_an_earlier_run_left_open_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await publish_story(tmp_path)
    async with service(Settings(data=tmp_path)) as running:  # another run of the in-process bus
        await running.bus.publish([Output(m.topic, m.key, m.body) for m in [bm.clocks({"h00": 500.0}, time.time_ns())]])
        await asyncio.sleep(0.5)
    then = await asyncio.to_thread(past_io.past, str(tmp_path))
    board = then.answer({"want": "board", **WHOLE})
    assert board["nics"]["known"] == 0, "states of another run are none of this one's"
    found = {f["id"]: f.get("left_open", False) for f in then.answer({"want": "findings"})["findings"]}
    assert (found["f1"], found["f0"]) == (True, False), "only what was open was left open"
    code, out, _ = await asyncio.to_thread(ask, capsys, "findings", "--data", str(tmp_path))
    line = next(line for line in out.splitlines() if line.startswith("f1 "))
    assert (code, "whether it still holds is unknown" in line) == (0, True)


def test_an_empty_data_folder_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (["findings"], ["status"], ["commands"], ["why", "j"], ["top", "--once"]):
        code, out, err = ask(capsys, *verb, "--data", str(tmp_path))
        assert (code, out) == (2, ""), verb
        assert "no pipeline runs" in err, verb
        assert "no archive" in err, verb
