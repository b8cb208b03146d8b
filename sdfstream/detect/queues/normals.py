r"""What of a path's normal delay is a queue that never left it.

A path over a link that is always full knows no other delay: its baseline (`detect.delays`) holds the queue. But a queue
is no constant, and probes that met little of it show how far below the normal delay can be. So of

.. math::

    s_p = \bar d_p - \min d_p

what exceeds that of the fabric's quietest paths (the hosts' own scatter) and a margin is taken for a queue. Of a queue
that stood all the time the part that was never gone stays hidden.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.detect.queues.excess import PathExcess
from sdfstream.numeric.table import Table
from sdfstream.numeric.tomography import PathDelays
from sdfstream.records.units import NS_PER_S

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_BUCKET_NS: Final = 60 * NS_PER_S
"""The smallest delay is that of the last one to two minutes: longer, and a clock's wander would be in it."""
_QUIETEST, _QUIET = 0.05, 0.2
"""Quantiles of all paths' `s`: the hosts' own scatter, and with it how much that differs between them."""
_MARGIN_NS: Final = 2_000.0
_LEAST_NS: Final = 50.0
"""No path is known better, however often it is measured."""


class PathFloors:
    """Smallest delay of each directed path lately."""

    def __init__(self) -> None:
        self.table = Table({"bucket": np.int64(-1), "now_ns": np.float64(np.inf), "before_ns": np.float64(np.inf)})

    def take(self, number: Ints, start_ns: Ints, delay_ns: Floats) -> None:
        """Take delays; a path may occur several times, a former bucket's delay counts in the present one."""
        if not number.size:
            return
        self.table.ensure(int(number.max()) + 1)
        t, newest = self.table, int(start_ns.max()) // _BUCKET_NS
        begun = number[t["bucket"][number] < newest]
        t["before_ns"][begun], t["now_ns"][begun], t["bucket"][begun] = t["now_ns"][begun], np.inf, newest
        np.minimum.at(t["now_ns"], number, delay_ns)

    def without(self, paths: PathExcess) -> PathDelays:
        """The paths' delays over what is normal without a queue, and how well they are known without one.

        A scatter that a standing queue makes is no noise: such a path's is taken to be as quiet paths' are.
        """
        standing_ns, scatter_ns = self._standing_ns(paths), paths.scatter_ns
        if scatter_ns.size:
            usual_ns = 2 * float(np.quantile(scatter_ns, _QUIET))
            scatter_ns = np.where(standing_ns > 0, np.minimum(scatter_ns, usual_ns), scatter_ns)
        variance = scatter_ns**2 * (1 / np.maximum(paths.n, 1) + 1 / np.maximum(paths.learnt, 1))
        err_ns = np.sqrt(variance + paths.clock_ns**2 + _LEAST_NS**2)
        return PathDelays(paths.excess_ns + standing_ns, err_ns, paths.n)

    def _standing_ns(self, paths: PathExcess) -> Floats:
        """(paths,) how much of these paths' normal delays is queue."""
        t, number = self.table, paths.number
        floor_ns = np.minimum(t["now_ns"][number], t["before_ns"][number])
        if not number.size:
            return floor_ns
        scatter_ns = paths.normal_ns - floor_ns
        quietest, quiet = np.quantile(scatter_ns, (_QUIETEST, _QUIET))
        result: Floats = np.maximum(scatter_ns - (quiet + 2 * (quiet - quietest) + _MARGIN_NS), 0.0)
        return result

    def forget(self, numbers: Ints) -> None:
        """Start anew for these directed paths."""
        self.table.reset(numbers[numbers < self.table["bucket"].size])

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain arrays."""
        return self.table.snapshot()

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.table.restore(state)
