"""Clocks that are wrong on purpose, for the hosts of a lab, and their true offsets.

All lab hosts share one kernel clock. To test sync, each host's agent reads a clock of its own
(`probes.virtual_clock`): the k-th host has a multiple of the offset and the skew, and every clock a random walk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sdfstream.probes.config import VirtualClock
from sdfstream.probes.virtual_clock import KNOT_NS, Clock

OFFSET_NS: Final = 123_456.0
SKEW_PPB: Final = 10_000.0
WANDER_NS: Final = 200.0
"""Phase walk, ns/√s."""


def wrong_clocks(hosts: Sequence[str], seed: int, epoch_at_ns: int) -> dict[str, VirtualClock]:
    """A wrong clock for each of `hosts`: offset and skew ×0, ×1, ×−1, ×2, ×−2, …, skew bounded by ±10 ppm.

    >>> [(c.offset_ns, c.skew_ppb) for c in wrong_clocks(["h00", "h01", "h02", "h03"], 1, 0).values()]
    [(0.0, 0.0), (123456.0, 10000.0), (-123456.0, -10000.0), (246912.0, 10000.0)]
    """
    times = [(k + 1) // 2 * (1 if k % 2 else -1) for k in range(len(hosts))]
    return {
        host: VirtualClock(
            offset_ns=OFFSET_NS * k if k else 0.0,
            skew_ppb=SKEW_PPB * ((k > 0) - (k < 0)),
            wander_ns_per_sqrt_s=WANDER_NS,
            seed=seed * 1_000 + i,
            epoch_at_ns=epoch_at_ns,
        )
        for i, (host, k) in enumerate(zip(hosts, times, strict=True))
    }


def true_offsets(clocks: Mapping[str, VirtualClock], from_ns: int, to_ns: int) -> Iterator[dict[str, Any]]:
    """Lines of ``truth/clock.jsonl``: each clock's offset at every knot of its walk, linear between two."""
    for name, settings in clocks.items():
        clock = Clock(settings)
        first = settings.epoch_at_ns + (from_ns - settings.epoch_at_ns) // KNOT_NS * KNOT_NS
        for at_ns in range(first, to_ns + KNOT_NS, KNOT_NS):
            yield {"clock": name, "at_ns": at_ns, "offset_ns": clock.at(at_ns) - at_ns}
