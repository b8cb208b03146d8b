"""Scalars at and beyond the edges, and names of a small world; everything is drawn from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

NOW_NS: Final = 1_800_000_000_000_000_000
"""The background's time: instants are drawn around it."""

INTEGERS: Final = (
    0, 1, -1, 2, 63, 64, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**62,
    2**63 - 1, -(2**63), -(2**31), 10**15, 10**18,
)  # fmt: skip
HUGE: Final = (2**63, -(2**63) - 1, 2**64 - 1, 2**64, 10**30, 10**400, -(10**400))
"""Integers that fit no column; JSON may spell them."""
FLOATS: Final = (
    0.0, -0.0, 1.0, -1.0, 0.5, 5e-324, 2.2250738585072014e-308, 1e-9, 1e9, 1e16, 1.7e18, 1e38, 1e154, 1e155, 1e300,
    1.7976931348623157e308, -1.7976931348623157e308, 9.223372036854776e18, -9.3e18, 1e19,
)  # fmt: skip
NOT_FINITE: Final = (float("nan"), float("inf"), float("-inf"))
TEXTS: Final = (
    "", " ", "\x00", "\n", "\x1b[2J\x1b]0;owned\x07", "\u202e", "\ufeff", "é", "e\u0301", "🦆" * 3, "/", "#", "->",
    "--",
    ":", "a/b/c", "/r0", "evil-0/", "../../etc/passwd", "%s%n", "'; DROP TABLE probe; --", "${HOME}", "null", "NaN",
    "1e400", "9223372036854775808", "0.0.0.0", "::", "::ffff:10.0.0.1", "255.255.255.255", "10.0.0.300", "10.0.0.0/8",
    "evil-0/r0#", "evil-0/r0#99999999999999999999", "evil-0/r0:1", "x" * 300,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class World:
    """Names that messages speak of."""

    hosts: tuple[str, ...]
    jobs: tuple[str, ...] = ("evil-job", "evil-job-2")
    rails: int = 2

    @property
    def nics(self) -> tuple[str, ...]:
        """Every NIC of every host."""
        return tuple(f"{host}/r{rail}" for host in self.hosts for rail in range(self.rails))


STRANGERS: Final = World(tuple(f"evil-{i}" for i in range(6)))
"""Hosts of which the background knows nothing."""
EVERYBODY: Final = World(
    (*STRANGERS.hosts, *(f"h{i:02d}" for i in range(4))), ("evil-job", "train-7", "train-8")
)  # fmt: skip
"""Strangers, and the hosts of the background."""


@dataclass(slots=True)
class Draw:
    """Draws of one seed."""

    rng: random.Random
    world: World
    fresh: bool = True
    """Whether names that never came before may be drawn: they fill tables."""
    _pools: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        world, numbers = self.world, range(4)
        links = [f"{nic}->evil-l{i % 2}" for i, nic in enumerate(world.nics)]
        self._pools = {
            "host": world.hosts,
            "nic": world.nics,
            "address": (*(f"10.66.{i}.{j}" for i in numbers for j in range(4)), "fd00:66::1", "fd00:66::2"),
            "job": world.jobs,
            "qp": tuple(f"{nic}#{16 + n}" for nic in world.nics for n in range(2)),
            "port": tuple(f"{nic}:1" for nic in world.nics),
            "link": tuple(links) + tuple(f"evil-l{i}--evil-s{j}" for i in numbers for j in numbers),
            "id": tuple(f"evil-id-{i}" for i in range(12)),
            "transport": ("udp", "rocev2", "ib", "tcp", "host"),
            "plane": ("backend", "frontend"),
            "state": ("up", "down", "disabled", "absent", "unknown", "synced", "holdover", "unsynced", "faulty"),
            "kind": ("causal", "smoothed"),
            "dir": ("fwd", "rev"),
        }

    def chance(self, probability: float) -> bool:
        """Whether it happens."""
        return self.rng.random() < probability

    def text(self, pool: str = "") -> str:
        """A name, mostly of `pool`; else of another one, an odd text, or one that never came before."""
        dice = self.rng.random()
        if dice < 0.85 and pool:
            return self.rng.choice(self._pools[pool])
        if dice < 0.93:
            return self.rng.choice(self._pools[self.rng.choice(POOLS)])
        if dice < 0.97 or not self.fresh:
            return self.rng.choice(TEXTS)
        if dice < 0.9703:
            return "evil-" + "long" * self.rng.choice((16, 256, 4096))
        self._count += 1
        return f"evil-{self._count}/r{self._count % 3}"

    def integer(self, low: int | None = None, high: int | None = None) -> int:
        """Mostly within bounds and small, often at an edge, sometimes beyond."""
        rng, dice = self.rng, self.rng.random()
        if dice < 0.6:
            first = 0 if low is None else low
            return rng.randint(first, first + 20 if high is None else min(high, first + 20))
        if dice < 0.7 and high is not None:
            return rng.choice((high, high + 1, high - 1, (low or 0) - 1))
        if dice < 0.9:
            value = rng.choice(INTEGERS)
            return value if low is None or high is None else min(max(value, low), high)
        if dice < 0.97:
            return rng.randint(-(2**63), 2**63 - 1) if low is None else rng.randint(low, max(low, high or 2**63 - 1))
        return rng.choice(INTEGERS) if dice < 0.99 else rng.choice(HUGE)

    def instant(self) -> int:
        """Mostly near now, sometimes ages away."""
        dice = self.rng.random()
        if dice < 0.6:
            return NOW_NS + self.rng.randrange(-(10**10), 10**12)
        if dice < 0.8:
            return NOW_NS + self.rng.choice((-1, 1)) * 10 ** self.rng.randrange(9, 18)
        return self.rng.choice(INTEGERS) if dice < 0.97 else self.rng.choice(HUGE)

    def number(self, low: float | None = None, high: float | None = None) -> float | int:
        """A JSON number: finite, or an integer of any size."""
        dice = self.rng.random()
        if dice < 0.5:
            first = 0.0 if low is None else low
            return self.rng.uniform(first, first + 1000.0 if high is None else high)
        if dice < 0.9:
            return self.rng.choice(FLOATS)
        return self.rng.choice(INTEGERS) if dice < 0.97 else self.rng.choice(HUGE)

    def anything(self, depth: int = 3) -> Any:
        """Any JSON."""
        rng, dice = self.rng, self.rng.random()
        if depth and dice < 0.15:
            return [self.anything(depth - 1) for _ in range(rng.randrange(4))]
        if depth and dice < 0.3:
            return {self.key(): self.anything(depth - 1) for _ in range(rng.randrange(4))}
        if dice < 0.4:
            return rng.choice((None, True, False, [], {}, "", [[]], [None], {"": None}))
        if dice < 0.6:
            return self.text()
        return self.integer() if dice < 0.8 else self.number()

    def key(self) -> str:
        """A key of an open object: mostly one that somebody reads."""
        return self.rng.choice(KEYS) if self.rng.random() < 0.8 else self.text()


POOLS: Final = (
    "host", "nic", "address", "job", "qp", "port", "link", "id", "transport", "plane", "state", "kind", "dir",
)  # fmt: skip
KEYS: Final = (
    "path", "rate_bps", "alternates", "hold_down_ms", "id", "type", "host", "job", "mode", "until_at_ns", "measured",
    "what", "data", "subject", "nics", "hops", "value",
)  # fmt: skip


def pool_of(name: str, doc: str = "") -> str:
    """The pool that a text field's name and description speak of; empty: none."""
    if "NIC id" in doc or name in ("src", "dst", "nic", "observer", "nics"):
        return "nic"
    if name in ("host", "clock", "clock_src", "clock_dst", "node", "source") or doc.startswith("the agent's host"):
        return "host"
    if "address" in name or "address" in doc or name == "hops":
        return "address"
    if name in ("job", "jobs"):
        return "job"
    if name in ("qp", "port", "link", "transport", "plane", "state", "kind", "dir"):
        return name
    return "link" if name in ("links", "where", "suspects") else "id"
