"""Clock estimates against simulated truth, with limits; laws as in docs/sync.md. Seeds are printed with the figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sdfstream.records import columns
from sdfstream.records.topics import CLOCK
from sdfstream.sync import SyncStage
from tests.fixtures.sync_sim import World, drive, mesh, pair

SETTLED_S = 20.0


def errors(world: World, seconds: float, kind: str = "causal") -> tuple[Any, Any]:
    """(error, bound) in ns of every settled row of every clock but the reference."""
    reference = min(world.clocks)
    found: dict[str, list[tuple[int, float, float]]] = {}
    for _, output in drive(SyncStage(), world.messages(seconds)):
        if output.topic != CLOCK.name:
            continue
        codes, names = columns.names(output.body, "clock")
        kinds, kind_names = columns.names(output.body, "kind")
        rows = (columns.values(output.body, c) for c in ("at_ns", "offset_ns", "err_ns"))
        for code, k, at, offset, err in zip(codes, kinds, *rows, strict=True):
            if kind_names[k] == kind and names[code] != reference:
                found.setdefault(names[code], []).append((int(at), float(offset), float(err)))
    error, bound = [], []
    for name, rows_of in found.items():
        at = np.array([r[0] for r in rows_of])
        t = world.clocks[name].true_time(at)
        truth = world.clocks[name].offset(t) - world.clocks[reference].offset(t)
        settled = t > SETTLED_S * 1e9
        error.append((np.array([r[1] for r in rows_of]) - truth)[settled])
        bound.append(np.array([r[2] for r in rows_of])[settled])
    return np.concatenate(error), np.concatenate(bound)


@pytest.mark.parametrize(
    ("name", "rate", "rms_limit", "max_limit"),
    [("B", 64.0, 60.0, 250.0), ("A", 16.0, 6.0, 25.0), ("L40", 64.0, 30.0, 150.0)],
)
def test_a_pair_is_within_its_limits_and_its_bound(name: str, rate: float, rms_limit: float, max_limit: float) -> None:
    rms, worst, covered = [], [], []
    for seed in (1, 2, 3):
        error, bound = errors(pair(name, rate, seed), 45.0)
        rms.append(float(np.sqrt((error**2).mean())))
        worst.append(float(np.abs(error).max()))
        covered.append(float((np.abs(error) <= bound).mean()))
    print(f"law {name} {rate:g}/s seeds 1-3: rms {np.round(rms, 1)}, max {np.round(worst, 1)}, covered {covered}")
    assert np.median(rms) <= rms_limit
    assert max(worst) <= max_limit
    assert min(covered) >= 0.999


def test_a_mesh_is_within_its_limits_and_its_bound() -> None:
    error, bound = errors(mesh(12, 6, "B", 64.0, seed=1), 35.0)
    print(f"mesh 12 x 6, law B, seed 1: rms {np.sqrt((error**2).mean()):.1f}, max {np.abs(error).max():.1f}")
    assert np.sqrt((error**2).mean()) <= 80.0
    assert (np.abs(error) <= bound).mean() >= 0.999
