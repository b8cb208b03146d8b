"""The kernels of a running fabric: cabling as it is now, and what is true about paths, queues and counters.

The truth is for tests and scores; no stage may see it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from sdfstream.errors import ConfigError, LabUnavailableError
from sdfstream.lab import oracle
from sdfstream.lab.features import Features
from sdfstream.lab.kernel import queues, rtnl
from sdfstream.lab.kernel.namespaces_io import Namespaces
from sdfstream.lab.kernel.netlink import KernelRequest
from sdfstream.lab.kernel.wire import Counts
from sdfstream.lab.kernel.wire_io import Wire
from sdfstream.lab.plan import FabricPlan, Port

_CARRIER_TIMEOUT_S = 10.0
_FRUITLESS_PORTS = 2_048
"""So many ports in a row that miss a direction mean that none will cross it: with 128 spines, 1 in 10 million."""


class LabNetwork:
    """The fabric's nodes and questions to their kernels; all methods may be called from any thread."""

    features: Features
    """Set once the fabric is built."""

    def __init__(self, plan: FabricPlan, namespaces: Namespaces) -> None:
        self.spec = plan.spec
        self.plan = plan
        """Cabling as it is now."""
        self.namespaces = namespaces
        self.wire: Wire | None = None
        """The engine that drops and marks packets; None where the machine allows none."""
        self.lock = threading.RLock()
        self.dead_ports: frozenset[int] = frozenset()
        """Interface indexes without carrier now."""

    def path(self, src: str, dst: str, source_port: int, dest_port: int = 862, proto: str = "udp") -> list[str]:
        """Directions a packet takes now, e.g. ``["h00/r0->l0", "l0->s1", "s1->l2", "l2->h04/r0"]``.

        Exact: the kernel of every router on the path is asked. Short (down to empty) where a router has no route. Black
        holes are not considered: packets vanish on the path that is returned.
        """
        with self.lock:
            return oracle.path(self.plan, self.dead_ports, self._ask, (src, dst, source_port, dest_port, proto))

    def ports_via(
        self,
        direction: str,
        src: str,
        dst: str,
        n: int,
        dest_port: int = 862,
        first_port: int = 49_152,
        proto: str = "udp",
    ) -> list[int]:
        """The first `n` source ports from `first_port` whose packets from `src` to `dst` use `direction`.

        Fewer come back when no more exist.
        """
        self._direction(direction)
        found: list[int] = []
        last = first_port
        for port in range(first_port, 65_536):
            if len(found) == n or port - last > _FRUITLESS_PORTS:
                break
            if direction in self.path(src, dst, port, dest_port, proto):
                found.append(port)
                last = port
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

    def queue(self, direction: str, dscp: int | None = None) -> tuple[int, int, int]:
        """(packets waiting, bytes waiting, packets dropped so far) of a direction's queue, or of one class in it."""
        port, _ = self._direction(direction)
        request = queues.get_queue(port.ifindex)
        if dscp is not None and self.plan.spec.class_dscp is not None:
            own = dscp == self.plan.spec.class_dscp
            request = queues.get_class(port.ifindex, queues.DSCP_CLASS if own else queues.REST_CLASS)
        with self.lock:
            [body] = self._ask(port.node, request)
        return queues.queue_stats(body)

    def done_to(self, direction: str) -> Counts:
        """Packets that the lab itself dropped or marked in a direction."""
        port, _ = self._direction(direction)
        with self.lock:
            return self.wire.counts(port.ifindex) if self.wire else Counts()

    def wait_for_carriers(self, ports: Iterable[Port]) -> None:
        """Wait until each port works, or does not, as `dead_ports` says.

        The kernel draws the consequences of a carrier change (queue switched, routes marked) a moment later, in the
        background; until then a port that is up still drops what it is given.

        Raises
        ------
        LabUnavailableError
            A port did not follow within some seconds.
        """
        end = time.monotonic() + _CARRIER_TIMEOUT_S
        for port in ports:
            up = port.ifindex not in self.dead_ports
            while rtnl.is_operational(self._ask(port.node, rtnl.get_link(port.ifindex))[0]) is not up:
                if time.monotonic() > end:
                    raise LabUnavailableError(f"{port.node}:{port.device} did not go {'up' if up else 'down'}")
                time.sleep(0.0002)

    def _direction(self, direction: str) -> tuple[Port, Port]:
        if direction not in self.plan.by_direction:
            raise ConfigError(f"no such direction in the lab: {direction!r}")
        return self.plan.by_direction[direction]

    def _ask(self, node: str, request: KernelRequest) -> list[bytes]:
        return self.namespaces.route(node).ask(request)
