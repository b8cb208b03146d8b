"""One net device read through the kernel: link, statistics, the driver's own counters, its optics module."""

from __future__ import annotations

import errno
import time
from typing import Final, Protocol

from sdfstream.probes.net.netlink_io import NetlinkAnswer
from sdfstream.probes.ports import rtnetlink
from sdfstream.probes.ports.driver_stats import CounterIndexes, counter_indexes, driver_reading
from sdfstream.probes.ports.optics import NO_MODULE, MemoryWindow, Module, identify, read_module
from sdfstream.probes.ports.reading import PortReading
from sdfstream.stats import Counters

NEVER: Final = (errno.EOPNOTSUPP, errno.EPERM, errno.EACCES)
"""Answers after which the same question is not asked again until the device comes back."""
_SELDOM_NS: Final = 10_000_000_000
"""Optics, and counters of slow drivers, are read at most this often; in between their columns are null."""
_SLOW_NS: Final = 2_000_000
"""A driver that twice in a row takes longer than this for its counters is asked seldom."""


class Kernel(Protocol):
    """The kernel as seen in the namespace of a device."""

    def link(self, device: str, refused: Counters) -> rtnetlink.LinkMessage | None:
        """The device, None when it is not there."""

    def ethtool(self, bodies: list[bytes]) -> list[NetlinkAnswer]:
        """Answers of the ethtool family; fewer than asked when it does not answer."""

    def driver_names(self, device: str) -> list[str]:
        """Names of the driver's counters."""

    def driver_values(self, device: str) -> tuple[int, ...]:
        """Their values."""


class NetDevice:
    """A device by name; its state is reset when another device takes the name."""

    clock_ns = staticmethod(time.monotonic_ns)
    """Measures how long a driver takes; a test may replace it."""

    def __init__(self, device: str, kernel: Kernel, refused: Counters) -> None:
        self.device = device
        self._kernel = kernel
        self._refused = refused
        self._forget(0, b"")

    def _forget(self, index: int, address: bytes) -> None:
        self.index = index
        """Interface index; 0 while there is no such device."""
        self.address = address
        self._commands = list(rtnetlink.READ_COMMANDS)
        self._indexes: CounterIndexes | None = None
        self._names_n = 0
        self._slow_n = 0
        self._driver_at_ns = -(1 << 62)
        self._module: Module | None = None
        self._module_at_ns = -(1 << 62)
        self._carrier_changes: int | float | None = None

    def read(self, now_ns: int) -> list[PortReading]:
        """Readings, the best source first; empty when there is no such device.

        Raises
        ------
        OSError, FormatError
            It cannot be read.
        """
        link = self._kernel.link(self.device, self._refused)
        if link is None:
            self._forget(0, b"")
            return []
        if self.index != link.ifindex:
            self._forget(link.ifindex, link.address)
        if self._carrier_changes != (changes := link.reading.values.get("carrier_changes")):
            self._carrier_changes, self._module = changes, None  # a change of carrier may be a change of module
        return [self._driver(now_ns), self._ethtool(), link.reading]

    def module(self, now_ns: int) -> dict[str, int | float]:
        """Optics columns; empty when it is not time yet or there is nothing to read.

        Raises
        ------
        OSError
            The kernel does not answer.
        """
        is_due = abs(now_ns - self._module_at_ns) >= _SELDOM_NS
        if not self.index or self._module is NO_MODULE or not is_due:
            return {}
        self._module_at_ns = now_ns
        if self._module is None:
            found = identify(self._fetch)
            self._module = self._module or found  # fetching may have shown that no module can be read
        values = read_module(self._module, self._fetch).values if self._module else {}
        if not values and self._module is not NO_MODULE:
            self._module = None  # pulled out: the next one plugged in may be of another kind
        return values

    def _ethtool(self) -> PortReading:
        asked = tuple(self._commands)
        answers: dict[int, bytes] = {}
        replies = self._kernel.ethtool([rtnetlink.ethtool_request(command, self.index) for command in asked])
        for command, answer in zip(asked, replies, strict=False):
            if answer.errno in NEVER:
                self._commands.remove(command)
            elif not answer.errno and answer.bodies:
                answers[command] = answer.bodies[0]
        return rtnetlink.ethtool_reading(answers, self._refused)

    def _driver(self, now_ns: int) -> PortReading:
        is_due = self._slow_n < 2 or abs(now_ns - self._driver_at_ns) >= _SELDOM_NS
        if self._indexes == {} or not is_due:
            return PortReading("driver")
        self._driver_at_ns = now_ns
        try:
            if self._indexes is None:
                names = self._kernel.driver_names(self.device)
                self._indexes, self._names_n = counter_indexes(names), len(names)
                if not self._indexes:
                    return PortReading("driver")
            began_ns = self.clock_ns()
            values = self._kernel.driver_values(self.device)
            self._slow_n = self._slow_n + 1 if self.clock_ns() - began_ns > _SLOW_NS else 0
        except OSError as error:
            if error.errno in NEVER:
                self._indexes = {}
            return PortReading("driver")
        if len(values) != self._names_n:  # the driver was set up anew: its counters may have other indexes now
            self._indexes = None
            return PortReading("driver")
        return driver_reading(self._indexes, values)

    def _fetch(self, window: MemoryWindow) -> bytes:
        if self._module is NO_MODULE:
            return b""
        request = rtnetlink.eeprom_request(
            self.index, page=window.page, offset=window.offset, length=window.length, address=window.address
        )
        for answer in self._kernel.ethtool([request]):
            if answer.errno in NEVER:
                self._module = NO_MODULE  # the driver does not read its module, or not for us
            elif not answer.errno and answer.bodies:
                return rtnetlink.eeprom_data(answer.bodies[0])
        return b""
