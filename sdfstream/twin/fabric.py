"""Rail-optimised, leaf-spine and three-tier fabrics: switches, link directions, and the route of every flow.

A route is six link directions at most, as numbers: NIC to leaf, (leaf to aggregation switch,) up to the top, down, leaf
to NIC. Shorter routes are filled up with the number of links, a link that does nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from sdfstream.records.units import Int64s

Kind = Literal["rail", "leaf-spine", "three-tier"]
HOPS: Final = 6
FIXED_NS: Final = {"nic": 600.0, "fabric": 1_100.0}
"""Propagation and switching of a link to a NIC (3 m) and between switches (30 m)."""
_U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class FabricShape:
    """Shape of a fabric."""

    kind: Kind = "rail"
    hosts: int = 8
    rails: int = 1
    """NICs of a host; rail-optimised: NIC r of every host hangs on a leaf of rail r."""
    leaves: int = 4
    spines: int = 4
    """Three-tier: the core switches."""
    pods: int = 2
    """Three-tier only."""
    aggregation: int = 2
    """Three-tier only: aggregation switches of each pod."""
    gbps: float = 100.0
    """Of every link."""
    hash: Literal["five-tuple", "spray"] = "five-tuple"


def mixed(*values: npt.NDArray[Any] | int) -> _U64:
    """A hash of each row, evenly spread over 64 bits (SplitMix64's finaliser, Steele et al. 2014)."""
    total: _U64 = np.zeros(1, np.uint64)
    with np.errstate(over="ignore"):
        for value in values:
            total = total * np.uint64(0x9E3779B97F4A7C15) + np.asarray(value).astype(np.uint64) + np.uint64(0x51)
            total = (total ^ (total >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            total = (total ^ (total >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            total = total ^ (total >> np.uint64(31))
    return total


@dataclass
class TwinFabric:
    """Names and numbers of a fabric of `spec`; `seed` salts every switch's hash."""

    spec: FabricShape
    seed: int = 0
    swapped: tuple[tuple[int, int], ...] = ()
    """Pairs of NICs that are plugged into each other's leaf; what is declared does not know of it."""
    names: list[str] = field(default_factory=list)
    """Link directions, ``a->b``, by number."""

    def __post_init__(self) -> None:
        s = self.spec
        self.hosts = [f"h{h:03d}" for h in range(s.hosts)]
        self.nics = [f"{h}/r{r}" for h in self.hosts for r in range(s.rails)]
        self.host_of = np.repeat(np.arange(s.hosts), s.rails)
        self.rail_of = np.tile(np.arange(s.rails), s.hosts)
        groups = s.leaves // s.rails if s.kind == "rail" else s.leaves
        group = np.arange(s.hosts) * groups // s.hosts
        self.leaf_of = group[self.host_of] * s.rails + self.rail_of if s.kind == "rail" else group[self.host_of]
        self.planned_leaf_of = self.leaf_of.copy()
        for a, b in self.swapped:
            self.leaf_of[[a, b]] = self.leaf_of[[b, a]]
        self.leaves = [f"l{i}" for i in range(s.leaves)]
        self.pod_of = np.arange(s.leaves) * s.pods // s.leaves if s.kind == "three-tier" else np.zeros(s.leaves, int)
        self.middles = (
            [f"p{p}a{a}" for p in range(s.pods) for a in range(s.aggregation)] if s.kind == "three-tier" else []
        )
        self.tops = [f"{'c' if s.kind == 'three-tier' else 's'}{i}" for i in range(s.spines)]
        self.number: dict[str, int] = {}
        for nic, leaf in zip(self.nics, self.leaf_of.tolist(), strict=True):
            self._cable(nic, self.leaves[leaf])
        self._switch_cables()
        self.fixed_ns = np.array([FIXED_NS["nic" if "/" in n else "fabric"] for n in self.names] + [0.0])
        self.speed_bps = np.array([s.gbps * 1e9] * len(self.names) + [1e18])
        self.salts: dict[str, int] = {}
        """Switch to a salt of its own, once it hashes anew."""
        self.polarised: dict[str, float] = {}
        """Switch to the share of flows that its hash gives one and the same value."""

    @property
    def links(self) -> int:
        """Number of link directions, and the number of the one that does nothing."""
        return len(self.names)

    def _cable(self, a: str, b: str) -> None:
        for name in (f"{a}->{b}", f"{b}->{a}"):
            self.number[name] = len(self.names)
            self.names.append(name)

    def _switch_cables(self) -> None:
        s = self.spec
        if s.kind != "three-tier":
            for leaf in self.leaves:
                for top in self.tops:
                    self._cable(leaf, top)
            return
        for leaf, pod in zip(self.leaves, self.pod_of.tolist(), strict=True):
            for a in range(s.aggregation):
                self._cable(leaf, f"p{pod}a{a}")
        for pod in range(s.pods):
            for core in range(s.spines):
                self._cable(f"p{pod}a{core % s.aggregation}", self.tops[core])

    def of_switch(self, switch: str) -> list[int]:
        """Link directions from and to a switch, a NIC, or all NICs of a host."""
        ends = {switch} if "/" in switch else {switch, *(n for n in self.nics if n.split("/")[0] == switch)}
        return [k for k, name in enumerate(self.names) if ends & set(name.split("->"))]

    def directions(self, target: str, direction: str = "both") -> list[int]:
        """Directions of a link ``a--b`` (``fwd``: a to b), a direction ``a->b``, or a NIC's cable (``fwd``: out)."""
        if "->" in target:
            return [self.number[target]]
        if "--" in target:
            a, b = target.split("--")
        else:
            a, b = target, self.leaves[int(self.leaf_of[self.nics.index(target)])]
        both = [self.number[f"{a}->{b}"], self.number[f"{b}->{a}"]]
        return {"both": both, "fwd": both[:1], "rev": both[1:]}[direction]

    # -- routes -----------------------------------------------------------------------------------------------------

    def routes(
        self, src: Int64s, dst: Int64s, flow: _U64, dead: Collection[int] = (), spray: int | None = None
    ) -> Int64s:
        """(n, 6) link directions of flows from NIC `src` to NIC `dst` with hash `flow`.

        `dead` directions are chosen by no switch. With `spray` every flow takes that choice instead of its hash's.
        """
        n, s = len(src), self.spec
        out = np.full((n, HOPS), self.links, np.int64)
        a, b = self.leaf_of[src], self.leaf_of[dst]
        out[:, 0], out[:, 5] = 2 * src, 2 * dst + 1
        far = a != b
        if not far.any():
            return out
        flow = np.broadcast_to(flow, (n,))
        if s.kind != "three-tier":
            self._over_tops(out, np.flatnonzero(far), a, b, flow, dead, spray)
        else:
            self._over_pods(out, np.flatnonzero(far), a, b, flow, dead, spray)
        return out

    def _ups(self, node: str, others: Sequence[str]) -> Int64s:
        return np.array([[self.number[f"{node}->{o}"], self.number[f"{o}->{node}"]] for o in others], np.int64)

    def _over_tops(
        self, out: Int64s, far: Int64s, a: Int64s, b: Int64s, flow: _U64, dead: Collection[int], spray: int | None
    ) -> None:
        table = np.array([self._ups(leaf, self.tops) for leaf in self.leaves])
        usable = ~np.isin(table, list(dead))
        ok = usable[a[far], :, 0] & usable[b[far], :, 1]
        top = self._choice(ok, flow[far], a[far], self.leaves, spray)
        out[far, 1], out[far, 4] = table[a[far], top, 0], table[b[far], top, 1]

    def _over_pods(
        self, out: Int64s, far: Int64s, a: Int64s, b: Int64s, flow: _U64, dead: Collection[int], spray: int | None
    ) -> None:
        s, gone = self.spec, list(dead)
        low = np.array(
            [
                self._ups(leaf, [f"p{p}a{i}" for i in range(s.aggregation)])
                for leaf, p in zip(self.leaves, self.pod_of.tolist(), strict=True)
            ]
        )
        good = ~np.isin(low, gone)
        a, b, flow = a[far], b[far], flow[far]
        middle = self._choice(good[a, :, 0] & good[b, :, 1], flow, a, self.leaves, spray)
        out[far, 1], out[far, 4] = low[a, middle, 0], low[b, middle, 1]
        across = self.pod_of[a] != self.pod_of[b]
        for m in range(s.aggregation):
            cores = [c for c in range(s.spines) if c % s.aggregation == m]
            rows = np.flatnonzero(across & (middle == m))
            if not rows.size:
                continue
            high = np.array([self._ups(f"p{p}a{m}", [self.tops[c] for c in cores]) for p in range(s.pods)])
            fine, pa, pb = ~np.isin(high, gone), self.pod_of[a[rows]], self.pod_of[b[rows]]
            names = [f"p{p}a{m}" for p in range(s.pods)]
            core = self._choice(fine[pa, :, 0] & fine[pb, :, 1], flow[rows], pa, names, spray)
            out[far[rows], 2], out[far[rows], 3] = high[pa, core, 0], high[pb, core, 1]

    def _choice(
        self, usable: npt.NDArray[np.bool_], flow: _U64, at: Int64s, switches: Sequence[str], spray: int | None
    ) -> Int64s:
        """Each flow's member by highest random weight (Thaler 1998): a dead one moves no other's flows."""
        members = usable.shape[1]
        if spray is not None:
            turn = (np.arange(members)[None, :] - spray) % members
            return np.asarray(np.where(usable, turn, members + 1).argmin(axis=1), np.int64)
        share = np.array([self.polarised.get(name, 0.0) for name in switches])
        if share.any():
            flow = np.where((flow >> np.uint64(11)) / 2.0**53 < share[at], np.uint64(0), flow)
        salt = np.array([mixed(self.seed, i, self.salts.get(name, 0))[0] for i, name in enumerate(switches)], np.uint64)
        weight = mixed(flow[:, None], salt[at][:, None], np.arange(members)[None, :]).astype(np.float64)
        return np.asarray(np.where(usable, weight, -1.0).argmax(axis=1), np.int64)

    def favourite(self, switch: str) -> int:
        """The way up that a switch chooses for flows of one value, once its hash is polarised.

        Raises
        ------
        KeyError
            It is no switch with ways up.
        """
        if switch in self.leaves:
            at, switches, ups = self.leaves.index(switch), self.leaves, self.middles or self.tops
            if self.middles:
                first = int(self.pod_of[at]) * self.spec.aggregation
                ups = ups[first : first + self.spec.aggregation]
        elif switch in self.middles:
            pod, m = divmod(self.middles.index(switch), self.spec.aggregation)
            at, switches = pod, self.middles[m :: self.spec.aggregation]
            ups = self.tops[m :: self.spec.aggregation]
        else:
            raise KeyError(switch)
        all_usable = np.ones((1, len(ups)), np.bool_)
        chosen = self._choice(all_usable, np.zeros(1, np.uint64), np.array([at]), switches, None)
        return self.number[f"{switch}->{ups[int(chosen[0])]}"]

    # -- what is declared and traced -----------------------------------------------------------------------------------

    def address(self, link: int) -> str:
        """Address of the interface that a direction's packets come in by."""
        a, b = self.names[link].split("->")
        cable, side = link // 2, int(a > b)
        first, second = (10, 64) if "/" in a or "/" in b else (172, 16)
        return f"{first}.{second + cable // 32768}.{cable // 128 % 256}.{2 * (cable % 128) + side}"

    def declared(self) -> dict[str, Any]:
        """Data of the declared topology: the cables as planned."""
        links = []
        for number in range(0, self.links, 2):
            a, b = self.names[number].split("->")
            if number < 2 * len(self.nics):
                b = self.leaves[int(self.planned_leaf_of[number // 2])]
            links.append(
                {
                    "id": "--".join(sorted((a, b))),
                    "a": {"node": a, "port": f"to-{b}", "address": self.address(number + 1)},
                    "b": {"node": b, "port": f"to-{a}", "address": self.address(number)},
                    "speed_mbps": int(self.spec.gbps * 1000),
                }
            )
        nics = [
            {
                "id": nic, "host": self.hosts[int(self.host_of[i])], "address": self.address(2 * i + 1),
                "link": links[i]["id"], "rail": int(self.rail_of[i]), "plane": "backend",
            }
            for i, nic in enumerate(self.nics)
        ]  # fmt: skip
        return {"nodes": [], "links": links, "nics": nics}
