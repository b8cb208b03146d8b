"""The bench itself runs: each cheap measurement once, quickly. No figure is judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench import lateness

ROOT = Path(__file__).parents[2]


def bench(*only: str) -> dict[str, dict[str, Any]]:
    names = [word for name in only for word in ("--only", name)]
    command = [sys.executable, "-m", "tests.bench", "--quick", "--json", *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    whole = json.loads(done.stdout.splitlines()[-1])
    assert whole["machine"]["cores"] >= 1 and len(whole["load"]) == 3
    return {result["name"]: result for result in whole["results"]}


def test_shells() -> None:
    shells = bench("shells")["shells"]
    assert shells["skipped"] is None
    assert {"receive_kpps", "send_kpps", "receive_asyncio_plain_kpps", "send_asyncio_stamped_kpps"} <= set(
        shells["figures"]
    )
    assert any(line.startswith("receive") for line in shells["lines"])


def test_a_round_of_lateness() -> None:
    late, verdicts_ms, priority = lateness.one_round(realtime=False)
    assert 0 < late[0] <= late[1]
    assert len(verdicts_ms) == lateness.PATHS and min(verdicts_ms) >= 0, "no path is silent before its limit"
    assert priority in ("normal", "nice")


def test_archive_size() -> None:
    figures = bench("archive_size")["archive_size"]["figures"]
    assert 10 < figures["bytes_per_row"]["raw_probe"] < 16
    assert {"owd_1s", "owd_1h", "state_clock"} <= figures["bytes_per_row"].keys()
    assert 0 < figures["gb_a_day"] < figures["gb_full"]


def test_stage_cost() -> None:
    figures = bench("stage_cost")["stage_cost"]["figures"]
    assert {"sync", "workload", "detect", "actuate"} == set(figures["demo"]["by_stage"])
    assert figures["demo"]["ms_per_s"] > 0


def test_pipeline() -> None:
    figures = bench("pipeline")["pipeline"]["figures"]
    assert {"rows_72", "rows_5120", "rows_512"} <= set(figures)
    for found in figures.values():
        # threads' times come in ticks of 10 ms: 1.03 was seen in a short run
        assert sum(found["share"].values()) == pytest.approx(1.0, abs=0.1)
        assert found["exchanges_per_core_s"] < found["limit_per_core_s"]


@pytest.mark.kafka
def test_pipeline_over_kafka() -> None:
    result = bench("kafka_pipeline")["kafka_pipeline"]
    if result["skipped"]:
        pytest.skip(result["skipped"])
    shapes = [found for name, found in result["figures"].items() if name.startswith("rows_")]
    assert len(shapes) == 2
    assert all(sum(found["share"].values()) == pytest.approx(1.0, abs=0.01) for found in shapes)


@pytest.mark.lab
def test_a_class_of_its_own() -> None:
    result = bench("class_queue")["class_queue"]
    if result["skipped"]:
        pytest.skip(result["skipped"])
    assert result["figures"]["queue_in_46"]["apart"]
    assert result["figures"]["queue_in_0"]["apart"]


@pytest.mark.lab
def test_reflector_and_freshness() -> None:
    results = bench("reflector", "freshness")
    if results["reflector"]["skipped"]:
        pytest.skip(results["reflector"]["skipped"])
    assert results["reflector"]["figures"]["hogs_2"]["kernel_stamped"] > 100
    assert results["freshness"]["figures"]["owd_p99_ms"] > 0


def test_a_measurement_that_breaks_fails_the_bench_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.bench import __main__ as runner

    monkeypatch.setitem(runner.NAMES, "no_such", 30)
    result = runner.measure("no_such", quick=True)
    assert "no_such" in result["failed"]
    assert result["lines"][0].startswith("FAILED")


def test_a_measurement_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.bench import __main__ as runner

    monkeypatch.setitem(runner.NAMES, "shells", 0.5)
    assert "not done" in runner.measure("shells", quick=False)["failed"]
