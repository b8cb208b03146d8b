"""Summary of an agent's own rows, path by path, for people: count, losses, round trip, spread of each direction.

One-way delays need a common clock, which a single agent does not have; their *spread* over the run (p99 − minimum)
needs none, as long as the clocks do not drift by as much in that time. Drift is taken out by the slope between the
smallest delays of the first and last tenth of the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream import visible
from sdfstream.records import columns
from sdfstream.records.hostclock import paths_only
from sdfstream.records.units import ABSENT_NS, Ecn, Float64s, Int64s

SAMPLES: Final = 8192
"""Exchanges sampled per path, uniformly of all (Vitter's algorithm R)."""


@dataclass(slots=True)
class _PathSummary:
    """Counts and sample of one path. Sampled columns: t1, round trip, forward and reverse difference, ns."""

    sent: int = 0
    lost: int = 0
    ce_fwd: int = 0
    ce_rev: int = 0
    kernel: int = 0
    """Exchanges with four kernel or hardware stamps."""
    ttl_fwd: set[int] = field(default_factory=set)
    ttl_rev: set[int] = field(default_factory=set)
    answered: int = 0
    sample: Int64s = field(default_factory=lambda: np.empty((SAMPLES, 4), np.int64))


class PathReport:
    """Running summary of one agent's probe rows.

    Parameters
    ----------
    rng : numpy Generator
        For the sampling of long runs.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._paths: dict[tuple[str, str, int, int], _PathSummary] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows of schema PROBE."""
        batch = paths_only(batch)
        src, src_names = columns.names(batch, "src")
        dst, dst_names = columns.names(batch, "dst")
        port = columns.values(batch, "path")
        dscp = columns.values(batch, "dscp_sent")
        keys = np.stack([src, dst, port, dscp], axis=1).astype(np.int64)
        distinct, member = np.unique(keys, axis=0, return_inverse=True)
        stamps = np.stack([columns.instants(batch, f"t{i}_ns") for i in (1, 2, 3, 4)], axis=1)
        kinds = np.stack([columns.values(batch, f"t{i}_kind") for i in (1, 2, 3, 4)], axis=1)
        seen = {name: columns.filled(batch, name, 255) for name in ("ecn_fwd", "ecn_rev")}
        ttls = {name: columns.filled(batch, name, 0) for name in ("ttl_fwd", "ttl_rev")}
        for number, (s, d, p, c) in enumerate(distinct.tolist()):
            rows = np.flatnonzero(member.reshape(-1) == number)
            path = self._paths.setdefault((src_names[s], dst_names[d], p, c), _PathSummary())
            answered = rows[stamps[rows, 3] != ABSENT_NS]
            path.sent += len(rows)
            path.lost += len(rows) - len(answered)
            path.ce_fwd += int((seen["ecn_fwd"][answered] == Ecn.CE).sum())
            path.ce_rev += int((seen["ecn_rev"][answered] == Ecn.CE).sum())
            path.kernel += int(np.isin(kinds[answered], (1, 2)).all(axis=1).sum())
            path.ttl_fwd |= set(ttls["ttl_fwd"][answered].tolist()) - {0}
            path.ttl_rev |= set(ttls["ttl_rev"][answered].tolist()) - {0}
            self._sample(path, stamps[answered])

    def _sample(self, path: _PathSummary, stamps: Int64s) -> None:
        t1, t2, t3, t4 = stamps.T
        rows = np.stack([t1, (t4 - t1) - (t3 - t2), t2 - t1, t4 - t3], axis=1)
        number = np.arange(path.answered, path.answered + len(rows))
        slot = np.where(number < SAMPLES, number, (self._rng.random(len(rows)) * (number + 1)).astype(np.int64))
        in_sample = slot < SAMPLES
        path.sample[slot[in_sample]] = rows[in_sample]
        path.answered += len(rows)

    def totals(self) -> tuple[int, int]:
        """Exchanges finished so far: answered, lost."""
        return sum(p.answered for p in self._paths.values()), sum(p.lost for p in self._paths.values())

    def paths(self) -> list[dict[str, Any]]:
        """One entry per path, sorted; durations in ns, None where nothing was answered."""
        return [
            {"src": src, "dst": dst, "path": port, "dscp": dscp, **_figures(path)}
            for (src, dst, port, dscp), path in sorted(self._paths.items())
        ]


def _figures(path: _PathSummary) -> dict[str, Any]:
    sample = path.sample[: min(path.answered, SAMPLES)]
    result: dict[str, Any] = {
        "n": path.sent,
        "lost": path.lost,
        "ce_fwd": path.ce_fwd,
        "ce_rev": path.ce_rev,
        "ttl_fwd": sorted(path.ttl_fwd),
        "ttl_rev": sorted(path.ttl_rev),
        "kernel_stamped": path.kernel,
    }
    if len(sample):
        rtt = sample[:, 1]
        result["rtt_min_ns"] = int(rtt.min())
        result["rtt_p50_ns"], result["rtt_p99_ns"] = (int(v) for v in np.percentile(rtt, (50, 99)))
        result["fwd_spread_ns"] = _spread(sample[:, 0], sample[:, 2])
        result["rev_spread_ns"] = _spread(sample[:, 0], sample[:, 3])
    return result


def _spread(at_ns: Int64s, delay_ns: Int64s) -> int:
    """p99 − minimum of one direction's delay, a steady drift of the clocks taken out."""
    order = np.argsort(at_ns, kind="stable")
    at: Float64s = (at_ns[order] - at_ns[order[0]]).astype(np.float64)
    delay: Float64s = (delay_ns[order] - delay_ns[order[0]]).astype(np.float64)
    tenth = max(1, len(at) // 10)
    first, last = int(np.argmin(delay[:tenth])), len(at) - tenth + int(np.argmin(delay[-tenth:]))
    if tenth > 4 and at[last] > at[first]:
        delay = delay - (delay[last] - delay[first]) / (at[last] - at[first]) * at
    return round(float(np.percentile(delay, 99) - delay.min()))


def table(paths: list[dict[str, Any]]) -> str:
    """The report as a table for people: times in µs."""
    head = ("peer", "path", "dscp", "n", "lost", "rtt min", "p50", "p99 µs", "fwd spread", "rev µs", "CE", "TTL")
    rows = [head, *(_row(p) for p in paths)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = [
        "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(r, widths, strict=True)))
        for r in rows
    ]
    return visible.lines(line.rstrip() for line in lines)


def _row(p: dict[str, Any]) -> tuple[str, ...]:
    lost = f"{100 * p['lost'] / p['n']:.2f} %" if p["lost"] else "0"
    times = (p.get(k) for k in ("rtt_min_ns", "rtt_p50_ns", "rtt_p99_ns", "fwd_spread_ns", "rev_spread_ns"))
    cells = tuple("-" if v is None else f"{v / 1e3:.1f}" for v in times)
    ttl = "/".join(",".join(str(t) for t in p[k]) or "-" for k in ("ttl_fwd", "ttl_rev"))
    ce = f"{p['ce_fwd']}/{p['ce_rev']}"
    return (f"{p['src']} > {p['dst']}", str(p["path"]), str(p["dscp"]), str(p["n"]), lost, *cells, ce, ttl)
