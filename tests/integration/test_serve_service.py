"""The verbs against a whole pipeline with its own controller, then against the archive that it left."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from sdfstream.cli import main
from sdfstream.records.message import Output
from sdfstream.records.topics import FINDING, QP_WINDOW
from sdfstream.serve.service_io import service
from sdfstream.settings import Settings
from tests.fixtures.job_cases import messages_of


async def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = await asyncio.to_thread(main, list(words))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.usefixtures("archive_folder")
async def test_why_policy_and_undo_live_and_afterwards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ("--data", str(tmp_path))
    story = messages_of("hurt", time.time_ns())
    async with service(Settings(data=tmp_path)) as running:
        await running.bus.publish([Output(m.topic, m.key, m.body, m.boot_id, m.batch_seq) for m in story])
        async with asyncio.timeout(20):
            while True:
                code, out, _ = await call(capsys, "why", "train-7", *data, "--json")
                live = json.loads(out)
                if live["case"] == "hurt" and live["jobs"] and live["commands"]:
                    break
                await asyncio.sleep(0.2)
        assert code == 0
        assert live["paragraph"].startswith(
            "Yes, the network holds up job train-7: link l0--s1 (from l0 to s1) is congested"
        )
        assert "×9.0, n = 20" in live["paragraph"]

        code, out, err = await call(capsys, "policy", "mode", "observe", *data)
        assert (code, "mode is observe from now on" in out) == (0, True), err
        code, out, err = await call(capsys, "policy", "hold", "job:train-7", *data)
        assert (code, "nothing is done to train-7" in out) == (0, True), err
        code, out, _ = await call(capsys, "policy", "show", *data, "--json")
        shown = json.loads(out)
        assert (shown["mode"], shown["mode_in_settings"]) == ("observe", "dry-run")
        assert [o["what"] for o in shown["overrides"]] == ["hold", "mode"]
        code, out, _ = await call(capsys, "undo", "c1", *data)
        assert (code, "refused by controller" in out, "unknown-command" in out) == (2, True, True)
        code, out, _ = await call(capsys, "approve", "nope", *data)
        assert (code, "waits for approval" in out) == (2, True)
        code, out, _ = await call(capsys, "commands", *data, "--json")
        known = json.loads(out)["commands"]
        assert "c1" in [c["id"] for c in known]
        assert not [c for c in known if "override" in c["target"]], "answers to overrides are no commands"

    at = "0s"
    code, out, err = await call(capsys, "why", "train-7", *data, "--at", at, "--json")
    assert code == 0, err
    past = json.loads(out)
    for name in ("network", "case", "where", "since_at_ns", "jobs"):
        assert past[name] == live[name], name
    assert past["findings"][: len(live["findings"])] == live["findings"], "more may be found until the end"
    assert "c1" in past["commands"]
    for name in ("throughput_now_bps", "throughput_before_bps", "throughput_before_n", "throughput_low_bps", "slowest"):
        assert past["numbers"][name] == pytest.approx(live["numbers"][name]), name
    code, out, _ = await call(capsys, "why", "train-7", *data, "--at", "10m ago", "--json")
    assert (code, json.loads(out)["case"]) == (2, "unknown-job")
    code, out, _ = await call(capsys, "commands", *data, "--job", "train-7")
    assert "applied 50001→50002" in out
    assert {FINDING.name, QP_WINDOW.name} <= {m.topic for m in story}


def test_an_instant_as_people_type_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from sdfstream.serve.past_io import instant

    assert instant("2027-01-15T08:00:00.5Z") == 1_800_000_000_500_000_000
    assert instant("2027-01-15T09:00:00+01:00") == instant("2027-01-15T08:00:00") == 1_800_000_000_000_000_000
    assert abs(instant("10m ago") - (time.time_ns() - 600_000_000_000)) < 5_000_000_000
    assert main(["why", "x", "--at", "noon", "--data", str(tmp_path)]) == 2
    assert "is no instant" in capsys.readouterr().err
    assert main(["why", "x", "--at", "1m", "--data", str(tmp_path)]) == 2
    assert "no archive" in capsys.readouterr().err
