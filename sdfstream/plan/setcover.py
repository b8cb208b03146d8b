"""The fewest sessions that cross everything: greedy set cover, many picks at a time.

Greedy (Chvátal 1979) takes the candidate that covers most of what is left, again and again; it needs at most ln(k) + 1
times the fewest, k being the elements of the largest candidate (4 here). All candidates of the highest gain that share
nothing could be taken one after the other in any order, so they are taken at once: of those that meet at an element
the one with the smallest hash goes first (Luby 1986).
"""

from __future__ import annotations

import numpy as np

from sdfstream.plan.hashing import UInt64s
from sdfstream.records.units import Bools, Int64s


def cover(elements: Int64s, covered: Bools, order: UInt64s, ends: Int64s, room: Int64s) -> Int64s:
    """Candidates, by number, that cover what can be covered; `covered` and `room` are updated.

    Parameters
    ----------
    elements : (candidates, k) int64
        What each candidate crosses; −1: nothing.
    covered : (elements,) bool
        What is crossed already.
    order : (candidates,) uint64
        Which of several equally good ones comes first.
    ends : (candidates, 2) int64
        The hosts that pay for it.
    room : (hosts,) int64
        How many more each can pay for.

    Examples
    --------
    >>> crossed = np.zeros(3, dtype=bool)
    >>> some = np.array([[0, -1], [0, 1], [2, -1]])
    >>> cover(some, crossed, np.arange(3).astype(np.uint64), np.zeros((3, 2), np.int64), np.array([9])).tolist()
    [1, 2]
    """
    chosen: list[Int64s] = []
    left = np.arange(len(elements))
    room[:] = np.maximum(room, 0)
    for wanted in range(elements.shape[1] if len(elements) else 0, 0, -1):
        while len(left):
            gain = _gain(elements[left], covered)
            left, gain = left[gain > 0], gain[gain > 0]
            best = left[gain >= wanted]
            if not len(best):
                break
            picked = _apart(elements[best], covered, order[best])
            paid = affordable(ends[best[picked]], order[best[picked]], room)
            taken = best[picked[paid]]
            np.subtract.at(room, ends[taken].ravel(), 1)
            covered[elements[taken][elements[taken] >= 0]] = True
            chosen.append(taken)
            broke = (room[ends[left]] <= 0).any(axis=1)
            left = left[~(broke | np.isin(left, taken))]
    return np.sort(np.concatenate(chosen)) if chosen else np.empty(0, np.int64)


def affordable(ends: Int64s, order: UInt64s, room: Int64s) -> Int64s:
    """Which of some sessions, first ones first, both of their `ends` (n, 2) have room for; never too many."""
    first = np.argsort(order, kind="stable")
    host = ends[first].ravel()
    by_host = np.argsort(host, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(host[by_host]) != 0)) if len(host) else np.empty(0, np.int64)
    rank = np.empty(len(host), dtype=np.int64)
    rank[by_host] = np.arange(len(host)) - np.repeat(starts, np.diff(np.append(starts, len(host))))
    return first[(rank < room[host]).reshape(-1, 2).all(axis=1)]


def _gain(elements: Int64s, covered: Bools) -> Int64s:
    """How much that is not crossed yet each candidate crosses; what it names twice counts once."""
    fresh = (elements >= 0) & ~covered[elements]
    for k in range(1, elements.shape[1]):
        fresh[:, k] &= (elements[:, :k] != elements[:, k : k + 1]).all(axis=1)
    result: Int64s = fresh.sum(axis=1)
    return result


def _apart(elements: Int64s, covered: Bools, order: UInt64s) -> Int64s:
    """Which of these candidates come first at every element that they would newly cross."""
    rank = np.empty(len(order), dtype=np.int64)
    rank[np.argsort(order, kind="stable")] = np.arange(len(order))
    fresh = (elements >= 0) & ~covered[elements]
    best = np.full(len(covered), len(order), dtype=np.int64)
    np.minimum.at(best, elements[fresh], np.broadcast_to(rank[:, None], elements.shape)[fresh])
    result: Int64s = np.flatnonzero(np.where(fresh, best[elements] == rank[:, None], True).all(axis=1))
    return result
