"""``sdfstream cabling``: declare which cable hangs where."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sdfstream.board.humanize import plural
from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import emit

HELP = (
    "declare the cabling: check a file of nodes, links and NICs, and publish it, in place of what was declared before"
)
EXAMPLE = "sdfstream cabling cabling.yaml --bus kafka://localhost:9092"
_KAFKA: Final = "kafka://"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """FILE, --check, --bus, --config."""
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="YAML or JSON: nodes, links, nics; see docs/switches.md"
    )
    parser.add_argument("--check", action="store_true", help="only say what is in it, or what is wrong with it")
    parser.add_argument("--bus", metavar="kafka://HOST:PORT", help="the bus (default: the settings' bus)")
    parser.add_argument("--config", type=Path, help="settings file (YAML)")


def run(args: argparse.Namespace) -> int:
    """Check the file, and publish it unless that is all."""
    from sdfstream import settings, yamlfile
    from sdfstream.plan import cabling_file
    from sdfstream.records.topics import TOPOLOGY
    from sdfstream.runtime import declare_io, loop_io

    try:
        data = cabling_file.read(yamlfile.read(args.file, yamlfile.INVENTORY))
    except ConfigError as error:
        raise ConfigError(str(error) if str(args.file) in str(error) else f"{args.file}: {error}") from error
    result: dict[str, Any] = {name: len(data[name]) for name in ("nodes", "links", "nics")}
    result["speeds_mbps"] = {
        str(mbps): n for mbps, n in sorted(Counter(x["speed_mbps"] for x in data["links"]).items())
    }
    result["published"] = not args.check
    if not args.check:
        chosen = settings.load(args.config)
        bus = args.bus or chosen.bus
        if not bus.startswith(_KAFKA):
            raise ConfigError("cabling needs --bus kafka://HOST:PORT: the pipeline that is to know it reads there")
        result["topic"] = TOPOLOGY.name
        loop_io.run(declare_io.declare(bus, chosen.kafka, data))
    emit(args.json, result, _text(result))
    return 0


def _text(result: Mapping[str, Any]) -> str:
    what = ", ".join((plural(result["nodes"], "node"), plural(result["links"], "link"), plural(result["nics"], "NIC")))
    if not result["published"]:
        return f"{what}: nothing is wrong with it; nothing was published"
    return f"{what}: declared on {result['topic']}; `sdfstream topo` shows what the pipeline makes of it"
