"""Which parts of the fabric a path crosses: declared cabling, traced hops, or honest ignorance.

A **part** is something that can be blamed: a NIC's sending side (``tx h00/r0``) or receiving side (``rx h00/r0``), each
with the cable to its leaf; one direction of a fabric link (``l0->s1``, or ``->172.16.0.3`` when only the address of
its far end is known); a switch (``node s1``). What is known of a path decides how sharp its row is:

- traced: the hops, each crossed with certainty (a router answers with the address of the interface the packet came in
  by, so a hop's address names the link direction just crossed); what lies in a gap follows from the declared graph;
- declared only: every shortest way through the declared graph, each link with the share of ways (equal split at every
  node, as ECMP does over many flows) that use it;
- neither: the two NICs' ends alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.sessions import Names, Sessions
from sdfstream.detect.wiring import Wiring
from sdfstream.records.fabric import link_id
from sdfstream.records.finding import Subject

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FWD, REV = 0, 1
_MAX_PARTS = 1 << 20
_REFRESH = 64
_LIKELIER = float(np.log(3.0))
_SWITCH, _CABLE = float(np.log(1e-5)), float(np.log(1e-4))


class Cabling:
    """Parts crossed by each session and direction, kept as padded arrays.

    `part` and `weight` have the shape (sessions, 2, width): part numbers (−1: no entry) and the probability that the
    path crosses them.
    """

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.parts = Names(_MAX_PARTS)
        self.wiring = Wiring()
        self.part = np.full((0, 2, 4), -1, np.int64)
        self.weight = np.zeros((0, 2, 4))
        self._traced: dict[tuple[int, int], list[str | None]] = {}
        self._stale: dict[int, None] = {}

    def note_new(self, slots: list[int]) -> None:
        """These sessions are new or took over a freed number."""
        have, want = self.part.shape[0], self.sessions.count
        if want > have:
            extra = max(want, 2 * have) - have
            self.part = np.concatenate([self.part, np.full((extra, *self.part.shape[1:]), -1, np.int64)])
            self.weight = np.concatenate([self.weight, np.zeros((extra, *self.weight.shape[1:]))])
        self._stale.update(dict.fromkeys(slots))

    def declare(self, wiring: Wiring) -> None:
        """Take the declared cabling (``sdf.state.topology.declared.v1``); all paths are looked at anew."""
        self.wiring = wiring
        self._stale = dict.fromkeys(np.flatnonzero(self.sessions.table["src"] >= 0).tolist())

    def trace(self, slot: int, direction: int, hops: list[str | None], complete: bool) -> None:
        """Take the traced hops of a path; a router that did not answer is a gap.

        A trace with gaps replaces a complete one only when it contradicts it: the path has moved.
        """
        before = self._traced.get((slot, direction))
        if before is not None and not complete and len(before) == len(hops):
            if all(new is None or new == old for new, old in zip(hops, before, strict=True)):
                return
            if all(old is None or new is None or new == old for new, old in zip(hops, before, strict=True)):
                hops = [old if new is None else new for new, old in zip(hops, before, strict=True)]
        self._traced[slot, direction] = hops
        self._stale[slot] = None

    def forget(self, slots: Ints) -> None:
        """Drop what is known of these sessions."""
        slots = slots[slots < self.part.shape[0]]
        self.part[slots] = -1
        for slot in slots.tolist():
            self._stale.pop(slot, None)
            for direction in (FWD, REV):
                self._traced.pop((slot, direction), None)

    def refresh(self, most: int | None = _REFRESH) -> None:
        """Work out the rows of up to `most` sessions (None: all) whose knowledge changed."""
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

    def _ends(self, slot: int, direction: int) -> tuple[str, str]:
        table, nics = self.sessions.table, self.sessions.nics.list
        src, dst = nics[table["src"][slot]], nics[table["dst"][slot]]
        return (src, dst) if direction == FWD else (dst, src)

    def _crossed(self, slot: int, direction: int) -> dict[int, float]:
        sender, receiver = self._ends(slot, direction)
        names = {f"tx {sender}": 1.0, f"rx {receiver}": 1.0}
        hops = self._traced.get((slot, direction))
        if hops is not None:
            names.update(self.wiring.traced(sender, receiver, tuple(hops)))
        else:
            names.update(self.wiring.spread(sender, receiver))
        return {self.parts.add(name): weight for name, weight in names.items()}

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
        a, _, b = name.partition("->")
        return Subject("link", link_id(a, b) if a else name)

    def direction(self, part: int) -> str:
        """The direction of the part as ``a->b``; for a NIC with unknown cable ``h00/r0 tx``; for a switch its name."""
        kind, _, name = self.parts.list[part].rpartition(" ")
        if kind not in ("tx", "rx"):
            return name
        return self.side(name, kind)

    def side(self, nic: str, side: str) -> str:
        """The direction that a NIC's ``tx`` or ``rx`` side stands for."""
        leaf = self.wiring.leaf.get(nic)
        if leaf is None:
            return f"{nic} {side}"
        return f"{nic}->{leaf}" if side == "tx" else f"{leaf}->{nic}"

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
        if arrow and a and (b in self.wiring.leaves) == (kind == "silence") and kind:
            return _CABLE + _LIKELIER
        return _CABLE

    def entries(self, slots: Ints, fwd: npt.NDArray[np.bool_], rev: npt.NDArray[np.bool_]) -> tuple[Ints, Ints, Floats]:
        """(row, part, weight) of observations that cross the forward and/or reverse direction of these sessions.

        A part that both directions cross occurs once, with the probability that either does.
        """
        part, weight = self.part[slots], self.weight[slots]
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

    def freeze(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "parts": self.parts.list,
            "declared": self.wiring.declared,
            "part": self.part,
            "weight": self.weight,
            "traced": [[s, d, hops] for (s, d), hops in sorted(self._traced.items())],
            "stale": list(self._stale),
        }

    def thaw(self, state: dict[str, Any]) -> None:
        """Take up a state made by `freeze`."""
        self.parts.thaw(state["parts"])
        self.wiring = Wiring.of(state["declared"])
        self.part, self.weight = np.asarray(state["part"]), np.asarray(state["weight"])
        self._traced = {(s, d): hops for s, d, hops in state["traced"]}
        self._stale = dict.fromkeys(state["stale"])
