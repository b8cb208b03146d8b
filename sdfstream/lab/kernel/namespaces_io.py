"""The namespaces of one fabric: one per node, each with its netlink socket, all held by this process alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from sdfstream.lab.kernel import netns_io, sysctls
from sdfstream.lab.kernel.netlink_io import NodeSocket
from sdfstream.lab.plan import FabricPlan
from sdfstream.probes.net.netlink_io import NETLINK_NETFILTER
from sdfstream.probes.net.netns_io import apart, inside

T = TypeVar("T")


class Namespaces:
    """Namespace descriptors and route sockets by node; everything is gone once `close` has run or we have died."""

    def __init__(self) -> None:
        self.fds: dict[str, int] = {}
        self.absent_sysctls: set[str] = set()
        self._route: dict[str, NodeSocket] = {}
        self._netfilter: dict[str, NodeSocket] = {}

    @classmethod
    def create(cls, plan: FabricPlan) -> Namespaces:
        """A namespace with its kernel settings for every node of the plan.

        Raises
        ------
        LabUnavailableError
            Namespaces cannot be made here; nothing is left behind.
        """
        result = cls()

        def make() -> None:
            for node, kind in plan.kinds.items():
                result.fds[node] = netns_io.new_namespace()
                result.absent_sysctls.update(netns_io.write_sysctls(sysctls.settings(kind, plan.spec)))
                result._route[node] = NodeSocket()

        try:
            apart(make)
        except BaseException:
            result.close()
            raise
        return result

    def route(self, node: str) -> NodeSocket:
        """The rtnetlink socket of a node."""
        return self._route[node]

    def netfilter(self, node: str) -> NodeSocket:
        """The nfnetlink socket of a node, opened at first use."""
        if node not in self._netfilter:
            self._netfilter[node] = self.run(node, lambda: NodeSocket(NETLINK_NETFILTER))
        return self._netfilter[node]

    def run(self, node: str, work: Callable[[], T]) -> T:
        """The result of `work`, done in a node's namespace by a thread of its own; sockets opened there stay there."""
        return inside(self.fds[node], work)

    def path(self, node: str) -> str:
        """Where other processes of this machine enter the namespace."""
        return f"/proc/{os.getpid()}/fd/{self.fds[node]}"

    def close(self) -> None:
        """Let go of every namespace; the kernel removes those that no socket or process of others stands in."""
        for socket in (*self._route.values(), *self._netfilter.values()):
            socket.close()
        for fd in self.fds.values():
            os.close(fd)
        self._route.clear()
        self._netfilter.clear()
        self.fds.clear()
