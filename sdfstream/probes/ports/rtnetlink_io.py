"""One network namespace as a source of port readings: its sockets, opened when first needed."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Final

from sdfstream.probes.net.netlink_io import NETLINK_GENERIC, NETLINK_ROUTE, NetlinkAnswer, NetlinkRequest, NetlinkSocket
from sdfstream.probes.net.netns_io import inside
from sdfstream.probes.ports import rtnetlink
from sdfstream.probes.ports.driver_stats_io import DriverStats
from sdfstream.stats import Counters

_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.EINVAL)
"""Errors of opening or entering a namespace's path once nothing is mounted there any more."""


class NamespaceGoneError(OSError):
    """The path leads to no namespace: its devices are absent."""


class PortKernel:
    """Netlink sockets inside the namespace at `path` (None: the process's own)."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._identity: tuple[int, int] | None = None
        self._route: NetlinkSocket | None = None
        self._generic: NetlinkSocket | None = None
        self._driver: DriverStats | None = None
        self._family: int | None = None

    def close(self) -> None:
        """Close the sockets, so that they hold the namespace no longer; the next call opens them afresh."""
        for held in (self._route, self._generic, self._driver):
            if held is not None:
                held.close()
        self._route = self._generic = self._driver = self._family = self._identity = None

    def link(self, device: str, refused: Counters) -> rtnetlink.LinkMessage | None:
        """The device as rtnetlink shows it; None when the namespace has no such device.

        Raises
        ------
        NamespaceGoneError
            There is no namespace at the path.
        OSError, FormatError
            It cannot be read.
        """
        answer = self._ask_route(rtnetlink.link_request(device))
        if answer.errno in (errno.ENODEV, errno.ENOENT):
            return None
        if answer.errno or not answer.bodies:
            raise OSError(answer.errno, os.strerror(answer.errno), device)
        return rtnetlink.link(answer.bodies[0], refused)

    def ethtool(self, bodies: Sequence[bytes]) -> list[NetlinkAnswer]:
        """Answers of the ethtool family; empty when the kernel has none."""
        if self._generic is None or not self._family:
            return []
        return self._guard(self._generic, [NetlinkRequest(self._family, body) for body in bodies])

    def driver_names(self, device: str) -> list[str]:
        """Names of the driver's own counters; OSError when there are none."""
        return [] if self._driver is None else self._driver.names(device)

    def driver_values(self, device: str) -> tuple[int, ...]:
        """Their values; OSError when there are none."""
        return () if self._driver is None else self._driver.values(device)

    @property
    def has_ethtool(self) -> bool:
        """Whether the kernel speaks ethtool netlink (Linux 5.6 and later)."""
        return bool(self._family)

    def _ask_route(self, body: bytes) -> NetlinkAnswer:
        self._open()
        assert self._route is not None
        return self._guard(self._route, [NetlinkRequest(rtnetlink.RTM_GETLINK, body)])[0]

    def _guard(self, held: NetlinkSocket, questions: Sequence[NetlinkRequest]) -> list[NetlinkAnswer]:
        try:
            return held.ask(questions)
        except OSError:
            self.close()  # whatever is still in its queue must not answer the next question
            raise

    def _open(self) -> None:
        identity = self._namespace()
        if self._route is not None and identity == self._identity:
            return
        self.close()
        try:
            self._route, self._generic, self._driver = inside(
                self._path, lambda: (NetlinkSocket(NETLINK_ROUTE), NetlinkSocket(NETLINK_GENERIC), DriverStats())
            )
        except OSError as error:
            if self._path is not None and error.errno in _GONE:
                raise NamespaceGoneError(error.errno, "no namespace", self._path) from error
            raise
        self._identity = identity
        answer = self._guard(
            self._generic, [NetlinkRequest(rtnetlink.GENL_CTRL, rtnetlink.family_request(rtnetlink.ETHTOOL))]
        )[0]
        self._family = rtnetlink.family_of(answer.bodies[0]) if answer.bodies else 0

    def _namespace(self) -> tuple[int, int] | None:
        """Device and inode of the namespace at the path; one mounted anew has others."""
        if self._path is None:
            return None
        try:
            stat = os.stat(self._path)  # noqa: PTH116  one call per reading
        except OSError as error:
            self.close()
            if error.errno in _GONE:
                raise NamespaceGoneError(error.errno, "no namespace", self._path) from error
            raise
        return stat.st_dev, stat.st_ino
