"""Which parts of the fabric a path crosses: declared cabling, traced hops, or honest ignorance.

A **part** is something that can be blamed: a NIC's sending side (``tx h00/r0``) or receiving side (``rx h00/r0``), each
with the cable to its leaf; one direction of a fabric link (``l0->s1``, or ``->172.16.0.3`` when only the address of
its far end is known); a switch (``node s1``). What is known of a path decides how sharp its row is:

- traced: the hops, each crossed with certainty (a router answers with the address of the interface the packet came in
  by, so a hop's address names the link direction just crossed); what lies in a gap follows from the declared graph;
- traced, but a router on it has moved flows since (`ways`): half as traced, half any way that the graph allows;
- declared only: every shortest way through the declared graph, each link with the share of ways (equal split at every
  node, as ECMP does over many flows) that use it;
- neither: the two NICs' ends alone.

Evidence of an earlier instant is judged over the way that held then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.link_ends import LinkEnds
from sdfstream.detect.sessions import Names, Sessions
from sdfstream.detect.ways import Hops, Way
from sdfstream.records.fabric import link_id
from sdfstream.records.finding import Subject
from sdfstream.records.topology import Topology
from sdfstream.records.units import NS_PER_S

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

FWD, REV = 0, 1
_MAX_PARTS = 1 << 20
_REFRESH = 64
_LIKELIER = float(np.log(3.0))
_SWITCH, _CABLE = float(np.log(1e-5)), float(np.log(1e-4))
_MOVES_NS = 600 * NS_PER_S
_DOUBT = 0.5
"""Share of flows that a router sends elsewhere when it loses or regains one of a few equal ways (measured: 0.51)."""


class Cabling:
    """Parts crossed by each session and direction, kept as padded arrays.

    `part` and `weight` have the shape (sessions, 2, width): part numbers (−1: no entry) and the probability that the
    path crosses them.
    """

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.parts = Names(_MAX_PARTS)
        self.topology = Topology()
        self.ends = LinkEnds()
        self.declared = 0
        """Declarations taken so far."""
        self.part = np.full((0, 2, 4), -1, np.int64)
        self.weight = np.zeros((0, 2, 4))
        self.past_ns = np.zeros((0, 2), np.int64)
        """(sessions, 2) evidence from before this bus time is judged over an earlier way; 0: all over the present."""
        self._ways: dict[tuple[int, int], Way] = {}
        self._stale: dict[int, None] = {}
        self.moves: dict[str, int] = {}
        """Routers that moved flows lately, with the bus time."""
        self.moved = 0
        """How often any did."""
        self._unsettled = 0

    def note_new(self, slots: list[int]) -> None:
        """These sessions are new or took over a freed number."""
        have, want = self.part.shape[0], self.sessions.count
        if want > have:
            extra = max(want, 2 * have) - have
            self.part = np.concatenate([self.part, np.full((extra, *self.part.shape[1:]), -1, np.int64)])
            self.weight = np.concatenate([self.weight, np.zeros((extra, *self.weight.shape[1:]))])
            self.past_ns = np.concatenate([self.past_ns, np.zeros((extra, 2), np.int64)])
        self._stale.update(dict.fromkeys(slots))

    def declare(self, topology: Topology) -> None:
        """Take the declared cabling (``sdf.state.topology.declared.v1``); all paths are looked at anew."""
        self.topology = topology
        self.ends = LinkEnds()
        self.declared += 1
        self._stale = dict.fromkeys(np.flatnonzero(self.sessions.table["src"] >= 0).tolist())

    # -- what traces tell ---------------------------------------------------------------------------------------

    def trace(self, slot: int, direction: int, hops: Hops, at_ns: int) -> bool:
        """Take the traced hops of a path, bus time `at_ns`; True when the path has moved.

        A router that did not answer is a gap. A trace with gaps replaces a complete one only when it contradicts it.
        """
        self.note_hops(hops)
        known = self._ways.get((slot, direction))
        self._stale[slot] = None
        if known is None:
            self._ways[slot, direction] = Way(hops, at_ns)
            return False
        since_ns = known.doubt_ns or at_ns
        first = known.take(hops, at_ns)
        self.heed(known, first, since_ns)
        return first is not None

    def note_hops(self, hops: Hops) -> None:
        """Take hop addresses of any trace: without a declaration they tell which two are ends of one link."""
        if not self.topology.leaf_of:
            self.ends.note(hops)

    def heed(self, way: Way, first: int | None, since_ns: int) -> None:
        """A way has moved from its hop `first` on (None: it has not): the router before it sends flows elsewhere."""
        if first:
            chose = [h[first - 1] for h in (way.hops, way.former or []) if first <= len(h) and h[first - 1] is not None]
            if chose:
                self.note_moves(self.topology.router(str(chose[0])), since_ns)

    def note_moves(self, router: str, at_ns: int) -> None:
        """A router (node, or address where nothing is declared) sends flows elsewhere since `at_ns`."""
        if at_ns <= self.moves.get(router, 0):
            return
        self.moves = {r: t for r, t in self.moves.items() if at_ns - t < _MOVES_NS}
        self.moves[router] = at_ns
        self.moved += 1

    def moved_off(self, parts: list[int], works: tuple[Bools, Bools]) -> list[str]:
        """Routers that lead to these parts, and by traces still sent paths over them that work; forward, reverse."""
        n = self.sessions.count
        hit = (np.isin(self.part[:n], parts) & (self.weight[:n] > 0.99)).any(axis=2)
        routers: dict[str, None] = {}
        for slot, direction in np.argwhere(hit & np.stack(works, axis=1)).tolist():
            way = self._ways.get((slot, direction))
            if way is None or way.doubt_ns:
                continue
            names = [None if hop is None else self.topology.direction(hop) for hop in way.hops]
            routers |= {
                self.topology.router(before): None
                for before, name in zip(way.hops[:-1], names[1:], strict=True)
                if before is not None and name is not None and self.parts.find(name) in parts
            }
        return list(routers)

    def _unsettle(self) -> None:
        """Put in doubt every way through the routers that moved flows."""
        self._unsettled = self.moved
        for (slot, _), way in self._ways.items():
            if way.unsettled_by(self.moves, self.topology.router):
                self._stale[slot] = None

    def forget(self, slots: Ints) -> None:
        """Drop what is known of these sessions."""
        slots = slots[slots < self.part.shape[0]]
        self.part[slots] = -1
        self.past_ns[slots] = 0
        for slot in slots.tolist():
            self._stale.pop(slot, None)
            for direction in (FWD, REV):
                self._ways.pop((slot, direction), None)

    def refresh(self, most: int | None = _REFRESH) -> None:
        """Work out the rows of up to `most` sessions (None: all) whose knowledge changed."""
        if self._unsettled != self.moved:
            self._unsettle()
        src = self.sessions.table["src"]
        for slot in list(self._stale)[:most]:
            del self._stale[slot]
            if slot < src.size and src[slot] >= 0:
                for direction in (FWD, REV):
                    self._write(slot, direction, self._crossed(slot, direction))

    def _write(self, slot: int, direction: int, crossed: dict[int, float]) -> None:
        width = self.part.shape[2]
        if len(crossed) > width:
            pad = max(len(crossed), 2 * width) - width
            self.part = np.pad(self.part, ((0, 0), (0, 0), (0, pad)), constant_values=-1)
            self.weight = np.pad(self.weight, ((0, 0), (0, 0), (0, pad)))
        self.part[slot, direction] = -1
        self.part[slot, direction, : len(crossed)] = list(crossed)
        self.weight[slot, direction, : len(crossed)] = list(crossed.values())
        way = self._ways.get((slot, direction))
        self.past_ns[slot, direction] = 0 if way is None else max(way.changed_ns, way.doubt_ns)

    def _ends(self, slot: int, direction: int) -> tuple[str, str]:
        table, nics = self.sessions.table, self.sessions.nics.list
        src, dst = nics[table["src"][slot]], nics[table["dst"][slot]]
        return (src, dst) if direction == FWD else (dst, src)

    def _crossed(self, slot: int, direction: int) -> dict[int, float]:
        return self.way(*self._ends(slot, direction), self._ways.get((slot, direction)))[0]

    def way(self, sender: str, receiver: str, way: Way | None) -> tuple[dict[int, float], bool]:
        """Parts from one NIC to another with the probability of each, and whether no others can be on the way."""
        topology = self.topology
        names = {f"tx {sender}": 1.0, f"rx {receiver}": 1.0}
        closed = bool(topology.leaf_of)
        if way is None:
            names.update(topology.equal_cost(sender, receiver))
        else:
            names.update(topology.traced(sender, receiver, tuple(way.hops)))
            closed |= None not in way.hops and not way.doubt_ns
            if way.doubt_ns:
                open_hops = (*way.hops[: way.doubt_at + 1], *[None] * (len(way.hops) - way.doubt_at - 1))
                elsewhere = topology.traced(sender, receiver, open_hops)
                names = _mixed([names, {**elsewhere, f"tx {sender}": 1.0, f"rx {receiver}": 1.0}], _DOUBT)
            elif way.sprayed():
                ways = [topology.traced(sender, receiver, tuple(hops)) for hops in way.others]
                ways = [names, *({**w, f"tx {sender}": 1.0, f"rx {receiver}": 1.0} for w in ways)]
                names = _mixed(ways, 1 - 1 / len(ways))
                closed = False
        return {self.parts.add(name): weight for name, weight in names.items()}, closed

    # -- names --------------------------------------------------------------------------------------------------

    def nic_part(self, nic: str, side: str) -> int:
        """Part number of a NIC's ``tx`` or ``rx`` side; −1 when no path crosses it yet."""
        return self.parts.find(f"{side} {nic}")

    def subject(self, part: int) -> Subject:
        """What a finding calls this part."""
        kind, _, name = self.parts.list[part].rpartition(" ")
        if kind in ("tx", "rx"):
            return Subject("nic", name)
        if kind == "node":
            return Subject("switch", name)
        a, _, b = self._directed(name).partition("->")
        return Subject("link", link_id(a, b) if a else name)

    def direction(self, part: int) -> str:
        """The direction of the part as ``a->b``; for a NIC with unknown cable ``h00/r0 tx``; for a switch its name."""
        kind, _, name = self.parts.list[part].rpartition(" ")
        if kind not in ("tx", "rx"):
            return self._directed(name)
        return self.side(name, kind)

    def _directed(self, name: str) -> str:
        """``->y`` with the address of the near end, where that is known."""
        return f"{self.ends.opposite(name[2:]) or ''}{name}" if name.startswith("->") else name

    def side(self, nic: str, side: str) -> str:
        """The direction that a NIC's ``tx`` or ``rx`` side stands for."""
        leaf = self.topology.leaf_of.get(nic)
        if leaf is None:
            return f"{nic} {side}"
        return f"{nic}->{leaf}" if side == "tx" else f"{leaf}->{nic}"

    def numbers(self, directions: Iterable[str]) -> list[int]:
        """Part numbers of these directions, as `direction` names them."""
        found = []
        for name in directions:
            a, arrow, b = name.partition("->")
            if not arrow:
                nic, _, side = name.partition(" ")
                found.append(self.parts.find(f"{side} {nic}" if side else f"node {name}"))
            elif "/" in a or "/" in b:
                found.append(self.nic_part(a, "tx") if "/" in a else self.nic_part(b, "rx"))
            else:
                found += [self.parts.find(name), self.parts.find(f"->{b}")]
        return [number for number in found if number >= 0]

    # -- for the search -----------------------------------------------------------------------------------------

    def log_prior(self, kind: str = "") -> Floats:
        """(parts,) log odds of being faulty before anything is seen: a switch less often than a cable or NIC.

        For ``silence`` a dead way down to a leaf is likelier than a dead way up: the leaf itself takes a dead uplink
        out of its ECMP group, so only a fault that keeps the carrier stays silent there; the spine has no other way.
        For a ``queue`` it is the other way round: of links of one speed in a row that carry the same packets only
        the first can queue.
        """
        return np.array([self._odds(name, kind) for name in self.parts.list], np.float64)

    def _odds(self, name: str, kind: str) -> float:
        if name.startswith("node "):
            return _SWITCH
        a, arrow, b = name.partition("->")
        if arrow and a and (b in self.topology.leaves) == (kind == "silence") and kind:
            return _CABLE + _LIKELIER
        return _CABLE

    def entries(self, slots: Ints, fwd: Bools, rev: Bools, then_ns: Ints | None = None) -> tuple[Ints, Ints, Floats]:
        """(row, part, weight) of observations that cross the forward and/or reverse direction of these sessions.

        A part that both directions cross occurs once, with the probability that either does. `then_ns` is the bus
        time of each observation (None: now), which may lie before the present way.
        """
        part, weight = self.part[slots], self.weight[slots]
        use = (part >= 0) & np.stack([fwd, rev], axis=1)[:, :, None]
        if then_ns is not None:
            past = (then_ns[:, None] < self.past_ns[slots]) & np.stack([fwd, rev], axis=1)
            if past.any():
                part, weight = self._as_it_was(slots, past, then_ns, part, weight)
                use = (part >= 0) & np.stack([fwd, rev], axis=1)[:, :, None]
        row, way, at = np.nonzero(use)
        del at
        flat_part, flat_weight = part[use], weight[use]
        if not (fwd & rev).any():
            return row.astype(np.int64), flat_part, flat_weight
        key = row * np.int64(max(1, len(self.parts))) + flat_part
        order = np.lexsort((way, key))
        first = np.flatnonzero(np.r_[True, np.diff(key[order]) != 0]) if order.size else np.empty(0, np.int64)
        missed = np.multiply.reduceat(1.0 - flat_weight[order], first) if order.size else np.empty(0)
        return row[order][first].astype(np.int64), flat_part[order][first], 1.0 - missed

    def _as_it_was(self, slots: Ints, past: Bools, then_ns: Ints, part: Ints, weight: Floats) -> tuple[Ints, Floats]:
        """Rows of parts and weights with the ways that held when those in `past` were observed."""
        written = []
        for row, direction in np.argwhere(past).tolist():
            slot = int(slots[row])
            way = self._ways[slot, direction]
            earlier = Way(way.before(int(then_ns[row])), 0)
            crossed, _ = self.way(*self._ends(slot, direction), earlier)
            written.append((row, direction, crossed))
        width = max((len(crossed) for *_, crossed in written), default=0)
        pad = max(0, width - part.shape[2])
        part = np.pad(part, ((0, 0), (0, 0), (0, pad)), constant_values=-1)
        weight = np.pad(weight, ((0, 0), (0, 0), (0, pad)))
        for row, direction, crossed in written:
            part[row, direction] = -1
            part[row, direction, : len(crossed)] = list(crossed)
            weight[row, direction, : len(crossed)] = list(crossed.values())
        return part, weight

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "parts": self.parts.list,
            "declared": self.topology.declared,
            "declarations": self.declared,
            "met": list(self.ends.addresses),
            "part": self.part,
            "weight": self.weight,
            "past": self.past_ns,
            "ways": [[s, d, way.snapshot()] for (s, d), way in self._ways.items()],
            "stale": list(self._stale),
            "moves": [[router, at] for router, at in self.moves.items()],
            "moved": [self.moved, self._unsettled],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.parts.restore(state["parts"])
        self.topology = Topology(state["declared"])
        self.ends = LinkEnds(state["met"])
        self.declared = int(state["declarations"])
        self.part, self.weight = np.asarray(state["part"]), np.asarray(state["weight"])
        self.past_ns = np.asarray(state["past"], np.int64)
        self._ways = {(s, d): Way(**way) for s, d, way in state["ways"]}
        self._stale = dict.fromkeys(state["stale"])
        self.moves = {str(router): int(at) for router, at in state["moves"]}
        self.moved, self._unsettled = state["moved"]


def _mixed(ways: list[dict[str, float]], others: float) -> dict[str, float]:
    """Parts of the first way and, with the probability `others` in all, of the rest."""
    share = [1.0 - others, *[others / max(1, len(ways) - 1)] * (len(ways) - 1)]
    names: dict[str, float] = {}
    for way, part_of in zip(ways, share, strict=True):
        for name, weight in way.items():
            names[name] = names.get(name, 0.0) + part_of * weight
    return {name: min(1.0, round(weight, 12)) for name, weight in names.items()}
