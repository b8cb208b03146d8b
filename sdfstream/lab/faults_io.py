"""Injecting and healing faults: the kernels are brought to the combined effects of the active faults, and back."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sdfstream.errors import ConfigError, LabUnavailableError
from sdfstream.lab import setup
from sdfstream.lab.faults import FAULT_MTU_BYTES, Effects, Fault, combined, dead_ports, effects
from sdfstream.lab.kernel import rtnl
from sdfstream.lab.network_io import LabNetwork
from sdfstream.lab.plan import Cable, FabricPlan


class Faults:
    """The faults of one fabric. Every change has two steps: alter the active effects, then reconcile the kernels."""

    def __init__(self, network: LabNetwork, truth_dir: Path | None) -> None:
        self._network = network
        self._truth = truth_dir / "faults.jsonl" if truth_dir else None
        self._ids = itertools.count(1)
        self._applied = Effects(swapped=network.plan.swapped)
        self._active_effects: dict[str, Effects] = {}
        """By fault id."""
        self.before_heal: list[Callable[[Fault], None]] = []
        """Called, under the network's lock, with every fault that is about to be healed."""
        self.all: list[Fault] = []
        """Every fault so far, healed ones too, oldest first."""

    @property
    def active(self) -> list[Fault]:
        """Faults not healed yet."""
        return [fault for fault in self.all if fault.healed_at_ns is None]

    def inject(self, target: str, kind: str, share: float, end: str | None, octets: int = FAULT_MTU_BYTES) -> Fault:
        """Apply one fault now; see `Fabric.inject`."""
        with self._network.lock:
            wanted = effects(self._network.plan, kind, target, share, end, octets)
            said: dict[str, dict[str, Any]] = {"gray-loss": {"share": share}, "mtu": {"octets": octets}}
            parameters = said.get(kind, {})
            if end:
                parameters["end"] = end
            fault = self.record(kind, target, parameters)
            try:
                self.hold(fault, wanted)
            except BaseException:
                self.forget(fault)
                raise
            return fault

    def declare_miscabled(self, hosts: Sequence[str]) -> None:
        """Hosts that were mis-cabled from the start: they can be healed like any fault."""
        for host in hosts:
            self._active_effects[self.record("miscabled", host, {}).id] = Effects(swapped=frozenset({host}))
        self.write_truth()

    def record(self, kind: str, target: str, parameters: dict[str, Any]) -> Fault:
        """A new fault without effect yet."""
        direction = target if target in self._network.plan.by_direction else None
        fault = Fault(f"f{next(self._ids)}", kind, target, direction, time.time_ns(), None, parameters)
        self.all.append(fault)
        return fault

    def forget(self, fault: Fault) -> None:
        """Remove a recorded fault that could not be injected."""
        self.all.remove(fault)

    def hold(self, fault: Fault, wanted: Effects) -> None:
        """Apply the effects `wanted` of `fault` from now on."""
        with self._network.lock:
            self._active_effects[fault.id] = wanted
            try:
                self._reconcile()
            except BaseException:
                del self._active_effects[fault.id]
                self._reconcile()
                raise
            self.write_truth()

    def release(self, fault: Fault) -> None:
        """Suspend the effects of `fault` (a flap between two outages)."""
        with self._network.lock:
            if self._active_effects.pop(fault.id, None) is not None:
                self._reconcile()

    def heal(self, which: str | None = None) -> list[Fault]:
        """Heal one fault by id, all faults of a target, or everything; the healed ones come back.

        Raises
        ------
        ConfigError
            No active fault has that id or target.
        """
        with self._network.lock:
            chosen = [fault for fault in self.active if which in (None, fault.id, fault.target)]
            if which is not None and not chosen:
                raise ConfigError(f"no active fault has the id or target {which!r}")
            for fault in chosen:
                self._active_effects.pop(fault.id, None)
                for observer in self.before_heal:
                    observer(fault)
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
        network, before, after = self._network, self._applied, combined(self._active_effects.values())
        # Set at once: should a step fail, reconciling back undoes what was done.
        self._applied = after
        moves = self._move_cables(after)
        self._set_mtus(before.mtu_bytes, after.mtu_bytes)
        changed = {*before.down, *after.down}.difference(before.down & after.down)
        self._switch_ports(changed, after.down)
        network.dead_ports = dead = dead_ports(network.plan, after.down)
        ports = [network.plan.by_ifindex[ifindex] for ifindex in changed]
        ports += [(cable.a, cable.b) for cable in moves]
        network.wait_for_carriers(port for pair in ports for port in pair)
        # Both nodes of a cable that came back: the kernel forgot their nexthops, neighbours and routes.
        nodes = {port.node for pair in ports for port in pair} if not moves else set(network.plan.kinds)
        for node in sorted(nodes):
            network.namespaces.route(node).apply(setup.restore(network.plan, node, dead))
        self._losses(before.loss, after.loss, [port.ifindex for cable in moves for port in (cable.a, cable.b)])

    def _move_cables(self, after: Effects) -> list[Cable]:
        """Move cables to the ports they are swapped to; the moved ones, as cabled now."""
        old, network = self._network.plan, self._network
        if after.swapped == old.swapped:
            return []
        new = FabricPlan(network.spec, after.swapped)
        moves = [(a, b) for a, b in zip(old.cables, new.cables, strict=True) if a.b.node != b.b.node]
        if network.wire:
            network.wire.detach(port.ifindex for _, cable in moves for port in (cable.a, cable.b))
        for was, now in moves:
            fd = network.namespaces.fds[now.b.node]
            network.namespaces.route(was.b.node).apply([rtnl.move_link(was.b.ifindex, fd, was.b.device)])
        for node in new.kinds:
            network.namespaces.route(node).apply(setup.obsolete_routes(old, new, node))
        network.plan = new
        for _, cable in moves:
            self._plug_in(cable, up=cable.b.ifindex not in after.down)
        return [cable for _, cable in moves]

    def _plug_in(self, cable: Cable, *, up: bool) -> None:
        """Set up the leaf's end of a host cable that was moved there; `up` False leaves it set down."""
        network = self._network
        requests = setup.plug_in(network.plan, cable.b, cable, up=up)
        if network.wire:
            requests += network.wire.attach([(cable.b, cable.a)])
        network.namespaces.route(cable.b.node).apply(requests)

    def _switch_ports(self, changed: Iterable[int], down: frozenset[int]) -> None:
        for ifindex in changed:
            port, _ = self._network.plan.by_ifindex[ifindex]
            request = rtnl.link_up(ifindex, ifindex not in down, f"{port.node}:{port.device}")
            self._network.namespaces.route(port.node).apply([request])

    def _set_mtus(self, before: Mapping[int, int], after: Mapping[int, int]) -> None:
        for ifindex in {*before, *after}:
            mtu_bytes = after.get(ifindex, setup.MTU_BYTES)
            if mtu_bytes != before.get(ifindex, setup.MTU_BYTES):
                port, _ = self._network.plan.by_ifindex[ifindex]
                request = rtnl.set_mtu(ifindex, mtu_bytes, f"{port.node}:{port.device}")
                self._network.namespaces.route(port.node).apply([request])

    def _losses(self, before: Mapping[int, float], after: Mapping[int, float], moved: Iterable[int]) -> None:
        changed = {i for i in {*before, *after} if before.get(i, 0.0) != after.get(i, 0.0)}
        self._rules({ifindex: after.get(ifindex, 0.0) for ifindex in changed.union(moved)})

    def _rules(self, losses: Mapping[int, float]) -> None:
        network = self._network
        rules = {
            ifindex: replace(setup.base_rule(network.plan, network.plan.by_ifindex[ifindex][0]), loss=loss)
            for ifindex, loss in losses.items()
        }
        if network.wire:
            network.wire.set_rules(network.plan, rules)
        elif any(losses.values()):
            raise LabUnavailableError("nothing here can drop packets: " + "; ".join(network.features.missing))
