"""The client and ``sdfstream export`` on the shipped recording in an archive; docs/client.md word by word."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.cli import main
from sdfstream.client import Fabric
from sdfstream.errors import BusError, ConfigError, SdfError
from sdfstream.records.topics import LIVENESS, OWD, PROBE
from tests.fixtures.engines import SHIPPED

ROOT = Path(__file__).parents[2]
QUESTIONS = re.findall(r"### (\d+)\. ([^\n]+)\n\n```python\n(.*?)```", (ROOT / "docs" / "client.md").read_text(), re.S)


@pytest.fixture
def replayed(shipped_replay: Path) -> Path:
    return shipped_replay


@pytest.fixture
def fabric(replayed: Path) -> Iterator[Fabric]:
    with Fabric(replayed, recording=SHIPPED) as opened:
        yield opened


def test_the_page_has_ten_questions() -> None:
    assert [int(number) for number, _, _ in QUESTIONS] == list(range(1, 11))


@pytest.mark.parametrize(("number", "question", "code"), QUESTIONS, ids=[q[1] for q in QUESTIONS])
def test_the_pages_code_answers_its_question(fabric: Fabric, number: str, question: str, code: str) -> None:
    names: dict[str, Any] = {"fabric": fabric, "pl": pl}
    exec(code, names)
    answer = names["answer"]
    assert isinstance(answer, pl.DataFrame), question
    assert answer.height or number == "3", question
    if number == "1":
        assert {"nic-down", "nic-flap"} & set(answer["kind"])
    if number == "3":
        assert set(fabric.nics()["state"]) == {"healthy"}, "every fault of the recording is over at its end"
    if number == "6":
        assert answer["error_ns"].min() > 0
        assert answer["apart_ns"].null_count() < answer.height
    if number == "10":
        assert answer["probes"].sum() == sum(m.rows for m in open_recording(SHIPPED).messages({PROBE.name}))
        assert answer["lost"].sum() > 0


def test_topic_table_and_sql_say_the_same(replayed: Path) -> None:
    with Fabric(replayed) as fabric:
        topic = fabric.topic(OWD.name, nic="h01/r0")
        table = fabric.table("derived_owd", nic="h01/r0")
        n = fabric.sql("SELECT count() AS n FROM derived_owd WHERE src = 'h01/r0' OR dst = 'h01/r0'")["n"][0]
        assert topic.height == table.height == n > 0
        assert topic["owd_p50_ns"].sum() == pytest.approx(table["owd_p50_ns"].sum(), rel=1e-9)
        late = fabric.topic(OWD.name, since=int(topic["bus_at_ns"].max() - 10_000_000_000))
        assert 0 < late.height < fabric.sql("SELECT count() AS n FROM derived_owd")["n"][0]


def test_a_scan_reads_no_more_than_is_asked(fabric: Fabric) -> None:
    read: list[int] = []

    def seen(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        for frame in frames:
            read.append(frame.height)
            yield frame

    first = fabric.scan(PROBE.name, seen=seen).head(5).collect()
    assert first.height == 5
    assert sum(read) < 20_000, "the recording has 97,000"


def test_names_that_are_not_there_are_refused_with_those_that_are(fabric: Fabric) -> None:
    with pytest.raises(ConfigError, match=r"no topic 'sdf\.raw\.probes\.v1'; there are: .*sdf\.raw\.probe\.v1"):
        fabric.topic("sdf.raw.probes.v1")
    with pytest.raises(ConfigError, match=r"no table or view 'findings'; there are: .*v_findings"):
        fabric.table("findings")
    with pytest.raises(ConfigError, match="no column that names a job"):
        fabric.topic(PROBE.name, job="train-7")
    with pytest.raises(ConfigError, match="no instant"):
        fabric.topic(PROBE.name, since=1.5e18)  # type: ignore[arg-type]
    with pytest.raises(SdfError, match="FORMAT"):
        fabric.sql("SELECT 1 FORMAT JSON")


def ask(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, Any, str]:
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def test_export_writes_whole_files_and_never_over_others(
    replayed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("export", "--json", "--data", replayed, "--out", tmp_path / "out")
    names = (OWD.name, "v_findings", "v_probe", "v_clock_1m")
    code, said, err = ask(capsys, *words, *names)
    assert code == 0, err
    files = {f["name"]: f for f in said["files"]}
    assert set(files) == set(names)
    for name, file in files.items():
        frame = pl.read_parquet(file["path"])
        assert frame.height == file["rows"] > 0, name
        assert Path(file["path"]).stat().st_size == file["bytes"]
    assert pl.read_parquet(files["v_findings"]["path"])["since_at"].dtype == pl.Datetime("ns", "UTC")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(f"{name}.parquet" for name in names)

    before = (tmp_path / "out" / f"{OWD.name}.parquet").read_bytes()
    code, _, err = ask(capsys, *words, OWD.name)
    assert (code, "is there already" in err) == (2, True)
    code, _, err = ask(capsys, *words, OWD.name, "--replace")
    assert code == 0, err
    assert (tmp_path / "out" / f"{OWD.name}.parquet").read_bytes() == before, "the same input, the same bytes"


def test_export_takes_a_span_and_a_nic(replayed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = open_recording(SHIPPED)
    since_s = recording.start_at_ns // 1_000_000_000 + 30
    since = str(pl.Series([since_s * 1_000_000_000]).cast(pl.Datetime("ns", "UTC")).dt.strftime("%FT%TZ")[0])
    chosen = ("--since", since, "--where", "nic=h01/r0", "--where", "nic=h02/r0")
    words = ("export", "--json", "--data", replayed, "--recording", SHIPPED, "--out", tmp_path, *chosen)
    code, said, err = ask(capsys, *words, PROBE.name, LIVENESS.name, "v_probe")
    assert code == 0, err
    probes, liveness, view = (pl.read_parquet(f["path"]) for f in said["files"])
    assert probes.height == view.height > 0
    assert probes["bus_at_ns"].min() >= since_s * 1_000_000_000
    named = pl.any_horizontal(pl.col("src", "dst").is_in(["h01/r0", "h02/r0"]))
    assert probes.select(named.all()).item()
    assert liveness["data"].str.contains('"h0[12]/r0"').all()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("sdf.raw.nothing.v1",), "there are: sdf.derived.hop.v1, sdf.derived.owd.v1"),
        (("v_nothing",), "there are: v_clock"),
        (("owd_1h",), "unfinished aggregates"),
        (("v_clock_1m", "--where", "nic=h00/r0"), "no column that names a NIC"),
        (("v_clock_1m", "--where", "host=h00"), "write nic="),
        (("v_clock_1m", "--since", "soon"), "no instant"),
    ],
)
def test_export_says_what_it_cannot_do_and_writes_nothing(
    replayed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    code, _, err = ask(capsys, "export", "--data", replayed, "--out", tmp_path / "out", OWD.name, *words)
    assert (code, why in err) == (2, True), err
    assert not (tmp_path / "out").exists()


def test_export_that_fails_leaves_no_file(
    replayed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Iterator[pl.DataFrame]:
        raise BusError("the brokers are gone")
        yield

    monkeypatch.setattr("sdfstream.client.frames._bulk", failing)
    code, _, err = ask(capsys, "export", "--data", replayed, "--out", tmp_path / "out", OWD.name)
    assert (code, "the brokers are gone" in err) == (2, True), err
    time.sleep(0.5)  # polars may open a path that it is given after it has raised
    assert not list((tmp_path / "out").iterdir())


def test_without_names_export_lists_what_there_is(replayed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = ask(capsys, "export", "--json", "--data", replayed)
    assert code == 0
    assert OWD.name in said["topics"]
    assert "v_findings" in said["tables"]
