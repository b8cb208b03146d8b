"""``sdfstream config show`` prints every setting with its default; ``config check FILE`` checks one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdfstream import visible
from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import emit

if TYPE_CHECKING:
    from sdfstream.probes.config import AgentConfig

HELP = "print every setting with its default, or check a settings file"
EXAMPLE = "sdfstream config show > sdf.yaml && sdfstream config check sdf.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``show`` or ``check FILE``."""
    parser.add_argument("what", choices=("show", "check"))
    parser.add_argument("file", nargs="?", type=Path, help="YAML file (check: required)")


def run(args: argparse.Namespace) -> int:
    """Exit 1 when a checked file is wrong."""
    from sdfstream import settings

    if args.what == "show":
        chosen = settings.load(args.file)
        emit(args.json, {"settings": settings.plain(chosen)}, settings.dump(chosen).rstrip())
        return 0
    if args.file is None:
        raise ConfigError("config check needs a file")
    try:
        found = settings.load(args.file)
        if found.agent is not None:
            _check_agent(found.agent, args.file)
    except ConfigError as error:
        problems = str(error).split("; ")
        emit(args.json, {"ok": False, "problems": problems}, visible.lines(problems))
        return 1
    emit(args.json, {"ok": True, "problems": []}, f"{args.file}: correct")
    return 0


def _check_agent(config: AgentConfig, file: Path) -> None:
    """What the agent itself would refuse."""
    from sdfstream.agent import config_file

    try:
        config_file.check(config)
    except ConfigError as error:
        raise ConfigError(f"{file}: agent.{error}") from error
