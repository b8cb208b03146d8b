"""``sdfstream doctor``: what this host can do for an agent and a pipeline, and what to do about what it cannot."""

from __future__ import annotations

import argparse

from sdfstream import visible
from sdfstream.runtime.output_io import emit

HELP = (
    "what this host can do: stamps, sockets, privileges, priority, RDMA, each with what to do; exit 1: one is missing"
)
EXAMPLE = "sdfstream doctor --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def run(args: argparse.Namespace) -> int:
    """Look, and say; 1 where something is missing that an agent needs."""
    from sdfstream.demo import namespace_io
    from sdfstream.serve import doctor_io
    from sdfstream.serve.doctor import checks, line_of

    found = list(checks(doctor_io.look(lambda: not namespace_io.is_needed() or namespace_io.is_possible())))
    missing = [check.name for check in found if check.state == "missing"]
    result = {"checks": [check.as_data() for check in found], "missing": missing}
    emit(args.json, result, visible.lines(map(line_of, found)))
    return 1 if missing else 0
