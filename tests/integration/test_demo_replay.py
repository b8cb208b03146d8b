"""The demo's way out where no lab can be made: a recording with its truth, through the stages, scored, in SQL."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from sdfstream import cli
from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.cli import demo
from sdfstream.demo import namespace_io, replay_io
from sdfstream.errors import ConfigError
from sdfstream.records.topics import FINDING, OWD
from tests.fixtures.leafspine import EPOCH, Fabric, Fault, Shape

AT_S, UNTIL_S, END_S = 6.0, 10.0, 13.0


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A small fabric whose h01/r1 loses its cable for four seconds."""
    folder = tmp_path / "shipped"
    link = ("h01/r1->l1", "l1->h01/r1")
    fault = Fault(links=link, at_s=AT_S, until_s=UNTIL_S, drop=1.0)
    shape = Shape(hosts=4, ports=1, rate_hz=8.0, clocks=False, owd=False)
    writer = RecordingWriter(folder, cluster="lab", start_at_ns=EPOCH)
    writer.write(list(Fabric(3, [fault], shape).messages(END_S)))
    writer.finish(EPOCH + int(END_S * 1e9))
    (folder / "truth").mkdir()
    truth = {
        "id": "f1",
        "kind": "link-down",
        "target": "h01/r1",
        "direction": None,
        "at_ns": EPOCH + int(AT_S * 1e9),
        "healed_at_ns": EPOCH + int(UNTIL_S * 1e9),
        "parameters": {},
    }
    (folder / "truth" / "faults.jsonl").write_text(json.dumps(truth) + "\n")
    return folder


def test_a_recording_is_replayed_scored_and_can_be_asked_in_sql(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome, text = replay_io.replay_shipped(tmp_path / "data", recording)
    assert outcome["rows"] > 100
    assert outcome["outcome"]["right"] == 1, text
    assert "h01/r1" in text
    written = {p.name for p in (tmp_path / "data" / "replayed").iterdir()}
    assert {f"{FINDING.name}.jsonl", f"{OWD.name}.arrows"} <= written
    capsys.readouterr()
    query = "SELECT count() AS n FROM v_findings WHERE subject_id = 'h01/r1'"
    assert cli.main(["sql", "--json", "--data", str(tmp_path / "data"), query]) == 0
    assert '"n":1' in capsys.readouterr().out.replace(" ", "")


def test_what_cannot_be_replayed_is_said(recording: Path, tmp_path: Path) -> None:
    (recording / "truth" / "faults.jsonl").unlink()
    with pytest.raises(ConfigError, match="truth"):
        replay_io.replay_shipped(tmp_path / "data", recording)


def test_no_user_namespace_leads_to_the_recording(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(namespace_io.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(namespace_io, "_ENTER", ("false",))
    shipped = replay_io.replay_shipped
    monkeypatch.setattr(replay_io, "replay_shipped", lambda data: shipped(data, recording))
    args = SimpleNamespace(data=tmp_path / "data", replay=False, small=True, record=False, json=True)
    assert demo.run(args) == 0
    said = capsys.readouterr()
    assert "no user namespace" in said.err
    assert json.loads(said.out)["mode"] == "recording"
