"""``sdfstream score DIR``: a recording's findings and clocks against the truth that lies beside it.

``sdfstream score clock`` and ``score detect`` need no recording: what they score is simulated, see `score_clock`,
`score_detect`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sdfstream import strict_json
from sdfstream.cli import score_clock, score_detect
from sdfstream.errors import ConfigError, FormatError

HELP = "judge a recording by its truth; or the clocks on published delay laws; or detect on the twin's scenarios"
EXAMPLE = "sdfstream score sdfstream-data/recording"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument(
        "recording",
        metavar="DIR|clock|detect",
        help="folder with recording.json and findings, truth/ in it or beside it; or the word clock: the score card of "
        "the clocks, over simulated delays; or the word detect: findings over the twin's scenarios, or those of --only "
        "(a name or a file). Folders of those names: ./clock, ./detect",
    )
    parser.add_argument("--truth", type=Path, metavar="DIR", help="folder of faults.jsonl and clock.jsonl")
    score_clock.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Score a recording, or the clocks."""
    if args.recording == "clock":
        return score_clock.run(args)
    if args.recording == "detect":
        if others := [name for name in score_clock.given(args) if name.lstrip("-") not in score_detect.OPTIONS]:
            raise ConfigError(f"{', '.join(others)}: only for 'sdfstream score clock'")
        return score_detect.run(args)
    if beside := score_clock.given(args):
        raise ConfigError(f"{', '.join(beside)}: only for 'sdfstream score clock' and 'sdfstream score detect'")
    args.recording = Path(args.recording)
    return _recording(args)


def _recording(args: argparse.Namespace) -> int:
    """Read, match, print."""
    from sdfstream.bus.recording.reader_io import open_recording
    from sdfstream.runtime.output_io import emit, progress
    from sdfstream.score import report
    from sdfstream.score.match import match

    truth = truth_folder(args.recording, args.truth)
    recording = open_recording(args.recording)
    faults, findings, clocks = _lines(truth / "faults.jsonl"), [], _ClockRows()
    for message in recording.messages({_FINDING, _CLOCK}):
        if message.topic == _FINDING:
            findings.append(message.body.data)
        else:
            clocks.add(message.body)
    if recording.rejects:
        progress(f"{sum(r.n for r in recording.rejects)} rows or lines of the recording were refused")
    try:
        card = match(faults, findings).as_dict()
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{truth / 'faults.jsonl'} or a finding lacks what a match needs: {error!r}") from error
    result: dict[str, Any] = {"recording": str(args.recording), "truth": str(truth), **card}
    paragraphs = [report.summary(card, recording.start_at_ns)]
    if (truth / "clock.jsonl").exists():
        errors = _clock_errors(truth / "clock.jsonl", clocks)
        result["clocks"] = errors
        paragraphs += [report.clock_table(e) for e in errors.values()]
    emit(args.json, result, "\n\n".join(paragraphs))
    return 0


_FINDING, _CLOCK = "sdf.event.finding.v1", "sdf.state.clock.v1"


def truth_folder(recording: Path, given: Path | None) -> Path:
    """Folder of the truth: as given, in the recording, or beside it.

    Raises
    ------
    ConfigError
        There is none.
    """
    folders = [given] if given else [recording / "truth", recording.parent / "truth"]
    for folder in folders:
        if (folder / "faults.jsonl").exists() or (folder / "clock.jsonl").exists():
            return folder
    raise ConfigError(f"no truth in {' nor in '.join(str(p) for p in folders)}: neither faults.jsonl nor clock.jsonl")


class _ClockRows:
    """The columns of all clock rows."""

    names = ("clock", "at_ns", "offset_ns", "err_ns", "status", "kind")

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def add(self, batch: Any) -> None:
        self.batches.append(batch.select(self.names))

    def columns(self) -> dict[str, list[Any]]:
        import pyarrow as pa

        if not self.batches:
            return {name: [] for name in self.names}
        table = pa.Table.from_batches(self.batches)
        return {name: table.column(name).to_pylist() for name in self.names}


def _clock_errors(path: Path, rows: _ClockRows) -> dict[str, Any]:
    from sdfstream.score.clock_errors import TrueClocks, clock_errors

    try:
        truth = TrueClocks(_lines(path))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: a line lacks clock, at_ns or offset_ns: {error!r}") from error
    columns = rows.columns()
    kinds = sorted(set(columns["kind"])) or ["causal"]
    return {kind: clock_errors(truth, columns, kind) for kind in kinds}


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = strict_json.loads(line)
        except FormatError as error:
            raise ConfigError(f"{path}, line {number} is no JSON: {error}") from error
        if not isinstance(value, dict):
            raise ConfigError(f"{path}, line {number} is no JSON object")
        lines.append(value)
    return lines
