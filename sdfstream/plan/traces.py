"""Traced routes as columns: which session crosses which route, forward and reverse."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.plan.inventory import Columns, Inventory
from sdfstream.plan.units import Units
from sdfstream.records.units import Bools, Int64s

_ENOUGH: Final = 0.8
"""Share of the ports tried that must have been traced: now and then a trace fails, or a router does not answer."""


class Traces(NamedTuple):
    """Sessions of one class whose route was traced, (traces,) each."""

    src: Int64s
    dst: Int64s
    path: Int64s
    unit: Int64s
    forward: Int64s
    """Number of the route that its probes take; −1: not traced."""
    back: Int64s
    """Number of the route that the answers take."""
    upward: Bools
    """Its probes go from the unit's first attachment to its second."""
    unit_of_route: Int64s
    """(routes,)."""

    def known(self, units: Units) -> Bools:
        """(units,) both directions have nearly as many traces as ports are tried: what no port met, hardly one will."""
        there = self._samples(units, self.upward, ~self.upward)
        back = self._samples(units, ~self.upward, self.upward)
        result: Bools = np.minimum(there, back) >= np.maximum(1, np.floor(units.block * _ENOUGH))
        return result

    def _samples(self, units: Units, forward: Bools, back: Bools) -> Int64s:
        """(units,) traces of one direction."""
        n = len(units.a)
        found = np.bincount(self.unit[forward & (self.forward >= 0)], minlength=n)
        return found + np.bincount(self.unit[back & (self.back >= 0)], minlength=n)

    def find(self, src: Int64s, dst: Int64s, path: Int64s) -> Int64s:
        """Trace of each session; −1: none."""
        keys = key(self.src, self.dst, self.path)
        order = np.argsort(keys)
        wanted = key(src, dst, path)
        if not len(keys):
            return np.full(len(wanted), -1, dtype=np.int64)
        slot = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
        return np.where(keys[order][slot] == wanted, order[slot], -1)


def of(c: Columns, inventory: Inventory, units: Units, dscp: int) -> Traces:
    """The traces of class `dscp` between NICs of a unit, over source ports that may be planned."""
    routes: dict[tuple[int, int, tuple[str, ...]], int] = {}
    found: dict[tuple[int, int, int], list[int]] = {}
    attachment, number = units.attachment.tolist(), c.number
    for route in inventory.routes:
        near, far = number.get(route.src, -1), number.get(route.dst, -1)
        if route.dscp != dscp or near < 0 or far < 0 or not route.hops:
            continue
        nic = c.nics[near]
        if not nic.first_port <= route.path < nic.first_port + nic.ports:
            continue
        start, end = (near, far) if route.forward else (far, near)
        both = found.setdefault((near, far, route.path), [-1, -1])
        both[0 if route.forward else 1] = routes.setdefault(
            (attachment[start], attachment[end], route.hops), len(routes)
        )
    rows = np.array([(*key, *both) for key, both in sorted(found.items())], dtype=np.int64).reshape(-1, 5)
    src, dst, path, forward, back = rows.T.copy()
    ends = np.array([key[:2] for key in routes], dtype=np.int64).reshape(-1, 2)
    unit = _unit_of(units, units.attachment[src], units.attachment[dst])
    inside = (unit >= 0) & (c.host[src] != c.host[dst])
    src, dst, path, unit, forward, back = (x[inside] for x in (src, dst, path, unit, forward, back))
    upward = units.attachment[src] == units.a[unit]
    return Traces(src, dst, path, unit, forward, back, upward, _unit_of(units, ends[:, 0], ends[:, 1]))


def _unit_of(units: Units, one: Int64s, other: Int64s) -> Int64s:
    """Number of the unit of two attachments, in either order; −1: no unit."""
    if not len(units.a):
        return np.full(len(one), -1, dtype=np.int64)
    attachments = int(units.attachment.max(initial=0)) + 1
    keys = np.minimum(units.a, units.b) * attachments + np.maximum(units.a, units.b)
    order = np.argsort(keys)
    wanted = np.minimum(one, other) * attachments + np.maximum(one, other)
    at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    result: Int64s = np.where(keys[order][at] == wanted, order[at], -1)
    return result


def key(src: Int64s, dst: Int64s, path: Int64s) -> Int64s:
    """One number per session of a class."""
    return (src << 40) | (dst << 16) | path
