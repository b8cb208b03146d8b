"""Queues of every link direction along time: what flows ask for, what links carry, marks and pauses.

A fluid model in cells of 10 ms. Rate-controlled flows yield wherever more is asked for than a link can carry, and take
what others that yield elsewhere leave there, so that a full link carries what it can. The queue then stands between the
two ECN thresholds, the higher the harder the contention (as with DCTCP or DCQCN at rest). What
is unresponsive, or held up by pause frames, fills the buffer; a full buffer pauses the directions that feed it, one hop
a cell. Below saturation a packet meets the random queue of an M/M/1 server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sdfstream.records.units import Float64s, Int64s
from sdfstream.twin.conditions import Conditions
from sdfstream.twin.fabric import TwinFabric

CELL_NS: Final = 10_000_000
MIN_MARK_S, FULL_MARK_S, BUFFER_S, PAUSE_S = 20e-6, 80e-6, 800e-6, 400e-6
"""ECN thresholds, buffer and pause threshold as times at the link's speed: 250 kB, 1 MB, 10 MB, 5 MB at 100 Gb/s."""
MOST_MARKED: Final = 0.2
"""Share of packets marked at the upper threshold; beyond it all are."""
MTU_BITS: Final = 4096 * 8
_PAUSED: Final = 0.1
"""Share of the speed that is left to a direction whose far end is full."""
_LEAST_ROOM: Final = 0.02
"""Share of what it asks for that a flow keeps at the fullest link."""
_ROUNDS: Final = 12
_NEAR: Final = 0.002
"""Flows have settled once no link that they yield at lacks or has left more than this share of its speed."""
_SETTLE: Final = 0.4
"""Of the gap to where a queue will stand, closed in a cell."""


@dataclass(slots=True)
class Cell:
    """One cell of time, per link direction (the last stands for no link)."""

    delay_ns: Float64s
    """Standing queue."""
    random_ns: Float64s
    """Mean of the random queue besides."""
    mark: Float64s
    """Share of packets marked."""
    queue_bytes: Float64s
    """Standing queue."""
    random_bytes: Float64s
    """Mean of the random queue besides."""
    busy: Float64s
    """Share of the speed in use."""
    paused: Float64s
    """Share of the time in which the far end has paused the direction."""
    got: Float64s
    """(flows,) bit/s carried."""
    now: Conditions
    """What holds meanwhile: loss and more."""


class Queues:
    """The state of all queues; `step` advances it by a cell."""

    def __init__(self, fabric: TwinFabric) -> None:
        self.fabric = fabric
        self._from_nic = np.array([*("/" in name.split("->")[0] for name in fabric.names), True])
        """Directions that a NIC sends into: its queue is in its host, where nothing marks."""
        self._queue_bits = np.zeros(fabric.links + 1)
        self._paused = np.zeros(fabric.links + 1)
        self._feeds: tuple[Int64s, Int64s] = (np.empty(0, np.int64), np.empty(0, np.int64))
        self._routes_id = -1

    def step(self, routes: Int64s, asked_bps: Float64s, now: Conditions, routes_id: int) -> Cell:
        """One cell with (flows, 6) `routes` and (flows,) `asked_bps`; `routes_id` changes whenever `routes` does."""
        n, speed = self.fabric.links + 1, self.fabric.speed_bps
        usable = speed * np.maximum(now.capacity * (1 - (1 - _PAUSED) * self._paused), 0.01)
        unresponsive = now.cross * speed
        room = _room(routes, asked_bps, usable - unresponsive)
        got, pressing = _yielded(asked_bps, room[routes])
        load = (np.bincount(routes.ravel(), pressing.ravel(), n) + unresponsive) / usable
        lower, upper = MIN_MARK_S * now.thresholds * speed, FULL_MARK_S * now.thresholds * speed
        stands = lower + (upper - lower) * np.clip(3 * (1 - 1 / np.maximum(load, 1e-9)), 0, 1)
        held = now.stuck | (self._paused > 0.5)
        stands = np.where(held & (load > 0.5), BUFFER_S * speed, np.where(load > 1, stands, 0.0))
        stands = np.minimum(stands, BUFFER_S * speed)
        stands[-1] = 0.0
        q = self._queue_bits = self._queue_bits + _SETTLE * (stands - self._queue_bits)
        # a queue is marked by the thresholds of the link; while the link is paused nothing passes that could be
        mark = np.clip((q - lower) / (upper - lower), 0, 1) * MOST_MARKED
        mark = np.where((q >= 0.98 * upper) & (now.thresholds <= 1), 1.0, mark)
        mark = np.where(now.thresholds < 1, np.maximum(mark, _of_random(load, upper)), mark)
        mark[held | self._from_nic] = 0.0
        self._pauses(routes, routes_id, now, speed)
        served = np.minimum(load, 1.0) * usable / speed
        idle = np.maximum(1 - np.minimum(load, 0.98), 0.02)
        random_bits = np.where(speed < 1e17, np.minimum(load, 0.98) / idle * MTU_BITS, 0.0)
        random_ns = random_bits / usable * 1e9
        stuck_ns = np.where(now.stuck, 2e6, 0.0) + self._paused * 100e3
        delay_ns = q / usable * 1e9 + stuck_ns
        delay_ns[-1] = mark[-1] = served[-1] = 0.0
        return Cell(delay_ns, random_ns, mark, q / 8, random_bits / 8, served, self._paused.copy(), got, now)

    def _pauses(self, routes: Int64s, routes_id: int, now: Conditions, speed: Float64s) -> None:
        """A direction whose queue is over the threshold pauses those that feed it."""
        full = (self._queue_bits > PAUSE_S * speed) | now.stuck
        full[-1] = False
        self._paused = np.zeros_like(self._paused)
        if not full.any():
            return
        if routes_id != self._routes_id:
            pairs = np.unique(_neighbours(routes, self.fabric.links), axis=0)
            self._feeds, self._routes_id = (pairs[:, 0], pairs[:, 1]), routes_id
        feeds, fed = self._feeds
        self._paused[feeds[full[fed]]] = 1.0
        self._paused[-1] = 0.0


def _of_random(load: Float64s, upper_bits: Float64s) -> Float64s:
    """Share of packets marked because they find more than the upper threshold before them in the random queue.

    Of an M/M/1 server: P(queue > q) = ρ exp(−(1 − ρ) q / MTU). At thresholds as they should be it is next to nothing.
    """
    busy = np.clip(load, 0.0, 0.98)
    share: Float64s = busy * np.exp(-(1 - busy) * upper_bits / MTU_BITS)
    return share


def _room(routes: Int64s, asked_bps: Float64s, left_bps: Float64s) -> Float64s:
    """(links,) share of what it asks for that each link leaves to a flow.

    At first every link cuts what is asked of it alike. Where flows then yield elsewhere more than here, more is left to
    the others, until each link is full or cuts nobody.
    """
    room = np.clip(left_bps / np.maximum(_of_links(routes, asked_bps, left_bps.size), 1.0), _LEAST_ROOM, 1.0)
    room[-1] = 1.0
    cuts = room < 1.0
    for _ in range(_ROUNDS if cuts.any() else 0):
        carried = _of_links(routes, asked_bps * room[routes].min(axis=1), room.size)
        more = np.clip(room[cuts] * left_bps[cuts] / np.maximum(carried[cuts], 1.0), _LEAST_ROOM, 1.0)
        settled = np.abs(more - room[cuts]) <= _NEAR * more
        room[cuts] = more
        if settled.all():
            break
    return room


def _of_links(routes: Int64s, bps: Float64s, links: int) -> Float64s:
    """(links,) sums of what the flows over each send."""
    sums: Float64s = np.bincount(routes.ravel(), np.repeat(bps, routes.shape[1]), links).astype(np.float64)
    return sums


def _yielded(asked_bps: Float64s, room: Float64s) -> tuple[Float64s, Float64s]:
    """(flows,) bit/s got, (flows, 6) what each flow presses its hops with; `room`: (flows, 6) share left at each hop.

    A flow yields to its narrowest hop; there alone it presses with all that it asks for, elsewhere with what it gets.
    """
    if not asked_bps.size:
        return asked_bps, np.zeros_like(room)
    narrowest = room.argmin(axis=1)
    got = asked_bps * room[np.arange(room.shape[0]), narrowest]
    pressing = np.repeat(got[:, None], room.shape[1], axis=1)
    pressing[np.arange(room.shape[0]), narrowest] = asked_bps
    return got, pressing


def _neighbours(routes: Int64s, none: int) -> Int64s:
    """(n, 2) pairs of directions that stand behind each other in a route."""
    made = []
    for row_a in range(routes.shape[1] - 1):
        for row_b in range(row_a + 1, routes.shape[1]):
            between = (routes[:, row_a + 1 : row_b] == none).all(axis=1)
            a, b = routes[:, row_a], routes[:, row_b]
            fine = between & (a != none) & (b != none)
            made.append(np.stack([a[fine], b[fine]], axis=1))
    return np.concatenate(made)
