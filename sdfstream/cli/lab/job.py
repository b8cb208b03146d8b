"""``sdfstream lab job``: emulated training jobs on a running lab."""

from __future__ import annotations

import argparse
import base64
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sdfstream import visible
from sdfstream.cli.options import DATA_FOLDER
from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import emit
from sdfstream.serve.data_folder import JOBS, LINK_SOCKET

_Act = Callable[[argparse.Namespace], int]


def add_to(actions: Any, add: Callable[..., Any]) -> None:
    """The action ``job`` of ``sdfstream lab``; `add` is how that verb makes its actions."""
    job = actions.add_parser("job", help="emulated training jobs: start, list, stop")
    doings = job.add_subparsers(dest="doing", metavar="DOING", required=True)
    start = add(
        doings, "start", _start, "start a job", "sdfstream lab job start --name train-a --hosts h00,h04 --seconds 10"
    )
    start.set_defaults(name=None)
    start.add_argument("--hosts", required=True, help="its ranks' hosts, in order: h00,h04,…")
    start.add_argument("--rail", type=int, default=0, help="which NIC of every host (default 0)")
    start.add_argument("--collective", choices=("all-reduce", "all-to-all"), default="all-reduce")
    start.add_argument("--qps", type=int, default=2, help="queue pairs from a rank to each of its peers (default 2)")
    start.add_argument("--chunk-kb", type=int, default=64, help="KiB per chunk (default 64)")
    start.add_argument("--message-mb", type=float, default=1.0, help="MiB per rank and collective (default 1)")
    start.add_argument("--ports", type=_ports, default=(), help="source ports to begin with: 50000,50001,…")
    start.add_argument("--seconds", type=float, help="how long; default: until stopped")
    start.add_argument("--collectives", type=int, help="end after so many")
    start.add_argument("--rate", type=int, dest="rate_bps", help="limit of every queue pair, bit/s")
    start.add_argument("--dscp", type=int, default=26, help="class (default 26)")
    start.add_argument(
        "--trust",
        action="append",
        metavar="KEY",
        help="public key that it obeys, base64, hex or a file; repeatable (default: that of the pipeline on --data)",
    )
    start.add_argument("--bus", metavar="link:PATH", help="pipeline that its rows go to (default: the one on --data)")
    listing = add(doings, "list", _list, "running jobs and what they get", "sdfstream lab job list --json")
    stop = add(doings, "stop", _stop, "stop a job", "sdfstream lab job stop train-a")
    stop.add_argument("job", help="its name")
    for parser in (start, listing, stop):
        parser.add_argument("--lab", default="lab", help="which lab (default: lab)")
        parser.add_argument(
            "--data", type=Path, default=Path(DATA_FOLDER), help=f"of the pipeline (default ./{DATA_FOLDER})"
        )
        parser.add_argument("--jobs-dir", type=Path, help="drop directory (default: the pipeline's, else the lab's)")
    doings.add_parser("run").set_defaults(act=_run)


def _start(args: argparse.Namespace) -> int:
    from sdfstream.emulator.rank_plan import JobSpec
    from sdfstream.lab.client_io import RunningLab
    from sdfstream.lab.job_io import Job

    spec = JobSpec(
        name=args.name or "train",
        hosts=tuple(args.hosts.split(",")),
        **{key: getattr(args, key) for key in _CHOSEN},
    )
    if args.bus and not args.bus.startswith("link:"):
        raise ConfigError("--bus of a job is link:PATH")
    link = Path(args.bus.removeprefix("link:")) if args.bus else _if_there(args.data / LINK_SOCKET)
    public = _if_there(args.data / "keys" / "controller.pub")
    keys = [_key(text) for text in (args.trust if args.trust is not None else [str(public)] if public else [])]
    job = Job.start(RunningLab(args.lab), spec, _jobs_dir(args), keys, link, stays=True)
    pid = job.stats()["pid"]
    text = f"job {spec.name!r} runs: {spec.collective} over {len(spec.hosts)} hosts, {spec.qps} queue pairs per peer"
    text += f" (process {pid})"
    emit(args.json, {"job": spec.name, "pid": pid, "jobs_dir": str(job.jobs_dir)}, text)
    return 0


_CHOSEN = (
    "rail", "collective", "qps", "chunk_kb", "message_mb", "ports", "seconds", "collectives", "rate_bps", "dscp",
)  # fmt: skip


def _list(args: argparse.Namespace) -> int:
    from sdfstream.emulator.process_files_io import is_running, shards
    from sdfstream.lab.job_io import Job

    folder = _jobs_dir(args)
    found = [
        Job.find(name, folder).stats()
        for name in (shards(folder) if folder.is_dir() else ())
        if is_running(folder, name)
    ]
    lines = [
        f"{s['job']}: {s['collectives']} collectives, {s['checked_wrong']} wrong, "
        f"{s['payload_bytes'] * 8 / s['seconds'] / 1e6:.1f} Mbit/s, {s['retransmits']} packets sent again"
        for s in found
    ]
    emit(args.json, {"jobs": found}, visible.lines(lines) or "no job is running")
    return 0


def _stop(args: argparse.Namespace) -> int:
    from sdfstream.lab.job_io import Job

    last = Job.find(args.job, _jobs_dir(args)).stop()
    text = f"job {args.job!r} stopped after {last['collectives']} collectives, {last['checked_wrong']} of them wrong"
    emit(args.json, last, text)
    return 0


def _run(_: argparse.Namespace) -> int:
    """The job's own process, which `lab.job_io` starts."""
    from sdfstream.emulator import main_io

    return main_io.main()


def _jobs_dir(args: argparse.Namespace) -> Path:
    from sdfstream.lab.job_io import default_jobs_dir

    return args.jobs_dir or _if_there(args.data / JOBS) or default_jobs_dir(args.lab)


def _if_there(path: Path) -> Path | None:
    return path.absolute() if path.exists() else None


def _ports(text: str) -> tuple[int, ...]:
    return tuple(int(port) for port in text.split(","))


def _key(text: str) -> bytes:
    """32 octets: as base64 or hex, or in a file, raw or as one of these."""
    raw = Path(text).read_bytes() if Path(text).is_file() else text.encode()
    with contextlib.suppress(ValueError):
        if len(raw) != 32:
            written = raw.decode().strip()
            raw = bytes.fromhex(written) if len(written) == 64 else base64.b64decode(written, validate=True)
    if len(raw) != 32:
        raise ConfigError(f"--trust {text}: not a public key (32 octets, raw, base64 or hex)")
    return raw
