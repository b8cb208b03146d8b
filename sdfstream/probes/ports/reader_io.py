"""Ports, reading part: rtnetlink and ethtool inside each NIC's namespace, sysfs below a root.

With root "/" the kernel's netlink is asked first and sysfs adds what it does not know (RDMA ports above all);
with any other root only files are read. One set of sockets per namespace stays open and is closed as soon as the
namespace's path is gone, so that a reader never keeps a dead namespace alive.

A bond has one port per device below it (two, for a NIC wired to two leaves), numbered from 1 in the order of their
names; so has an RDMA device with several ports. Everything else is port 1.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from sdfstream.errors import FormatError
from sdfstream.probes.config import NicConfig
from sdfstream.probes.ports.device_io import NetDevice
from sdfstream.probes.ports.reading import PortReading, PortRow, combine, rows, state_of
from sdfstream.probes.ports.rtnetlink_io import NamespaceGoneError, PortKernel
from sdfstream.probes.ports.sysfs import is_infiniband, net_reading, rdma_reading
from sdfstream.probes.ports.sysfs_io import PortFiles
from sdfstream.stats import Counters

_SEARCH_EVERY: Final = 60
"""Readings between two searches for RDMA ports and bonded devices (a driver may be loaded late)."""


@dataclass(slots=True)
class _DeviceState:
    """State of one device of a NIC until it vanishes."""

    live: NetDevice | None
    index: int = 0
    sources: dict[int, dict[str, str]] = field(default_factory=dict)
    """By port number: the source of each column."""
    in_sysfs: bool = False
    """Whether the sysfs folder of that name is this device."""
    rdma: tuple[tuple[str, int], ...] = ()
    """Its RDMA ports (device, number)."""
    below: tuple[str, ...] = ()
    """Devices it bonds."""
    search_in: int = 0
    """Readings until the next search for RDMA ports and bonded devices."""


class PortReader:
    """Reads the ports of one host.

    Parameters
    ----------
    host : str
        The agent's host.
    nics : sequence of NicConfig
        Whose ports to read; `device` is a net device, or an RDMA device that has none.
    root : str
        Root under which ``sys/class/net`` and ``sys/class/infiniband`` are read; netlink only with "/".
    """

    def __init__(self, host: str, nics: Sequence[NicConfig], root: str = "/") -> None:
        self.counters = Counters("ports")
        self._host = host
        self._nics = tuple(nics)
        self._files = PortFiles(root)
        self._kernels = {nic.netns: PortKernel(nic.netns) for nic in self._nics} if root == "/" else {}
        self._ports: dict[tuple[str, str], _DeviceState] = {}
        self._turn = 0
        """Whose module may be read next: the bus to it is slow, so one device per reading."""

    def read(self, now_ns: int) -> pa.RecordBatch | None:
        """One row per port; None without NICs. Never raises: what cannot be read is ``unknown`` and counted.

        Parameters
        ----------
        now_ns : int, ns since the Unix epoch, the host's clock
        """
        found = [(row, nic, device) for nic in self._nics for row, device in self._nic(nic, now_ns)]
        if self._kernels and found:
            index = self._turn % len(found)
            self._turn += 1
            row, nic, device = found[index]
            values = self._module(nic, device, now_ns)
            found[index] = (row._replace(values={**row.values, **values}), nic, device)
        return rows(self._host, now_ns, [row for row, _, _ in found])

    def close(self) -> None:
        """Close every socket; a later `read` opens them again."""
        for kernel in self._kernels.values():
            kernel.close()

    def _nic(self, nic: NicConfig, now_ns: int) -> list[tuple[PortRow, str]]:
        """Rows of one NIC, each with its device."""
        found = [(row, nic.device) for row in self._device(nic, nic.device, now_ns)]
        below = self._port(nic, nic.device).below
        if not below:
            return found
        single = [(self._device(nic, device, now_ns)[0], device) for device in below]
        return [(row._replace(port=number), device) for number, (row, device) in enumerate(single, 1)]

    def _device(self, nic: NicConfig, device: str, now_ns: int) -> list[PortRow]:
        try:
            readings = self._readings(nic, device, now_ns)
            port = self._port(nic, device)
            ports = self._sysfs_ports(nic, device, port, bool(readings))
        except (OSError, FormatError) as error:
            self.counters.add("refused", f"nic.{_why(error)}")
            return [PortRow(nic.nic, 1, "unknown", {})]
        if not readings and not ports:
            self._ports.pop((nic.nic, device), None)
            return [PortRow(nic.nic, 1, "absent", {})]
        if not ports:
            return [PortRow(nic.nic, 1, state_of(readings), combine(readings, port.sources.setdefault(1, {})))]
        return [_joined(nic, port, readings, *one) for one in ports]

    def _port(self, nic: NicConfig, device: str) -> _DeviceState:
        port = self._ports.get((nic.nic, device))
        if port is None:
            kernel = self._kernels.get(nic.netns)
            live = NetDevice(device, kernel, self.counters) if kernel else None
            port = self._ports[nic.nic, device] = _DeviceState(live)
        return port

    def _readings(self, nic: NicConfig, device: str, now_ns: int) -> list[PortReading]:
        """Readings of the net device, the best source first; empty when there is no such device."""
        port = self._port(nic, device)
        live = port.live
        if live is None:
            return self._from_files(device)
        try:
            readings = live.read(now_ns)
        except NamespaceGoneError:
            return []
        except OSError as error:
            if nic.netns is not None or live.index:
                raise
            self.counters.add("refused", f"netlink.{_why(error)}")
            return self._from_files(device)  # this kernel or container has no netlink for us
        if port.index != live.index:
            port.index, port.sources, port.search_in = live.index, {}, 0
            port.in_sysfs = bool(readings) and self._files.is_device(device, live.index, live.address)
        if port.in_sysfs and not self._kernels[nic.netns].has_ethtool:
            readings += self._from_files(device)
        return readings

    def _from_files(self, device: str) -> list[PortReading]:
        texts = self._files.net_texts(device)
        return [] if texts is None else [net_reading(texts, self.counters)]

    def _sysfs_ports(
        self, nic: NicConfig, device: str, port: _DeviceState, has_device: bool
    ) -> list[tuple[int, PortReading, bool]]:
        """RDMA ports of the device by sysfs: number, reading, whether it is an InfiniBand port."""
        if port.live and (nic.netns is not None or (has_device and not port.in_sysfs)):
            return []  # sysfs shows another namespace's devices
        port.search_in -= 1
        if port.search_in < 0:
            port.rdma, port.below = self._files.rdma_ports(device), self._files.bonded(device)
            port.search_in = _SEARCH_EVERY
        texts = {number: self._files.rdma_texts(rdma, number) for rdma, number in port.rdma}
        if None in texts.values():
            port.search_in = 0
        return [(n, rdma_reading(t, self.counters), is_infiniband(t)) for n, t in texts.items() if t is not None]

    def _module(self, nic: NicConfig, device: str, now_ns: int) -> dict[str, int | float]:
        live = self._port(nic, device).live
        try:
            return live.module(now_ns) if live else {}
        except OSError as error:
            self.counters.add("refused", f"module.{_why(error)}")
            return {}


def _joined(
    nic: NicConfig, port: _DeviceState, readings: list[PortReading], number: int, rdma: PortReading, infiniband: bool
) -> PortRow:
    # an InfiniBand port's own counters see all traffic; those of an Ethernet port see only RDMA's share
    order = [rdma, *readings] if infiniband else [*readings, rdma]
    values = combine(order, port.sources.setdefault(number, {}))
    return PortRow(nic.nic, number, state_of(readings) if readings else rdma.state, values)


def _why(error: OSError | FormatError) -> str:
    if isinstance(error, FormatError):
        return error.reason
    return errno.errorcode.get(error.errno or 0, type(error).__name__)
