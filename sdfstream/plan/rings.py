"""The random graph of clocks: a union of rings, each clock at a position of its own on every one.

Law and Siu ("Distributed construction of random expander networks", 2003) build a random 2k-regular graph as k random
Hamiltonian cycles. Here a clock's position on a ring is a hash of the ring and the clock, so

- the graph is the same whoever draws it, and needs no memory of the one before;
- a clock that joins slips in between two neighbours on every ring, and one that leaves lets them join hands;
- every ring passes through all clocks, so the graph stays connected when any one clock leaves;
- each clock probes its successors and is probed by its predecessors: everyone sends and answers alike.

Where two rings have an edge in common, its ends lack a peer; they are joined to others that lack one (`_chords`).

Redraw: a position has a *generation*, and is due for the next one every `ROUNDS` / share epochs, each at a time of its
own. At most `_moves` positions move at once; where more are due, the rest waits for its next turn. A move replaces
three edges, so at most `share` of the edges is replaced, duplicates and chords included.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.plan.hashing import UInt64s, mixed, of_pair
from sdfstream.records.units import Int64s

ROUNDS: Final = 8
"""A position is due every ROUNDS / share epochs: fewer move on average than may."""
_EDGES_A_MOVE: Final = 4
_EDGES_BESIDE: Final = 5
"""A move replaces three edges of its ring, and now and then a chord; where moves are few, several chords may follow."""
_DUE, _SKIP, _POSITION, _CHORD, _LAST, _DIRECTION = range(1, 7)


class RingEdges(NamedTuple):
    """Clock `a` probes clock `b`; (edges,)."""

    a: Int64s
    b: Int64s


def graph(ids: UInt64s, degree: int, seed: int, epoch: int, share: float) -> RingEdges:
    """A graph in which every clock has at least `degree` peers; all have each other up to 2 · `degree` clocks.

    Parameters
    ----------
    ids : (n,) uint64
        Hash of each clock's name.
    degree : int
        Peers wanted.
    seed, epoch : int
        Both choose the graph; successive epochs' differ by at most `share` of the edges.
    share : float

    Examples
    --------
    >>> from sdfstream.plan.hashing import of_names
    >>> found = graph(of_names([f"h{i}" for i in range(100)]), 10, 1, 0, 0.1)
    >>> degrees = np.bincount(np.concatenate(found))
    >>> int(degrees.min()), int(degrees.max()) <= 12
    (10, True)
    """
    n = len(ids)
    if n <= 2 * degree:
        return _complete(ids)
    rings = -(-degree // 2)
    generation = _generations(ids, rings, seed, epoch, share)
    after = []
    for ring in range(rings):
        order = np.argsort(mixed(ids, seed, _POSITION, ring, generation[ring]), kind="stable")
        after.append(np.stack([order, np.roll(order, -1)]))
    a, b = np.concatenate(after, axis=1)
    a, b = _once(a, b, n)
    more = _chords(ids, a, b, degree, seed)
    return RingEdges(np.concatenate([a, more.a]), np.concatenate([b, more.b]))


def _complete(ids: UInt64s) -> RingEdges:
    """Everyone with everyone, each pair in one direction, so that all send about as much as they answer."""
    by_id = np.argsort(ids, kind="stable")
    low, high = np.triu_indices(len(ids), 1)
    turn = ((low + high) % 2).astype(bool)
    return RingEdges(by_id[np.where(turn, low, high)], by_id[np.where(turn, high, low)])


def _once(a: Int64s, b: Int64s, n: int) -> tuple[Int64s, Int64s]:
    """The edges without those that came before, in either direction."""
    _, first = np.unique(np.minimum(a, b) * n + np.maximum(a, b), return_index=True)
    first.sort()
    return a[first], b[first]


def _generations(ids: UInt64s, rings: int, seed: int, epoch: int, share: float) -> Int64s:
    """(rings, n) which generation of its position each clock is at."""
    n = len(ids)
    moves = int((share * n * rings - _EDGES_BESIDE) / _EDGES_A_MOVE)
    if moves <= 0:
        return np.zeros((rings, n), dtype=np.int64)
    every = max(1, int(np.ceil(ROUNDS / share)))
    who = np.tile(ids, rings)
    ring = np.repeat(np.arange(rings), n)
    due = (mixed(who, seed, _DUE, ring) % np.uint64(every)).astype(np.int64)
    turn = (epoch - due) // every
    crowded = np.flatnonzero(np.bincount(due, minlength=every) > moves)
    for bucket in crowded.tolist():
        mine = np.flatnonzero(due == bucket)
        turn[mine] = _last_turns(mixed(who[mine], ring[mine]), seed, int(turn[mine[0]]), moves)
    return turn.reshape(rings, n)


def _last_turns(who: UInt64s, seed: int, turn: int, moves: int) -> Int64s:
    """The last turn up to `turn` at which each of `who` moved, when only `moves` of them do at each."""
    found = np.full(len(who), -1, dtype=np.int64)
    waiting = np.ones(len(who), dtype=bool)
    while waiting.any() and turn >= 0:
        first = np.argsort(mixed(who, seed, _SKIP, turn), kind="stable")[:moves]
        chosen = first[waiting[first]]
        found[chosen] = turn
        waiting[chosen] = False
        turn -= 1
    return found


class _Lack:
    """Clocks with too few peers, and the edges that were found for them."""

    def __init__(self, missing: dict[int, int], a: Int64s, b: Int64s) -> None:
        self.missing = missing
        """Clock to the number of peers that it lacks."""
        self.joined: dict[int, set[int]] = {c: set() for c in missing}
        self.found: list[tuple[int, int]] = []
        for near, far in ((a, b), (b, a)):
            mine = np.isin(near, list(missing))
            for c, peer in zip(near[mine].tolist(), far[mine].tolist(), strict=True):
                self.joined[c].add(peer)

    def join(self, c: int, peer: int) -> None:
        """Add an edge."""
        self.found.append((c, peer))
        for one, other in ((c, peer), (peer, c)):
            if one in self.missing:
                self.joined[one].add(other)
                self.missing[one] -= 1


def _chords(ids: UInt64s, a: Int64s, b: Int64s, degree: int, seed: int) -> RingEdges:
    """Edges for clocks with too few peers: with each other where they can, in the order of the pairs' hashes."""
    n = len(ids)
    degrees = np.bincount(a, minlength=n) + np.bincount(b, minlength=n)
    lacking = np.flatnonzero(degrees < degree)
    lack = _Lack({int(c): degree - int(degrees[c]) for c in lacking}, a, b)
    missing, joined = lack.missing, lack.joined
    low, high = np.triu_indices(len(lacking), 1)
    left, right = lacking[low], lacking[high]
    for i in np.argsort(mixed(of_pair(ids[left], ids[right]), seed, _CHORD), kind="stable").tolist():
        c, peer = int(left[i]), int(right[i])
        if missing[c] > 0 and missing[peer] > 0 and peer not in joined[c]:
            lack.join(c, peer)
    for c in sorted(missing, key=lambda c: int(ids[c])):
        if missing[c] > 0:
            order = np.argsort(mixed(of_pair(ids[c], ids), seed, _LAST), kind="stable").tolist()
            for peer in [p for p in order if p != c and p not in joined[c]][: missing[c]]:
                lack.join(c, peer)
    if not lack.found:
        return RingEdges(np.empty(0, np.int64), np.empty(0, np.int64))
    ends = np.array(lack.found, dtype=np.int64)
    turn = (mixed(of_pair(ids[ends[:, 0]], ids[ends[:, 1]]), seed, _DIRECTION) & np.uint64(1)).astype(bool)
    first_is_low = ids[ends[:, 0]] < ids[ends[:, 1]]
    keep = turn == first_is_low
    return RingEdges(np.where(keep, ends[:, 0], ends[:, 1]), np.where(keep, ends[:, 1], ends[:, 0]))
