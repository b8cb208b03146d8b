"""The namespaces of one fabric: one per node, each with its netlink socket, all held by this process alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from sdfstream.lab import netns_io, sysctls
from sdfstream.lab.netlink_io import NETLINK_NETFILTER, NetlinkSocket
from sdfstream.lab.plan import Plan

T = TypeVar("T")


class Namespaces:
    """Namespace descriptors and route sockets by node; everything is gone once `close` has run or we have died."""

    def __init__(self) -> None:
        self.fds: dict[str, int] = {}
        self.absent_sysctls: set[str] = set()
        self._route: dict[str, NetlinkSocket] = {}
        self._netfilter: dict[str, NetlinkSocket] = {}

    @classmethod
    def create(cls, plan: Plan) -> Namespaces:
        """A namespace with its kernel settings for every node of the plan.

        Raises
        ------
        LabUnavailableError
            Namespaces cannot be made here; nothing is left behind.
        """
        result = cls()
        try:
            with netns_io.elsewhere():
                for node, kind in plan.kinds.items():
                    result.fds[node] = netns_io.new_namespace()
                    result.absent_sysctls.update(netns_io.write_sysctls(sysctls.settings(kind, plan.spec)))
                    result._route[node] = NetlinkSocket()
        except BaseException:
            result.close()
            raise
        return result

    def route(self, node: str) -> NetlinkSocket:
        """The rtnetlink socket of a node."""
        return self._route[node]

    def netfilter(self, node: str) -> NetlinkSocket:
        """The nfnetlink socket of a node, opened at first use."""
        if node not in self._netfilter:
            self._netfilter[node] = self.run(node, lambda: NetlinkSocket(NETLINK_NETFILTER))
        return self._netfilter[node]

    @contextlib.contextmanager
    def inside(self, node: str) -> Iterator[None]:
        """Run a block in a node's namespace."""
        with netns_io.inside(self.fds[node]):
            yield

    def run(self, node: str, make: Callable[[], T]) -> T:
        """The result of `make`, called in a node's namespace."""
        with self.inside(node):
            return make()

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
