"""The port that holds up NICs where no cabling is known: a link between the core and the leaf that some NICs share.

A port that fills on its way *into* a leaf pauses the uplinks of the others, and these the NICs below them; its own
leaf's NICs send elsewhere and are not paused. Paths from leaves of which no NIC is paused show it as it is: they wait
long on their way into that leaf only. Of what a paused NIC sends all waits, what crosses the paused uplink for longer,
and of that what leads into the full port's leaf for longest. A port that fills on its way *out* of a leaf pauses that
leaf's NICs alone, and no path from elsewhere waits.

Which of the leaf's links it is the paths tell that are listed: only those that surely wait there. Into a leaf these are
those from leaves that nobody pauses where there are such, else the longest of each sender. Out of a leaf the wait in
the NICs may hide how much longer they wait; there it takes that some are marked, however late the port does it: neither
a NIC marks nor a port that is paused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.inferred.hidden import CORE, leaf_name
from sdfstream.detect.localise import Location
from sdfstream.detect.root.spread import UNMARKED
from sdfstream.records.fabric import link_id
from sdfstream.records.finding import Subject
from sdfstream.records.units import Bools, Float64s, Int64s

_LEAST: Final = 2
"""Paths that tell of a queue, of which one alone tells nothing."""
_LONG_NS: Final = 300e3
"""A queue that pauses others is longer than any that is marked as it should be."""
_NEARLY: Final = 0.5
"""Paths of one queue wait at least this share of the longest of them; what a pause alone adds is less."""
_ALL: Final = 0.9
"""So many of these paths go into one leaf, so that they say which."""
_GAP: Final = 0.1
"""Waits of one sender fall into two parts by a gap of at least this share of the longest,"""
_AS_WIDE: Final = 1.5
"""and so many times as wide as the next."""
_MARKED: Final = 4
"""Marked paths that tell of a port which marks late: one or two may be marked elsewhere."""
_SURE: Final = 2.5
"""Standard deviations by which waits into a leaf, or of what is marked, rank above those beside them."""
_PROBABILITY: Final = 0.9


@dataclass(frozen=True, slots=True)
class _Paths:
    """Slow directed paths between different leaves; every array is (n,)."""

    number: Int64s
    """2·session + (0 fwd, 1 rev)."""
    sender: Int64s
    """NIC."""
    start: Int64s
    """Leaf that it leaves,"""
    end: Int64s
    """and that it goes into."""
    wait_ns: Float64s
    marked: Float64s
    """Share of arrivals; 0 where it is not known."""

    def only(self, rows: Bools) -> _Paths:
        """Some of them."""
        number, sender, start, end = (x[rows] for x in (self.number, self.sender, self.start, self.end))
        return _Paths(number, sender, start, end, self.wait_ns[rows], self.marked[rows])


def hidden_full_port(
    cabling: Cabling, paused: Sequence[str], slow: Int64s, wait_ns: Float64s, marked: Float64s
) -> Location | None:
    """The inferred link that holds up these NICs; None where cabling is known, or where the evidence does not say.

    Parameters
    ----------
    paused : sequence of str
        NICs whose counters say that their switch pauses them.
    slow : (n,) int
        Directed paths that stand in a queue: 2·session + (0 fwd, 1 rev).
    wait_ns : (n,) float
        What each waits above normal, mean since its queue stands.
    marked : (n,) float
        Share of arrivals marked; NaN: not known.
    """
    group = cabling.groups()
    held = cabling.sessions.nics.find_all(list(paused))
    held = held[held >= 0]
    leaves = np.unique(group[held][group[held] >= 0])
    paths = _between_leaves(cabling, group, slow, wait_ns, marked)
    if not leaves.size or not paths.number.size:
        return None
    free = _of_free_leaves(paths, leaves)
    if free.number.size >= _LEAST:
        ends, times = np.unique(free.end, return_counts=True)
        leaf = int(ends[times.argmax()])
        sure = times.max() >= _ALL * free.number.size and leaf not in leaves
        return _link(cabling, group, leaf, "in", free.only(free.end == leaf)) if sure else None
    if leaves.size == 1:
        return _link(cabling, group, int(leaves[0]), "out", _marked(paths.only(paths.start == leaves[0])))
    others = np.setdiff1d(np.unique(group[group >= 0]), leaves)
    if not others.size:
        return None
    over = _beyond_the_nic(paths, held)
    rank, leaf = max((_rank(over, over.end == leaf), leaf) for leaf in others.tolist())
    least = _SURE if others.size > 1 else -_SURE
    return _link(cabling, group, leaf, "in", over.only(over.end == leaf)) if rank >= least else None


def _between_leaves(cabling: Cabling, group: Int64s, slow: Int64s, wait_ns: Float64s, marked: Float64s) -> _Paths:
    """What leads from one leaf to another."""
    table, back = cabling.sessions.table, slow % 2 == 1
    src, dst = (table[end][slow // 2] for end in ("src", "dst"))
    sender, receiver = np.where(back, dst, src), np.where(back, src, dst)
    paths = _Paths(slow, sender, group[sender], group[receiver], wait_ns, np.nan_to_num(marked))
    traced = (cabling.element[slow // 2, slow % 2] >= 0).sum(axis=1) > 2
    return paths.only((paths.start >= 0) & (paths.end >= 0) & (paths.start != paths.end) & ~traced)


def _of_free_leaves(paths: _Paths, leaves: Int64s) -> _Paths:
    """What waits as long as before a full port, of what leaves of which no NIC is paused send."""
    free = paths.only(~np.isin(paths.start, leaves) & (paths.wait_ns >= _LONG_NS))
    return free.only(free.wait_ns >= _NEARLY * free.wait_ns.max(initial=0.0))


def _beyond_the_nic(paths: _Paths, held: Int64s) -> _Paths:
    """What waits somewhere else than where its sender does: of a paused NIC, the longer part where there are two."""
    over = np.ones(paths.number.size, np.bool_)
    for nic in np.unique(paths.sender[np.isin(paths.sender, held)]).tolist():
        mine = paths.sender == nic
        over[mine] = _longer(paths.wait_ns[mine])
    return paths.only(over)


def _longer(wait_ns: Float64s) -> Bools:
    """Which of these waits are above the one wide gap among them; none, where there is no such gap.

    >>> _longer(np.array([7.1, 7.6, 14.2, 6.9, 15.3])).tolist()
    [False, False, True, False, True]
    >>> _longer(np.array([7.1, 7.6, 8.2, 6.9])).any()
    np.False_
    """
    rising = np.sort(wait_ns)
    gaps = np.diff(rising)
    widest = np.sort(gaps)[::-1][:2]
    if widest.size < 2 or widest[0] < max(_GAP * rising[-1], _AS_WIDE * widest[1]):
        return np.zeros(wait_ns.size, np.bool_)
    result: Bools = wait_ns > rising[gaps.argmax()]
    return result


def _rank(paths: _Paths, which: Bools) -> float:
    """Standard deviations by which these rank above the same sender's others by wait (Mann and Whitney 1947)."""
    above = variance = 0.0
    for nic in np.unique(paths.sender).tolist():
        mine = paths.sender == nic
        these, beside = paths.wait_ns[mine & which], paths.wait_ns[mine & ~which]
        pairs = these.size * beside.size
        above += float((these[:, np.newaxis] > beside).sum()) - pairs / 2
        variance += pairs * (these.size + beside.size + 1) / 12
    return above / float(np.sqrt(variance)) if variance else 0.0


def _marked(paths: _Paths) -> _Paths:
    """What is marked and waits longer than most that its sender sends; nothing, where these do not wait longer."""
    marked = paths.marked > 0
    if int(marked.sum()) < _MARKED or _rank(paths, marked) < _SURE:
        return paths.only(np.zeros(marked.size, np.bool_))
    usual_ns = np.zeros(marked.size)
    for nic in np.unique(paths.sender).tolist():
        mine = paths.sender == nic
        usual_ns[mine] = np.median(paths.wait_ns[mine])
    return paths.only(marked & (paths.wait_ns > usual_ns))


def _link(cabling: Cabling, group: Int64s, leaf: int, direction: str, sure: _Paths) -> Location | None:
    """The link between a leaf and the core, with paths that surely wait there; None where these are few or marked."""
    if sure.number.size < _LEAST or float(sure.marked.mean()) >= UNMARKED:
        return None
    names = sorted(cabling.sessions.nics.list[nic] for nic in np.flatnonzero(group == leaf).tolist())
    near = leaf_name(names[0])
    name = f"{CORE}->{near}" if direction == "in" else f"{near}->{CORE}"
    return Location(
        Subject("link", link_id(near, CORE)), [name], True, 1.0, sure.number // 2, [(name, _PROBABILITY)],
        _PROBABILITY, ["rev" if number % 2 else "fwd" for number in sure.number.tolist()], beside=tuple(names),
    )  # fmt: skip
