"""``sdfstream demo``: a live fabric, measured; four faults, named; everything queried in SQL afterwards."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Final

from sdfstream.cli.options import DATA_FOLDER
from sdfstream.demo import namespace_io
from sdfstream.errors import ConfigError, LabUnavailableError, SdfError
from sdfstream.runtime.output_io import emit, progress

HELP = "watch a real leaf-spine fabric being measured, break four things, see them named; under 3 minutes"
EXAMPLE = "sdfstream demo"
MARKER: Final = ".sdfstream-demo"


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
    if namespace_io.is_needed():
        if not namespace_io.is_possible():
            return _replay(args, "not root, and this kernel gives no user namespace")
        namespace_io.enter()
    return _live(args)


def _live(args: argparse.Namespace) -> int:
    from sdfstream.demo.lab_io import LARGE, SMALL, run_scenario
    from sdfstream.demo.report import report
    from sdfstream.runtime import loop_io

    try:
        outcome = loop_io.run_stoppable(
            run_scenario(args.data, SMALL if args.small else LARGE, record=args.record, say=progress)
        )
    except LabUnavailableError as error:
        return _replay(args, str(error))
    emit(args.json, outcome, report(outcome, args.data))
    return 0


def _fresh(data: Path) -> None:
    """Make room for this run: an earlier demo's folder goes, anything else stays and is an error."""
    if data.exists() and any(data.iterdir()):
        if not (data / MARKER).exists():
            raise ConfigError(f"{data} holds something that is not a demo's; name another folder with --data")
        from sdfstream.archive.http.endpoint_io import read_endpoint

        if read_endpoint(data) is not None:
            raise ConfigError(f"a pipeline runs on {data}; stop it or name another folder with --data")
        shutil.rmtree(data)
    data.mkdir(parents=True, exist_ok=True)
    (data / MARKER).touch()


def _replay(args: argparse.Namespace, why: str) -> int:
    from sdfstream.demo.replay_io import replay_shipped

    progress(f"No lab here ({why}): replaying the recording that is shipped with sdfstream instead.")
    try:
        outcome, text = replay_shipped(args.data)
    except SdfError as error:
        raise ConfigError(f"the shipped recording cannot be replayed: {error}") from error
    emit(args.json, outcome, text)
    return 0
