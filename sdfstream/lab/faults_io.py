"""Injecting and healing faults: the kernel is brought to what the held faults ask for, and back."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdfstream.errors import ConfigError
from sdfstream.lab import rtnl, setup
from sdfstream.lab.faults import Effects, Fault, combined, dead_ports, effects

if TYPE_CHECKING:
    from sdfstream.lab.fabric_io import Fabric


class Faults:
    """The faults of one fabric. Every change goes the same way: alter what is held, then reconcile the kernel."""

    def __init__(self, fabric: Fabric, truth_dir: Path | None) -> None:
        self._fabric = fabric
        self._truth = truth_dir / "faults.jsonl" if truth_dir else None
        self._ids = itertools.count(1)
        self._held: dict[str, Effects] = {}
        self._applied = Effects()
        self.all: list[Fault] = []
        """Every fault so far, healed ones too, oldest first."""

    @property
    def active(self) -> list[Fault]:
        """Faults not healed yet."""
        return [fault for fault in self.all if fault.healed_at_ns is None]

    @property
    def dead_ports(self) -> frozenset[int]:
        """Interface indexes without carrier now."""
        return dead_ports(self._fabric.plan, self._applied.down)

    def inject(self, target: str, kind: str, share: float, end: str | None) -> Fault:
        """Apply one fault now; see `Fabric.inject`."""
        with self._fabric.lock:
            wanted = effects(self._fabric.plan, kind, target, share, end)
            parameters: dict[str, Any] = {"share": share} if kind == "gray-loss" else {}
            if end:
                parameters["end"] = end
            fault = self.record(kind, target, parameters)
            self.hold(fault, wanted)
            return fault

    def record(self, kind: str, target: str, parameters: dict[str, Any]) -> Fault:
        """A new fault that holds nothing yet."""
        direction = target if target in self._fabric.plan.by_direction else None
        fault = Fault(f"f{next(self._ids)}", kind, target, direction, time.time_ns(), None, parameters)
        self.all.append(fault)
        return fault

    def hold(self, fault: Fault, wanted: Effects) -> None:
        """Let `fault` do `wanted` from now on."""
        with self._fabric.lock:
            self._held[fault.id] = wanted
            self._reconcile()
            self.write_truth()

    def heal(self, which: str | None = None) -> list[Fault]:
        """Heal one fault by id, all faults of a target, or everything; the healed ones come back.

        Raises
        ------
        ConfigError
            No active fault has that id or target.
        """
        with self._fabric.lock:
            chosen = [fault for fault in self.active if which in (None, fault.id, fault.target)]
            if which is not None and not chosen:
                raise ConfigError(f"no active fault has the id or target {which!r}")
            for fault in chosen:
                self._held.pop(fault.id, None)
            self._reconcile()
            for fault in chosen:
                fault.healed_at_ns = time.time_ns()
            self.write_truth()
            return chosen

    def write_truth(self) -> None:
        """Rewrite the truth file as a whole: a reader never sees half a line."""
        if self._truth is None:
            return
        self._truth.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._truth.with_suffix(".new")
        fresh.write_text("".join(json.dumps(fault.truth()) + "\n" for fault in self.all))
        fresh.replace(self._truth)

    def _reconcile(self) -> None:
        before, after = self._applied, combined(self._held.values())
        self._links(before.down, after.down)
        self._applied = after

    def _links(self, before: frozenset[int], after: frozenset[int]) -> None:
        plan, route = self._fabric.plan, self._fabric.namespaces.route
        for ifindex in after - before:
            port, _ = plan.by_ifindex[ifindex]
            route(port.node).apply([rtnl.link_up(ifindex, False, f"{port.node}:{port.device}")])
        for ifindex in before - after:
            port, _ = plan.by_ifindex[ifindex]
            route(port.node).apply([rtnl.link_up(ifindex, True, f"{port.node}:{port.device}")])
        # Both nodes of a cable that came back: the kernel forgot their nexthops, neighbours and routes.
        dead = dead_ports(plan, after)
        back = {port.node for ifindex in before - after for port in plan.by_ifindex[ifindex]}
        for node in sorted(back):
            route(node).apply(setup.restore(plan, node, dead))
