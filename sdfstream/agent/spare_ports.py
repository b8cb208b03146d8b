"""Further source ports of a watched NIC pair, for segments that none of its watch ports crosses: pure.

Equal-cost routes are chosen by a hash of the ports, so that of p watch ports none crosses a given one of n routes with
the probability (1 − 1/n)^p: 1 % with 16 ports and 4 spines, 36 % with 16 spines. What queue pairs use there, or may be
moved to, is then watched by the mesh alone, late. So such a pair's *spare ports* are tried in their order: some at a
time are probed as candidates, hence traced, and retained where they cross what was missing. Segments that every spare
port misses are `missing`, and sought again after a while, for routes change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sdfstream.records.units import NS_PER_S

AT_ONCE: Final = 8
"""Ports of a pair on trial: a host traces two or three a second."""
ENOUGH: Final = 2
"""Ports over a segment that are retained: what is in use is shown twice (`watch_cover`)."""
TRACED_NS: Final = 5 * NS_PER_S
"""Wait for the commands' word on the way back of a port whose way there is traced; what lies there is known at once."""
TRIAL_NS: Final = 30 * NS_PER_S
"""A port that is not traced by then does not answer, or its routers do not."""
HOLD_NS: Final = 10 * NS_PER_S
"""A port that is needed no more stays so long: a choice that goes back and forth changes nothing."""
AGAIN_NS: Final = 600 * NS_PER_S
"""Pause after all spare ports were tried in vain."""


class SparePorts:
    """The spare ports of one NIC pair.

    Parameters
    ----------
    ports : sequence of int
        To be tried, in this order.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = tuple(ports)
        self._needed_ns: dict[int, int] = {}
        """Retained ports, and when each was last needed."""
        self._trials: dict[int, list[int]] = {}
        """Ports on trial: since when, and since when traced (empty until then); steady clock."""
        self._lacked_ns: dict[str, int] = {}
        """Segments that nothing crosses, and since when."""
        self._sought: frozenset[str] = frozenset()
        self._next = 0
        self._again_at_ns = 0

    @property
    def probed(self) -> tuple[int, ...]:
        """Ports to be probed now, as candidates or quick."""
        return (*self._needed_ns, *self._trials)

    @property
    def missing(self) -> frozenset[str]:
        """Segments that no port crosses, after all were tried."""
        return self._sought if self._next >= len(self._ports) and not self._trials else frozenset()

    def step(
        self,
        wanted: frozenset[str],
        crossed: Mapping[int, frozenset[str]],
        traced: Collection[int],
        room: int,
        now_ns: int,
        *,
        settled: bool,
        there: Collection[str] = (),
    ) -> None:
        """Retain and try ports.

        Parameters
        ----------
        wanted : set of segments
            Watched for this pair, and crossed by no watch port of its NIC.
        crossed : port to segments
            Of `probed`, as far as they are known.
        traced : collection of int
            Those of `probed` whose way there is known.
        room : int
            How many may be probed.
        settled : bool
            Whether the ways of all the pair's watch ports are known, so that `wanted` says something.
        there : collection of segments
            On the way there, of which nothing is learnt from commands.
        """
        lacking = wanted - self._retain(wanted, crossed, room, now_ns)
        self._lacked_ns = {name: self._lacked_ns.get(name, now_ns) for name in lacking}
        patience_ns = TRACED_NS if settled else TRIAL_NS
        holes = frozenset(
            name
            for name, since in self._lacked_ns.items()
            if now_ns - since >= patience_ns or (settled and name in there)
        )
        if not holes:
            self._trials, self._sought = {}, holes
            return
        if not holes <= self._sought or (self.missing and now_ns >= self._again_at_ns):
            self._next = 0
        self._sought = holes
        self._end_trials(traced, room, now_ns)
        while self._next < len(self._ports) and len(self._trials) < AT_ONCE and len(self.probed) < room:
            port = self._ports[self._next]
            self._next += 1
            self._again_at_ns = now_ns + AGAIN_NS
            if port not in self.probed:
                self._trials[port] = [now_ns]

    def _retain(
        self, wanted: frozenset[str], crossed: Mapping[int, frozenset[str]], room: int, now_ns: int
    ) -> frozenset[str]:
        """Retain the ports that are needed, the oldest first; the segments of `wanted` that they cross."""
        times: Counter[str] = Counter()
        retained: dict[int, int] = {}
        for port in self.probed:
            mine = wanted & crossed.get(port, frozenset())
            if any(times[name] < ENOUGH for name in mine):
                retained[port] = now_ns
                times.update(mine)
            elif now_ns - self._needed_ns.get(port, now_ns - HOLD_NS) < HOLD_NS:
                retained[port] = self._needed_ns[port]
        self._needed_ns = dict(list(retained.items())[: max(room, 0)])
        self._trials = {port: since for port, since in self._trials.items() if port not in retained}
        return frozenset(times)

    def _end_trials(self, traced: Collection[int], room: int, now_ns: int) -> None:
        for port, (began_ns, *known_ns) in list(self._trials.items()):
            if port in traced and not known_ns:
                self._trials[port] = [began_ns, now_ns]
            elif (known_ns and now_ns - known_ns[0] >= TRACED_NS) or now_ns - began_ns >= TRIAL_NS:
                del self._trials[port]
        while self._trials and len(self.probed) > room:
            self._trials.popitem()
