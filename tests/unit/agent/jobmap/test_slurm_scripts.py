"""The Slurm prolog and epilog, run with made-up SLURM_ variables; what they write is read by the job map."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sdfstream.agent.jobmap.folder_io import DropFolder
from sdfstream.agent.jobmap.jobmap import JobMap
from sdfstream.records.job import Rank

SCRIPTS = Path(__file__).parents[4] / "deploy" / "slurm"
JOB = {
    "SLURM_JOB_ID": "4711",
    "SLURMD_NODENAME": "gpu-2",
    "SLURM_JOB_NODELIST": "gpu-[1-3]",
    "SLURM_JOB_NAME": 'llama "70b"\n\\$(reboot)',
    "SLURM_JOB_GPUS": "0,1",
    "SDF_NICS": "mlx5_0 mlx5_1",
}
SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    return [request.param, "sh"] if request.param == "busybox" else [request.param]


def _scontrol(tmp_path: Path) -> str:
    """Stands in for ``scontrol show hostnames gpu-[1-3]``, which spells the list out without asking a daemon."""
    path = tmp_path / "scontrol"
    path.write_text('#!/bin/sh\n[ "$1 $2 $3" = "show hostnames gpu-[1-3]" ] && printf "gpu-1\\ngpu-2\\ngpu-3\\n"\n')
    path.chmod(0o755)
    return str(path)


def _run(shell: list[str], script: str, tmp_path: Path, **given: str | None) -> subprocess.CompletedProcess[str]:
    env = JOB | {"SDF_JOBS_DIR": str(tmp_path / "jobs"), "SDF_CONF": "/nowhere", "SDF_SCONTROL": _scontrol(tmp_path)}
    env = {k: v for k, v in (env | given).items() if v is not None}
    done = subprocess.run(
        [*shell, str(SCRIPTS / script)], env=env, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, "Slurm drains a node whose prolog or epilog fails"
    return done


def _jobs(tmp_path: Path, host: str = "gpu-2") -> JobMap:
    jobs = JobMap({host})
    jobs.take_files(DropFolder(tmp_path / "jobs").read()[0], 0)
    assert not jobs.notes()
    return jobs


def test_the_file_is_written_as_the_agent_reads_it_and_removed(shell: list[str], tmp_path: Path) -> None:
    _run(shell, "prolog.sh", tmp_path, SDF_CONTROL_DIR="/run/jobs")
    (shard,) = _jobs(tmp_path).shards
    assert (shard.key, shard.name, shard.control) == ("4711@gpu-2", "llama 70breboot", "/run/jobs/4711.sock")
    assert shard.ranks == (Rank(2, ("gpu-2/mlx5_0",)), Rank(3, ("gpu-2/mlx5_1",)))
    assert shard.since_at_ns > 1_700_000_000_000_000_000
    assert [p.name for p in (tmp_path / "jobs").iterdir()] == ["4711@gpu-2.json"]
    assert (tmp_path / "jobs" / "4711@gpu-2.json").stat().st_mode & 0o777 == 0o644
    (tmp_path / "jobs" / "4712@gpu-2.json").write_text("{}")
    _run(shell, "epilog.sh", tmp_path)
    assert [p.name for p in (tmp_path / "jobs").iterdir()] == ["4712@gpu-2.json"]


@pytest.mark.parametrize(
    ("given", "ranks"),
    [
        ({"SLURM_JOB_NODELIST": "gpu-2", "SLURM_JOB_GPUS": None}, [(0, ["mlx5_0", "mlx5_1"])]),
        ({"SLURM_JOB_GPUS": "0,1,2", "SLURM_JOB_NODELIST": "gpu-2"}, [(r, ["mlx5_0", "mlx5_1"]) for r in range(3)]),
        ({"SDF_RANKS": "1"}, [(1, ["mlx5_0", "mlx5_1"])]),
        ({"SDF_RANKS": "many"}, [(1, ["mlx5_0", "mlx5_1"])]),
        ({"SDF_SCONTROL": "/bin/false"}, []),
        ({"SLURM_JOB_NODELIST": ""}, []),
    ],
    ids=lambda v: str(v)[:40],
)
def test_ranks_and_their_nics(shell: list[str], tmp_path: Path, given: dict, ranks: list) -> None:
    _run(shell, "prolog.sh", tmp_path, **given)
    (shard,) = _jobs(tmp_path).shards
    assert shard.ranks == tuple(Rank(rank, tuple(f"gpu-2/{nic}" for nic in nics)) for rank, nics in ranks)


def test_settings_come_from_a_file(shell: list[str], tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("SDF_HOST=h07\nSDF_NICS='r0 r1'\n")
    _run(shell, "prolog.sh", tmp_path, SDF_CONF=str(conf))
    (shard,) = _jobs(tmp_path, "h07").shards
    assert shard.ranks[1].nics == ("h07/r1",)
    _run(shell, "epilog.sh", tmp_path, SDF_CONF=str(conf))
    assert not list((tmp_path / "jobs").iterdir())


@pytest.mark.parametrize("script", ["prolog.sh", "epilog.sh"])
@pytest.mark.parametrize(
    "given",
    [
        {"SLURM_JOB_ID": None},
        {"SLURM_JOB_ID": "../../etc/passwd"},
        {"SLURMD_NODENAME": None},
        {"SLURMD_NODENAME": "a/b"},
        {"SDF_JOBS_DIR": "/proc/nowhere"},
        {"SDF_CONF": "BROKEN"},
    ],
    ids=str,
)
def test_nothing_stops_the_job(shell: list[str], tmp_path: Path, script: str, given: dict) -> None:
    if given.get("SDF_CONF"):
        (tmp_path / "conf").write_text("if then (\n")
        given = {"SDF_CONF": str(tmp_path / "conf")}
    _run(shell, script, tmp_path, **given)
    assert not (tmp_path / "jobs").exists() or not list((tmp_path / "jobs").iterdir())


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.sh")), ids=lambda p: p.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    done = subprocess.run(["shellcheck", str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
