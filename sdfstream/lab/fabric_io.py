"""A running lab fabric: up, down, agents' configuration, declared topology, faults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sdfstream.errors import ConfigError
from sdfstream.lab import mesh, setup, topology
from sdfstream.lab.faults import FAULT_MTU_BYTES, Fault
from sdfstream.lab.faults_io import Faults
from sdfstream.lab.features import describe
from sdfstream.lab.kernel.namespaces_io import Namespaces
from sdfstream.lab.kernel.wire_io import start
from sdfstream.lab.network_io import LabNetwork
from sdfstream.lab.plan import FabricPlan
from sdfstream.lab.spec import FabricSpec
from sdfstream.lab.timed_io import TimedFaults
from sdfstream.probes.config import AgentConfig


class Fabric(LabNetwork):
    """A leaf-spine of network namespaces, owned by this process and gone with it.

    Use ``with Fabric.up(FabricSpec(...)) as fabric:``. All methods may be called from any thread.
    """

    def __init__(self, spec: FabricSpec, namespaces: Namespaces, truth_dir: Path | None) -> None:
        super().__init__(FabricPlan(spec, frozenset(spec.miscabled_hosts)), namespaces)
        self.faults = Faults(self, truth_dir)
        self.timed_faults = TimedFaults(self, self.faults)

    @classmethod
    def up(cls, spec: FabricSpec | None = None, truth_dir: Path | None = None) -> Fabric:
        """Build the fabric; every queue, route and neighbour stands when this returns.

        With `truth_dir` every fault has its line in ``faults.jsonl`` there.

        Raises
        ------
        LabUnavailableError
            Neither root nor a user namespace can give us one, or the kernel lacks a part; nothing is left behind.
        """
        spec = spec or FabricSpec()
        namespaces = Namespaces.create(FabricPlan(spec))
        fabric = cls(spec, namespaces, truth_dir)
        try:
            fabric._build()
        except BaseException:
            fabric.down()
            raise
        return fabric

    def _build(self) -> None:
        plan, route = self.plan, self.namespaces.route
        for leaf in self.spec.leaf_names:
            route(leaf).apply(setup.cables(plan, leaf, self.namespaces.fds))
        for node in (*self.spec.host_names, *self.spec.spine_names, *self.spec.leaf_names):
            route(node).apply(setup.node(plan, node))
        self.wait_for_carriers(port for port, _ in plan.by_direction.values())
        marks = {port.ifindex: setup.base_rule(plan, port) for port, _ in plan.by_direction.values()}
        marks = {ifindex: rule for ifindex, rule in marks.items() if rule.ce_threshold_bytes}
        self.wire, reasons = start(plan, self.namespaces, marks)
        self.features = describe(self.spec, self.wire, self.namespaces.absent_sysctls, reasons)
        self.faults.declare_miscabled(self.spec.miscabled_hosts)

    def down(self) -> None:
        """End timed faults and close everything; calling it again is fine."""
        self.timed_faults.stop()
        with self.lock:
            if self.wire:
                self.wire.close()
            self.namespaces.close()

    def __enter__(self) -> Fabric:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def netns_path(self, node: str) -> str:
        """Path by which another process (same user, same user namespace) enters a node's network namespace."""
        if node not in self.plan.kinds:
            raise ConfigError(f"no such node in the lab: {node!r}")
        return self.namespaces.path(node)

    def topology(self) -> dict[str, Any]:
        """Declared topology: data of ``sdf.state.topology.declared.v1``, as planned."""
        return topology.declared(self.plan)

    def agent_config(self, spec: mesh.MeshSpec | None = None, hosts: Sequence[str] | None = None) -> AgentConfig:
        """Configuration of ONE agent process that serves all lab hosts, or only `hosts`."""
        return mesh.agent_config(self.plan, spec or mesh.MeshSpec(), self.netns_path, hosts or self.spec.host_names)

    def inject(
        self,
        target: str,
        kind: str = "link-down",
        *,
        share: float = 1.0,
        end: str | None = None,
        octets: int = FAULT_MTU_BYTES,
    ) -> Fault:
        """Break something now; it stays broken until `heal`.

        Parameters
        ----------
        target : str
            NIC ``h03/r1``, link ``l0--s1``, direction ``l0->s1`` or node ``s1`` (all its links).
        kind : str
            One of ``faults.KINDS``.
        share : float, 0..1
            Lost share (gray-loss).
        end : str, optional
            The end that is set down (link-down), as the link id names it; by default the leaf's.
        octets : int
            Largest IP packet that passes (mtu), 1280 to 1499.

        Raises
        ------
        ConfigError
            There is no such target or kind, or they do not go together.
        """
        if kind == "flap":
            return self.flap(target, end=end)
        if kind == "congestion":
            return self.congest(target)
        return self.faults.inject(target, kind, share, end, octets)

    def flap(
        self,
        target: str,
        times: int = 9,
        period_s: float = 1.0,
        down_s: float | None = None,
        *,
        end: str | None = None,
    ) -> Fault:
        """Set a link down and up again `times` times, once per `period_s`, down for `down_s` (half of it) each time.

        Returns at once; the fault heals itself after the last outage, and its parameters list every transition.
        """
        return self.timed_faults.flap(target, times, period_s, down_s, end)

    def congest(
        self, target: str, load: float = 1.3, seconds: float | None = None, *, dscp: int = 0, flows: int = 8
    ) -> Fault:
        """Send cross traffic between lab hosts through a queue, at `load` times its rate, until healed.

        Parameters
        ----------
        target : str
            Direction ``l0->s1``, link ``l0--s1`` (both directions), or NIC (towards it; needs host_rate_bps).
        load : float
            Multiple of the queue's rate; above 1 the queue fills to its limit.
        seconds : float, optional
            Ends, and is healed, by itself after this long.
        dscp : int
            Class of the traffic; with a class of its own, `load` counts that class's rate.
        flows : int
            How many flows (host pairs) share the load.
        """
        return self.timed_faults.congest(target, load, seconds, dscp, flows)

    def heal(self, which: str | None = None) -> list[Fault]:
        """Heal a fault by id, all faults of a target, or everything; routes and queues are as they were before."""
        return self.faults.heal(which)
