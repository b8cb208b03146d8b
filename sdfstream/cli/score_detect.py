"""``sdfstream score detect``: the pipeline over the twin's corpus, on all cores, against its truth."""

from __future__ import annotations

import argparse
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sdfstream.cli import edge_io
from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import emit, progress

if TYPE_CHECKING:
    from sdfstream.score.detect.facts import RunFacts
    from sdfstream.score.detect.labels.sightings import Sighting

OPTIONS: Final = ("only", "quick", "seeds", "seed", "labels", "markdown")
"""Options of ``score clock`` that this takes too."""
_ASKED: Final = 10
"""Seeds whose findings are asked for their causes with ``--labels``, unless ``--seeds`` says how many."""


def run(args: argparse.Namespace) -> int:
    """Run the scenarios, add up, print."""
    if args.labels is not None:
        return _labels(args)
    from sdfstream import settings
    from sdfstream.score.detect.card import card
    from sdfstream.score.detect.run import chosen
    from sdfstream.score.detect.text import table
    from sdfstream.twin import shipped_io

    paths = [shipped_io.find(name) for name in chosen(args.only or (), quick=args.quick, shipped=shipped_io.names())]
    began_s = edge_io.steady_s()
    runs = measure(paths, _seeds(args), settings.load(None))
    result: dict[str, Any] = card(runs)
    result["seconds"] = round(edge_io.steady_s() - began_s, 1)
    if args.markdown is not None:
        args.markdown.parent.mkdir(parents=True, exist_ok=True)
        args.markdown.write_text(table(result) + "\n")
    emit(args.json, result, table(result), nulls=True)
    return 0


def _labels(args: argparse.Namespace) -> int:
    """Run the labelled fabric with and without port counters, teach, ask, print."""
    from sdfstream import settings
    from sdfstream.score.detect.labels import text
    from sdfstream.score.detect.labels.learning import card

    if args.only or args.quick or args.seed is not None:
        raise ConfigError("--labels has scenarios and seeds of its own: leave out --only, --quick and --seed")
    if args.labels < 1:
        raise ConfigError(f"--labels must be at least 1, not {args.labels}")
    asked = len(_seeds(args)) if args.seeds is not None else _ASKED
    began_s, seeds = edge_io.steady_s(), list(range(1, args.labels + asked + 1))
    found = _sighted(seeds, settings.load(None))
    result: dict[str, Any] = {
        name: card({n: of[n] for n in seeds[: args.labels]}, {n: of[n] for n in seeds[args.labels :]})
        for name, of in found.items()
    }
    result["seconds"] = round(edge_io.steady_s() - began_s, 1)
    if args.markdown is not None:
        args.markdown.parent.mkdir(parents=True, exist_ok=True)
        args.markdown.write_text(text.table(result) + "\n")
    emit(args.json, result, text.table(result), nulls=True)
    return 0


def _sighted(seeds: list[int], chosen: Any) -> dict[str, dict[int, list[Sighting]]]:
    """Findings of every seed, without and with port counters, on all cores."""
    from sdfstream.score.detect.labels.sightings import sightings

    found: dict[str, dict[int, list[Sighting]]] = {name: {} for name in ("without_counters", "with_counters")}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=os.cpu_count() or 1, mp_context=spawn) as workers:
        waiting = {
            workers.submit(sightings, seed, chosen, counters=name == "with_counters"): (name, seed)
            for seed in seeds
            for name in found
        }
        for number, done in enumerate(as_completed(waiting), 1):
            name, seed = waiting[done]
            found[name][seed] = done.result()
            progress(
                f"{number} of {len(waiting)}: seed {seed}, {name.replace('_', ' ')}: {len(found[name][seed])} findings"
            )
    return found


def _seeds(args: argparse.Namespace) -> list[int]:
    """``--seed N``: that one; ``--seeds N``: 1 to N; else 1."""
    if args.seed is not None and args.seed < 0:
        raise ConfigError(f"--seed must not be negative, not {args.seed}")
    if args.seeds is not None and args.seeds < 1:
        raise ConfigError(f"--seeds must be at least 1, not {args.seeds}")
    return [args.seed] if args.seed is not None else list(range(1, (args.seeds or 1) + 1))


def measure(paths: list[Path], seeds: list[int], chosen: Any) -> list[RunFacts]:
    """Every scenario with every seed, on all cores; in order of both."""
    from sdfstream.score.detect import run as one
    from sdfstream.twin.scenario import read

    for path in paths:
        read(path)  # a mistake is named before minutes of work
    wanted = [(path, seed) for path in paths for seed in seeds]
    made: dict[tuple[Path, int], RunFacts] = {}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=min(os.cpu_count() or 1, len(wanted)), mp_context=spawn) as workers:
        waiting = {workers.submit(one.run, path, seed, chosen): (path, seed) for path, seed in wanted}
        for done in as_completed(waiting):
            key = waiting[done]
            made[key] = done.result()
            found = ", ".join(
                f"{f.kind} {'at its place' if f.exact else 'found' if f.found else 'missed'}" for f in made[key].faults
            )
            wrong = len(made[key].false_alarms)
            progress(
                f"{len(made)} of {len(wanted)}: {key[0].stem}, seed {key[1]}: {found or 'no fault'}; {wrong} false"
            )
    return [made[key] for key in wanted]
