"""``sdfstream replay``: the same stages over a recording, as fast as the machine allows."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdfstream import visible
from sdfstream.cli import edge_io
from sdfstream.cli.options import add_reference, with_reference
from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import emit, progress

if TYPE_CHECKING:
    from sdfstream.archive.writer_io import Archive

HELP = "run stages over a recording; the same input gives the same bytes"
EXAMPLE = "sdfstream replay sdfstream-data/recording --out replayed --stages sync,workload,detect,archive"
STAGES = ("sync", "workload", "detect", "actuate", "plan", "archive")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """IN, --out, --stages, --config, --reference."""
    parser.add_argument(
        "recording", type=Path, metavar="IN", nargs="+", help="folder of the recording; several hosts' as one"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="OUT", help="new folder for what the stages write")
    parser.add_argument("--stages", default="sync,workload,detect", help=f"comma-separated, of {', '.join(STAGES)}")
    parser.add_argument("--config", type=Path, help="settings file (YAML)")
    add_reference(parser)


def run(args: argparse.Namespace) -> int:
    """Replay and say what came of it."""
    from sdfstream import pipeline, settings
    from sdfstream.bus.recording.reader_io import open_recording, write_rejects
    from sdfstream.bus.recording.writer_io import RecordingWriter
    from sdfstream.records.topics import SHARED
    from sdfstream.runtime.replay import replay
    from sdfstream.runtime.replay_io import ReplayInput

    wanted = _wanted(args.stages)
    if args.out.exists() and any(args.out.iterdir()):
        raise ConfigError(f"--out {args.out} is not empty; name a new folder")
    chosen = with_reference(settings.load(args.config), args)
    if "plan" in wanted and chosen.plan.mesh == "off":
        chosen = chosen.model_copy(update={"plan": replace(chosen.plan, mesh="auto")})
    recording = open_recording(*args.recording)
    chain = [stage for stage in pipeline.stages(chosen) if stage.name in wanted]
    writer = RecordingWriter(args.out, cluster=recording.cluster, start_at_ns=recording.start_at_ns)
    archive = _archive(args.out) if "archive" in wanted else None
    afresh = {topic for stage in chain for topic in stage.writes} - SHARED
    recorded = ReplayInput(recording, archive, afresh, progress)
    written: Counter[str] = Counter()
    started_s = edge_io.steady_s()
    for message in replay(recorded.messages(), chain, recording.start_at_ns, recording.end_at_ns):
        writer.write([message])
        written[message.topic] += message.rows
        if archive is not None:
            archive.add_blocking([message])
    writer.finish(recording.end_at_ns)
    if archive is not None:
        archive.close_blocking()
    took_s = edge_io.steady_s() - started_s
    counters: dict[str, int] = dict(recording.counters.as_dict())
    for stage in chain:
        counters |= stage.counters.as_dict()
    if archive is not None:
        counters |= archive.counters.as_dict()
    write_rejects(args.out, recording.rejects)
    emit(
        args.json,
        {"read": recorded.rows, "written": dict(written), "counters": counters, "seconds": round(took_s, 3)},
        _text(args.out, recorded.rows, written, counters, took_s, archived=archive is not None),
    )
    return 0


def _wanted(text: str) -> list[str]:
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in STAGES]:
        raise ConfigError(f"--stages: no stage '{unknown[0]}'; there are {', '.join(STAGES)}")
    return wanted


def _archive(out: Path) -> Archive:
    from sdfstream.archive.config import REPLAY, ArchiveConfig
    from sdfstream.archive.writer_io import Archive

    return Archive.open(ArchiveConfig(target=str(out / "archive"), bus_id="replay", limits=REPLAY, replay=True))


def _text(
    out: Path, read: int, written: Counter[str], counters: dict[str, Any], took_s: float, *, archived: bool
) -> str:
    lines = [f"read {read:,} rows in {took_s:.2f} s ({read / max(took_s, 1e-9):,.0f} rows/s); written to {out}:"]
    lines += [f"  {topic:<28}{rows:>12,} rows" for topic, rows in sorted(written.items())]
    if refused := {name: n for name, n in counters.items() if ".refused" in name}:
        lines += ["refused, with reasons:", *(f"  {name:<44}{n:>10,}" for name, n in sorted(refused.items()))]
    if archived:
        lines.append(f'look further: sdfstream sql --data {out} "SELECT * FROM v_findings"')
    return visible.lines(lines)
