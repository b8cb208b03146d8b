"""A running lab fabric: up, down, the way in for agents, what it declares, and what is true about its paths."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sdfstream.errors import ConfigError
from sdfstream.lab import mesh, oracle, queues, rtnl, setup, topology
from sdfstream.lab.faults import Fault
from sdfstream.lab.faults_io import Faults
from sdfstream.lab.namespaces_io import Namespaces
from sdfstream.lab.netlink import Request
from sdfstream.lab.plan import Plan, Port
from sdfstream.lab.spec import FabricSpec
from sdfstream.probes.config import AgentConfig


class Fabric:
    """A leaf-spine of network namespaces, owned by this process and gone with it.

    Use ``with Fabric.up(FabricSpec(...)) as fabric:``. All methods may be called from any thread.
    """

    def __init__(self, spec: FabricSpec, namespaces: Namespaces, truth_dir: Path | None) -> None:
        self.spec = spec
        self.plan = Plan(spec, frozenset(spec.miscabled_hosts))
        self.namespaces = namespaces
        self.lock = threading.RLock()
        self.faults = Faults(self, truth_dir)

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
        namespaces = Namespaces.create(Plan(spec))
        fabric = cls(spec, namespaces, truth_dir)
        try:
            fabric._build()
        except BaseException:
            fabric.down()
            raise
        return fabric

    def _build(self) -> None:
        for leaf in self.spec.leaf_names:
            self.namespaces.route(leaf).apply(setup.cables(self.plan, leaf, self.namespaces.fds))
        for node in (*self.spec.host_names, *self.spec.spine_names, *self.spec.leaf_names):
            self.namespaces.route(node).apply(setup.node(self.plan, node))

    def down(self) -> None:
        """Let go of everything; calling it again is fine."""
        with self.lock:
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

    def path(self, src: str, dst: str, source_port: int, dest_port: int = 862, proto: str = "udp") -> list[str]:
        """Directions a packet takes now, e.g. ``["h00/r0->l0", "l0->s1", "s1->l2", "l2->h04/r0"]``.

        Exact: the kernel of every router on the way is asked. Short (down to empty) where there is no way on. It knows
        routes, not black holes: those packets vanish on the path it names.
        """
        with self.lock:
            return oracle.path(self.plan, self.faults.dead_ports, self._ask, (src, dst, source_port, dest_port, proto))

    def ports_via(
        self, direction: str, src: str, dst: str, n: int, dest_port: int = 862, first_port: int = 49_152
    ) -> list[int]:
        """The first `n` UDP source ports from `first_port` whose packets from `src` to `dst` use `direction`.

        Fewer come back when no more exist.
        """
        self._direction(direction)
        found: list[int] = []
        for port in range(first_port, 65_536):
            if len(found) == n:
                break
            hops = self.path(src, dst, port, dest_port)
            if direction in hops:
                found.append(port)
            elif len(hops) < 3:
                break
        return found

    def counters(self, direction: str) -> tuple[int, int]:
        """(packets, bytes) sent into a direction since it was built, by the sending port's own count."""
        port, _ = self._direction(direction)
        with self.lock:
            [body] = self._ask(port.node, rtnl.get_link(port.ifindex))
        _, packets, _, sent_bytes = rtnl.link_counters(body)
        return packets, sent_bytes

    def backlog_bytes(self, direction: str) -> int:
        """Bytes waiting in a direction's queue now, Ethernet headers included; delay = backlog · 8 / rate."""
        return self.queue(direction)[1]

    def queue(self, direction: str) -> tuple[int, int, int]:
        """(packets waiting, bytes waiting, packets dropped so far) of a direction's queue."""
        port, _ = self._direction(direction)
        with self.lock:
            [body] = self._ask(port.node, queues.get_queue(port.ifindex))
        return queues.queue_stats(body)

    def inject(self, target: str, kind: str = "link-down", *, share: float = 1.0, end: str | None = None) -> Fault:
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

        Raises
        ------
        ConfigError
            There is no such target or kind, or they do not go together.
        """
        return self.faults.inject(target, kind, share, end)

    def heal(self, which: str | None = None) -> list[Fault]:
        """Heal a fault by id, all faults of a target, or everything; routes and queues are as they were before."""
        return self.faults.heal(which)

    def _direction(self, direction: str) -> tuple[Port, Port]:
        if direction not in self.plan.by_direction:
            raise ConfigError(f"no such direction in the lab: {direction!r}")
        return self.plan.by_direction[direction]

    def _ask(self, node: str, request: Request) -> list[bytes]:
        return self.namespaces.route(node).ask(request)
