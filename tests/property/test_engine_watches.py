"""Laws: the packet engine finds the routes dead and clean that the agent's `PathWatches` finds, and orders by that."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.agent.commands.crossings import ProbePath
from sdfstream.agent.commands.path_watch import CLEAN, DEAD, PathWatches, Segment, WatchKey
from sdfstream.probes.engine import layouts
from sdfstream.probes.engine.engine_io import PacketEngine
from sdfstream.records.units import NS_PER_MS
from tests.fixtures.engine_sender import ROOM
from tests.fixtures.engine_wire import echo

PATHS, PERIOD_NS, LIMIT_NS = 6, 10 * NS_PER_MS, 30 * NS_PER_MS
paths = st.lists(st.integers(0, PATHS), max_size=4, unique=True)
"""The last number is a path that is not probed."""


class Slots:
    """What `PathWatches` reads of a host."""

    def __init__(self, engine: PacketEngine) -> None:
        self.generation = 1
        self._engine = engine

    def slot(self, src: str, dst: str, path: int, dscp: int) -> int:
        return path if path < PATHS else -1

    def states(self) -> np.ndarray:
        return self._engine.reports["state"][:PATHS].copy()

    def limit_ns(self, slot: int) -> int:
        return LIMIT_NS

    def routes(self, src: str) -> dict[ProbePath, tuple[str, ...]]:
        return {}


def record(path: int) -> np.void:
    made = np.zeros(1, dtype=layouts.PATH)
    made["interval_ns"], made["liveness_ns"] = PERIOD_NS, LIMIT_NS
    made["socket"], made["ssid"], made["length_octets"], made["port"] = path, 1, 80, 862
    return made[0]


class World:
    """An engine with a few paths that can be made alive or silent, and the same watches in both."""

    def __init__(self, segments: list[list[int]], routes: list[list[int]]) -> None:
        self.engine = PacketEngine(ROOM, error=1)
        self.now_ns = 10**12
        self.orders: list[tuple[int, int, list[int]]] = []
        """Order, alternate, and the verdicts of all routes at that time."""
        self.engine.on_order(self._note)
        for path in range(PATHS):
            self.engine.begin(path, record(path))
        self.engine.apply(self.now_ns)
        self.watches = PathWatches()
        self.slots = Slots(self.engine)
        named = [Segment(f"s{i}", tuple(ProbePath("far", p, 0) for p in members)) for i, members in enumerate(segments)]
        for number, crossed in enumerate(routes):
            self.watches.put(WatchKey("c", number), "near", [named[i] for i in crossed], 1)
        # PathWatches numbers a segment when a route first crosses it; a segment of no route does not count there
        used = sorted({i for crossed in routes for i in crossed})
        again = {i: n for n, i in enumerate(used)}
        self.engine.watch(
            [[p if p < PATHS else layouts.NONE for p in segments[i]] for i in used],
            [(number, [again[i] for i in crossed]) for number, crossed in enumerate(routes)],
        )
        self.routes = len(routes)

    def _note(self, order: int, alternate: int, now_ns: int) -> int:
        assert now_ns == self.now_ns
        self.orders.append((order, alternate, self.engine.route_reports["verdict"].tolist()))
        return 0

    def live(self, answered: set[int], periods: int) -> None:
        """Time goes by; only these paths are answered."""
        for _ in range(periods * 2):
            self.now_ns += PERIOD_NS // 2
            self.engine.apply(self.now_ns)
            out, data = self.engine.due(self.now_ns, self.now_ns)
            echo(self.engine, out, data, answered, self.now_ns)
            self.assess()

    def assess(self) -> None:
        self.engine.assess(self.now_ns, self.now_ns)
        self.watches.assess(self.slots, self.now_ns)
        expected = [self.watches.verdict(WatchKey("c", n)) for n in range(self.routes)]
        reports = self.engine.route_reports[: self.routes]
        assert reports["verdict"].tolist() == expected
        for number, since_ns in enumerate(reports["clean_since_ns"].tolist()):
            known = self.watches.clean_since_ns(WatchKey("c", number))
            assert (known is None) == (expected[number] != CLEAN)
            assert known is None or known == since_ns


@given(
    st.lists(paths, min_size=1, max_size=6),
    st.lists(st.lists(st.integers(0, 99), max_size=4, unique=True), min_size=1, max_size=5),
    st.lists(st.sets(st.integers(0, PATHS - 1)), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 99), st.lists(st.integers(0, 99), max_size=3)), max_size=4),
)
@settings(max_examples=30, deadline=None)
def test_verdicts_and_orders(
    segments: list[list[int]],
    routes: list[list[int]],
    phases: list[set[int]],
    orders: list[tuple[int, list[int]]],
) -> None:
    crossed = [list(dict.fromkeys(i % len(segments) for i in route)) for route in routes]
    world = World(segments, crossed)
    armed = [(route % len(routes), [a % len(routes) for a in alternates]) for route, alternates in orders]
    for number, (route, alternates) in enumerate(armed):
        world.engine.arm(number, route, alternates)
    for answered in [set(range(PATHS)), *phases]:
        world.live(answered, 6)
        verdicts = world.engine.route_reports["verdict"].tolist()
        for number, (route, alternates) in enumerate(armed):
            clean = any(verdicts[a] == CLEAN for a in alternates)
            if verdicts[route] == DEAD and (clean or not alternates):
                assert number in {order for order, _, _ in world.orders}
    for order, alternate, verdicts in world.orders:
        route, alternates = armed[order]
        clean = [i for i, a in enumerate(alternates) if verdicts[a] == CLEAN]
        assert verdicts[route] == DEAD
        assert alternate == (clean[0] if alternates else layouts.NONE)
    assert len(world.orders) == len({order for order, _, _ in world.orders}), "an order is given once"
