"""``sdfstream score clock``: published laws and troubles over many seeds, on all cores, beside other estimators."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sdfstream.cli import edge_io
from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import compact, emit, progress

if TYPE_CHECKING:
    from sdfstream.score.clock.tracks import Figures

SEEDS: Final = 10
QUICK_SEEDS: Final = 1
_OURS, _PEERS = "ours", "peers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that ``score DIR`` does not take."""
    clock = parser.add_argument_group("score clock, score detect")
    clock.add_argument("--only", action="append", metavar="CASE", help="this case; repeatable")
    clock.add_argument("--quick", action="store_true", help=f"{QUICK_SEEDS} seed instead of {SEEDS}")
    clock.add_argument("--seeds", type=int, metavar="N", help="seeds 1 to N")
    clock.add_argument("--seed", type=int, metavar="N", help="this one seed")
    clock.add_argument(
        "--labels",
        type=int,
        metavar="N",
        help="score detect: causes with and without what operators' labels teach; all findings of seeds 1 to N are "
        "labelled as they truly were, those of the next --seeds (10) asked",
    )
    clock.add_argument("--peers", action="store_true", help="other estimators on the same draws (sdfstream[peers])")
    clock.add_argument("--plots", type=Path, metavar="DIR", help="pictures as SVG (sdfstream[peers])")
    clock.add_argument("--markdown", type=Path, metavar="FILE", help="the whole card as a page")
    clock.add_argument("--from", type=Path, dest="source", metavar="FILE", help="what --json printed, instead of a run")
    clock.add_argument(
        "--write", type=Path, metavar="DIR", help="only write the probes, as recordings with their truth"
    )
    clock.add_argument("--check", action="store_true", help="exit 1 when a limit is missed (median over the seeds)")


def given(args: argparse.Namespace) -> list[str]:
    """Options of this module that were given; only ``score clock`` takes them."""
    names = ("only", "quick", "seeds", "seed", "labels", "peers", "plots", "markdown", "source", "write", "check")
    return [f"--{'from' if n == 'source' else n}" for n in names if getattr(args, n) not in (None, False)]


def run(args: argparse.Namespace) -> int:
    """Run or read, evaluate, print, draw."""
    from sdfstream.score.clock import peers as clock_peers
    from sdfstream.score.clock import plots as clock_plots
    from sdfstream.score.clock import report

    wanted, seeds = _cases(args.only), chosen_seeds(args)
    if args.write is not None:
        return _write(args, wanted, seeds)
    for asked, module in ((args.peers, clock_peers), (args.plots, clock_plots)):
        if asked:
            module.require()  # before a quarter of an hour of work, not after it
    result = _read(args.source) if args.source is not None else measure(wanted, seeds, peers=args.peers)
    images = _draw(args.plots, result, peers=args.peers) if args.plots is not None else []
    if args.markdown is not None:
        args.markdown.parent.mkdir(parents=True, exist_ok=True)
        args.markdown.write_text(report.page(result, _relative(images, args.markdown)))
        progress(f"written: {args.markdown}")
    emit(args.json, result, "\n\n".join(report.text(name, card) for name, card in result.items()))
    missed = any(not met for card in result.values() for met in card["met"].values())
    return 1 if args.check and missed else 0


def chosen_seeds(args: argparse.Namespace) -> list[int]:
    """``--seed N``: that one; ``--seeds N``: 1 to N; else ten, or one with ``--quick``."""
    if args.seed is not None:
        if args.seed < 0:
            raise ConfigError(f"--seed must not be negative, not {args.seed}")
        return [args.seed]
    count = args.seeds if args.seeds is not None else QUICK_SEEDS if args.quick else SEEDS
    if count < 1:
        raise ConfigError(f"--seeds must be at least 1, not {count}")
    return list(range(1, count + 1))


def measure(wanted: Sequence[str], seeds: Sequence[int], *, peers: bool) -> dict[str, Any]:
    """Case to its card; progress on stderr."""
    from sdfstream.score.clock.cases import BY_NAME

    began, result = edge_io.steady_s(), {}
    with _pool() as workers:
        waiting: dict[tuple[str, str], list[Future[Any]]] = {}
        for name in wanted:
            waiting[name, _OURS] = [workers.submit(_ours, name, seed) for seed in seeds]
            if peers and BY_NAME[name].peers:
                waiting[name, _PEERS] = [workers.submit(_theirs, name, seed) for seed in seeds]
        for done, name in enumerate(wanted, 1):
            result[name] = _card(name, seeds, waiting[name, _OURS], waiting.get((name, _PEERS), []))
            missed = [limit for limit, met in result[name]["met"].items() if not met]
            verdict = f"missed {', '.join(missed)}" if missed else "all limits met"
            took = f"{result[name]['cpu_s']:.1f} s of CPU a seed; {edge_io.steady_s() - began:.0f} s so far"
            progress(f"[{done}/{len(wanted)}] {name}: {verdict} ({took})")
    return result


def _pool() -> ProcessPoolExecutor:
    """A process per core, each of one thread: arrays are small, so that more threads of numpy only contend."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        edge_io.default_environment(name, "1")
    return ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn"))


def _ours(name: str, seed: int) -> tuple[Figures, float]:
    """Figures of one seed of a case, and the CPU seconds it took; runs in a worker."""
    from sdfstream.score.clock.cases import BY_NAME, run

    began = edge_io.cpu_s()
    found = run(BY_NAME[name], seed)
    return found, edge_io.cpu_s() - began


def _theirs(name: str, seed: int) -> dict[str, Figures]:
    """The other estimators' figures of one seed of a case; runs in a worker."""
    from sdfstream.score.clock.cases import BY_NAME
    from sdfstream.score.clock.peers import compared

    return compared(BY_NAME[name], seed)


def _card(name: str, seeds: Sequence[int], ours: list[Future[Any]], theirs: list[Future[Any]]) -> dict[str, Any]:
    from sdfstream.score.clock.cases import BY_NAME, spread, summary

    done = [future.result() for future in ours]
    found = [figures for figures, _ in done]
    card: dict[str, Any] = {**summary(BY_NAME[name], found), "seeds": list(seeds)}
    card["each"] = [{k: f[k] for k in ("rms", "p99", "max", "covered")} for f in found]
    card["cpu_s"] = round(sum(cpu for _, cpu in done) / len(done), 2)
    if theirs:
        peers = [future.result() for future in theirs]
        card["peers"] = {peer: spread([p[peer] for p in peers]) for peer in peers[0]}
    return card


def _cases(only: list[str] | None) -> list[str]:
    from sdfstream.score.clock.cases import BY_NAME

    if unknown := [name for name in only or () if name not in BY_NAME]:
        raise ConfigError(f"--only: no case '{unknown[0]}'; there are {', '.join(BY_NAME)}")
    return list(dict.fromkeys(only or BY_NAME))


def _read(path: Path) -> dict[str, Any]:
    """The output of ``--json``: the last line of a file."""
    from sdfstream.score.clock.cases import BY_NAME

    try:
        result = json.loads(path.read_text().strip().splitlines()[-1])
    except (OSError, ValueError, IndexError) as error:
        raise ConfigError(f"--from {path}: not what --json printed: {error}") from error
    fields = {"covered", "median", "worst", "limits", "met", "met_worst", "seeds"}
    if not isinstance(result, dict) or not all(isinstance(c, dict) and fields <= c.keys() for c in result.values()):
        raise ConfigError(f"--from {path}: not what --json printed: a case lacks one of {', '.join(sorted(fields))}")
    if unknown := [name for name in result if name not in BY_NAME]:
        raise ConfigError(f"--from {path}: no case '{unknown[0]}' in this version")
    return result


def _draw(folder: Path, result: dict[str, Any], *, peers: bool) -> list[tuple[str, Path]]:
    """Pictures of the first seed of some cases (run again for it), and of the whole result."""
    import numpy as np

    from sdfstream.score.clock import plots
    from sdfstream.score.clock.cases import BY_NAME

    made = []
    with _pool() as workers:
        seeds = {name: result[name]["seeds"] for name in result}
        shown = {n: workers.submit(_tracks, n, seeds[n][0]) for n in plots.OVER_TIME if n in result}
        beside = [workers.submit(_errors, plots.BESIDE, s, peers) for s in seeds.get(plots.BESIDE, [])[:3]]
        for name, future in shown.items():
            made.append((f"{BY_NAME[name].what}: error and bound, seed {seeds[name][0]}", folder / f"clock-{name}.svg"))
            plots.over_time(made[-1][1], made[-1][0], future.result(), plots.OVER_TIME[name])
        if beside:
            errors = [future.result() for future in beside]
            made.append((f"{BY_NAME[plots.BESIDE].what}: {len(errors)} seeds", folder / "clock-distribution.svg"))
            plots.distribution(*made[-1][::-1], {k: np.concatenate([p[k] for p in errors]) for k in errors[0]})
    made.append(("rows outside their bound", folder / "clock-coverage.svg"))
    plots.coverage(made[-1][1], result)
    for _, path in made:
        progress(f"written: {path}")
    return made


def _tracks(name: str, seed: int) -> Any:
    """Tracks of a case, the troubled clocks first; at most three of them."""
    from sdfstream.score.clock.cases import BY_NAME, simulate

    seen = simulate(BY_NAME[name], seed)
    order = sorted(seen.causal, key=lambda clock: (clock not in seen.troubled, clock))
    return {clock: seen.causal[clock] for clock in order[:3]}


def _errors(name: str, seed: int, peers: bool) -> dict[str, Any]:
    """Errors over the evaluated stretch of a case: ours, and some other estimators'."""
    import numpy as np

    from sdfstream.score.clock.cases import BY_NAME, simulate
    from sdfstream.score.clock.peers import SHOWN, errors_of

    case = BY_NAME[name]
    seen = simulate(case, seed)
    rows = {"sdfstream, causal": seen.causal, "sdfstream, smoothed (2-4 s late)": seen.smoothed}
    found = {k: np.concatenate([t.between(*case.stretch_s).error for t in v.values()]) for k, v in rows.items()}
    return {**found, **errors_of(case, seed, SHOWN if peers else frozenset())}


def _relative(images: list[tuple[str, Path]], page: Path) -> list[tuple[str, str]]:
    return [(title, Path(os.path.relpath(path, page.parent)).as_posix()) for title, path in images]


def _write(args: argparse.Namespace, wanted: Sequence[str], seeds: Sequence[int]) -> int:
    """Recordings that ``sdfstream replay`` reads, one folder per case and seed, and their truth for ``score``."""
    from sdfstream.score.clock.cases import BY_NAME

    written = {}
    for name in wanted:
        for seed in seeds:
            case, folder = BY_NAME[name], args.write / f"{name}-{seed}"
            written[folder.name] = record(case.make(seed), case.seconds, folder)
            progress(f"written: {folder}")
    emit(args.json, {"written": written}, "\n".join(f"{name}: {rows:,} exchanges" for name, rows in written.items()))
    return 0


def record(world: Any, seconds: float, folder: Path) -> int:
    """Write a world's probes as a recording, and its truth into it; how many exchanges."""
    from sdfstream.bus.recording.writer_io import RecordingWriter
    from sdfstream.score.clock.truth import truth_lines

    writer = RecordingWriter(folder, cluster="simulated")
    writer.write(world.messages(seconds))
    writer.finish()
    (folder / "truth").mkdir()
    lines = [compact(line) for line in truth_lines(world, seconds)]
    (folder / "truth" / "clock.jsonl").write_text("\n".join(lines) + "\n")
    return int(world.exchanges["sent"].size)
