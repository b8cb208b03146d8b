"""``sdfstream demo``: a live fabric, measured; four faults, named; everything queried in SQL afterwards."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NoReturn

from sdfstream.cli.options import DATA_FOLDER
from sdfstream.cli.output import emit, progress
from sdfstream.errors import ConfigError, LabUnavailableError, SdfError

HELP = "watch a real leaf-spine fabric being measured, break four things, see them named; under 3 minutes"
EXAMPLE = "sdfstream demo"
MARKER: Final = ".sdfstream-demo"
_ENTER: Final = ("unshare", "--user", "--map-root-user", "--")
_INSIDE: Final = "SDFSTREAM_DEMO_IN_USER_NAMESPACE"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--data, --record, --replay, --small."""
    parser.add_argument("--data", type=Path, default=Path(DATA_FOLDER), help=f"data folder (default ./{DATA_FOLDER})")
    parser.add_argument("--record", action="store_true", help="also keep a recording, in DATA/recording")
    parser.add_argument(
        "--small", action="store_true", help="half the fabric and few probes; the shipped recording is one"
    )
    parser.add_argument("--replay", action="store_true", help="use the shipped recording even where a lab can be made")


def run(args: argparse.Namespace) -> int:
    """In a lab of our own; without root in a user namespace; where neither is possible over the shipped recording."""
    _fresh(args.data)
    if args.replay:
        return _replay(args, "as asked")
    if os.geteuid() != 0 and _INSIDE not in os.environ:
        if not _user_namespaces():
            return _replay(args, "not root, and this kernel gives no user namespace")
        _again_inside()
    return _live(args)


def _live(args: argparse.Namespace) -> int:
    from sdfstream.cli import loop
    from sdfstream.cli.demo_lab import LARGE, SMALL, play
    from sdfstream.cli.demo_report import report

    try:
        outcome = loop.run_stoppable(play(args.data, SMALL if args.small else LARGE, record=args.record, say=progress))
    except LabUnavailableError as error:
        return _replay(args, str(error))
    emit(args.json, outcome, report(outcome, args.data))
    return 0


def _fresh(data: Path) -> None:
    """Make room for this run: an earlier demo's folder goes, anything else stays and is an error."""
    if data.exists() and any(data.iterdir()):
        if not (data / MARKER).exists():
            raise ConfigError(f"{data} holds something that is not a demo's; name another folder with --data")
        from sdfstream.archive.endpoint_io import read_endpoint

        if read_endpoint(data) is not None:
            raise ConfigError(f"a pipeline runs on {data}; stop it or name another folder with --data")
        shutil.rmtree(data)
    data.mkdir(parents=True, exist_ok=True)
    (data / MARKER).touch()


def _user_namespaces() -> bool:
    """Whether an ordinary user may become root of a user namespace here."""
    try:
        subprocess.run([*_ENTER, "true"], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _again_inside() -> NoReturn:
    """Become the same command as root of a user namespace: the same process, so that signals and its end stay its."""
    progress("not root: working in a user namespace")
    sys.stdout.flush()
    command = [*_ENTER, sys.executable, "-m", "sdfstream", *sys.argv[1:]]
    os.execvpe(command[0], command, {**os.environ, _INSIDE: "1"})


def _replay(args: argparse.Namespace, why: str) -> int:
    from sdfstream.cli.demo_replay import replay_shipped

    progress(f"No lab here ({why}): replaying the recording that is shipped with sdfstream instead.")
    try:
        outcome, text = replay_shipped(args.data)
    except SdfError as error:
        raise ConfigError(f"the shipped recording cannot be replayed: {error}") from error
    emit(args.json, outcome, text)
    return 0
