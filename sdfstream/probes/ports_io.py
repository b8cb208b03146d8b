"""Ports, reading part: rtnetlink and ethtool netlink inside each NIC's namespace, sysfs below a root.

With root "/" the kernel's netlink is asked first and sysfs adds what it does not know (RDMA ports above all);
with any other root only files are read. One pair of netlink sockets per namespace stays open and is given up as
soon as the namespace's path is gone, so that a reader never keeps a dead namespace alive.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa

from sdfstream.errors import FormatError
from sdfstream.probes import port_netlink as pn
from sdfstream.probes.config import NicConfig
from sdfstream.probes.optics import NO_MODULE, Module, Window, identify, read_module
from sdfstream.probes.port_files import is_infiniband, net_reading, rdma_reading
from sdfstream.probes.port_files_io import PortFiles
from sdfstream.probes.port_netlink_io import NamespaceGoneError, PortKernel
from sdfstream.probes.ports import PortRow, Reading, State, combine, rows, state_of
from sdfstream.stats import Counters

_NEVER: Final = (errno.EOPNOTSUPP, errno.EPERM, errno.EACCES)
"""Answers after which the same question is not asked again until the device comes back."""
_LOOK_AGAIN: Final = 60
"""Readings between two searches for a NIC's RDMA port (its driver may be loaded late)."""
_MODULE_EVERY_NS: Final = 10_000_000_000
"""A NIC's optics are read at most this often; in between their columns are null."""


@dataclass(slots=True)
class _Known:
    """What is remembered of one NIC between readings, until it vanishes."""

    index: int = 0
    """Interface index; another one means another device under the same name."""
    kept: dict[int, dict[str, str]] = field(default_factory=dict)
    """By port number: the source of each column."""
    commands: list[int] = field(default_factory=lambda: list(pn.READ_COMMANDS))
    """ethtool commands the device has not refused."""
    in_sysfs: bool = False
    """Whether the sysfs folder of that name is this device."""
    rdma: tuple[tuple[str, int], ...] = ()
    """Its RDMA ports (device, number)."""
    look_in: int = 0
    """Readings until the RDMA ports are searched again."""
    module: Module | None = None
    """Its optics module once identified; `NO_MODULE`: not asked again."""
    carrier_changes: int | float | None = None
    """Of the last reading: a change may be a change of module."""
    module_at_ns: int = -(1 << 62)
    """When its module was last asked."""


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
        self._known = {nic.nic: _Known() for nic in self._nics}
        self._turn = 0
        """Place of the NIC whose module may be read next: the bus to it is slow, so one NIC per reading."""

    def read(self, now_ns: int) -> pa.RecordBatch | None:
        """One row per port; None without NICs. Never raises: what cannot be read is ``unknown`` and counted.

        Parameters
        ----------
        now_ns : int, ns since the Unix epoch, the host's clock
        """
        ports = [row for nic in self._nics for row in self._rows(nic)]
        self._one_module(now_ns, ports)
        return rows(self._host, now_ns, ports)

    def close(self) -> None:
        """Close every socket; a later `read` opens them again."""
        for kernel in self._kernels.values():
            kernel.close()

    def _rows(self, nic: NicConfig) -> list[PortRow]:
        try:
            device = self._device(nic)
            ports = self._rdma(nic, self._known[nic.nic], bool(device))
            if not device and not ports:
                self._known[nic.nic] = _Known()
                return [PortRow(nic.nic, 1, "absent", {})]
            return self._join(nic, device, ports)
        except (OSError, FormatError) as error:
            self.counters.add("refused", f"nic.{_why(error)}")
            return [PortRow(nic.nic, 1, "unknown", {})]

    def _device(self, nic: NicConfig) -> list[Reading]:
        """Readings of the net device, the best source first; empty when there is no such device."""
        kernel = self._kernels.get(nic.netns)
        if kernel is None:
            return self._from_files(nic)
        try:
            link = kernel.link(nic.device, self.counters)
        except NamespaceGoneError:
            return []
        except OSError as error:
            if nic.netns is not None or self._known[nic.nic].index:
                raise
            self.counters.add("refused", f"netlink.{_why(error)}")
            return self._from_files(nic)  # this kernel or container has no netlink for us
        if link is None:
            return []
        known = self._known[nic.nic]
        if known.index != link.ifindex:
            known = self._known[nic.nic] = _Known(index=link.ifindex)
            known.in_sysfs = self._files.is_device(nic.device, link.ifindex, link.address)
        if known.carrier_changes != (changes := link.reading.values.get("carrier_changes")):
            known.carrier_changes, known.module = changes, None
        readings = [self._ethtool(kernel, known), link.reading]
        if known.in_sysfs and not kernel.has_ethtool:
            readings.extend(self._from_files(nic))
        return readings

    def _from_files(self, nic: NicConfig) -> list[Reading]:
        texts = self._files.net_texts(nic.device)
        return [] if texts is None else [net_reading(texts, self.counters)]

    def _ethtool(self, kernel: PortKernel, known: _Known) -> Reading:
        asked = tuple(known.commands)
        answers: dict[int, bytes] = {}
        replies = kernel.ethtool([pn.ethtool_request(command, known.index) for command in asked])
        for command, answer in zip(asked, replies, strict=False):
            if answer.errno in _NEVER:
                known.commands.remove(command)
            elif not answer.errno and answer.bodies:
                answers[command] = answer.bodies[0]
        return pn.ethtool_reading(answers, self.counters)

    def _one_module(self, now_ns: int, ports: list[PortRow]) -> None:
        """Read the optics of the NIC whose turn it is and put them into its row."""
        if not self._kernels or not self._nics:
            return
        nic = self._nics[self._turn % len(self._nics)]
        self._turn += 1
        known, kernel = self._known[nic.nic], self._kernels[nic.netns]
        if not known.index or known.module is NO_MODULE or abs(now_ns - known.module_at_ns) < _MODULE_EVERY_NS:
            return
        known.module_at_ns = now_ns
        try:
            values = _module_values(kernel, known)
        except OSError as error:
            self.counters.add("refused", f"module.{_why(error)}")
            return
        for place, row in enumerate(ports):
            if row.nic == nic.nic and row.state != "absent":
                ports[place] = row._replace(values={**row.values, **values})

    def _rdma(self, nic: NicConfig, known: _Known, has_device: bool) -> list[tuple[int, Reading, bool]]:
        """Per RDMA port: number, reading, whether its link layer is InfiniBand."""
        if self._kernels and (nic.netns is not None or (has_device and not known.in_sysfs)):
            return []  # sysfs shows another namespace's devices
        known.look_in -= 1
        if known.look_in < 0:
            known.rdma, known.look_in = self._files.rdma_ports(nic.device), _LOOK_AGAIN
        texts = {port: self._files.rdma_texts(device, port) for device, port in known.rdma}
        if None in texts.values():
            known.look_in = 0
        return [(p, rdma_reading(t, self.counters), is_infiniband(t)) for p, t in texts.items() if t is not None]

    def _join(self, nic: NicConfig, device: list[Reading], ports: list[tuple[int, Reading, bool]]) -> list[PortRow]:
        kept = self._known[nic.nic].kept
        state: State = state_of(device)
        if not ports:
            return [PortRow(nic.nic, 1, state, combine(device, kept.setdefault(1, {})))]
        joined = []
        for number, rdma, infiniband in ports:
            # an InfiniBand port's own counters see all traffic; those of an Ethernet port see only RDMA's share
            order = [rdma, *device] if infiniband else [*device, rdma]
            values = combine(order, kept.setdefault(number, {}))
            joined.append(PortRow(nic.nic, number, state if device else rdma.state, values))
        return joined


def _module_values(kernel: PortKernel, known: _Known) -> dict[str, int | float]:
    fetch = partial(_fetch, kernel, known)
    if known.module is None:
        found = identify(fetch)
        known.module = known.module or found  # the fetch may have found out that there is no way to any module
    values = read_module(known.module, fetch).values if known.module else {}
    if not values and known.module is not NO_MODULE:
        known.module = None  # pulled out: what is plugged in next may be of another kind
    return values


def _fetch(kernel: PortKernel, known: _Known, window: Window) -> bytes:
    """Octets of the module; a driver without access to its module is not asked again."""
    if known.module is NO_MODULE:
        return b""
    request = pn.eeprom_request(
        known.index, page=window.page, offset=window.offset, length=window.length, address=window.address
    )
    answer = next(iter(kernel.ethtool([request])), None)
    if answer is not None and answer.errno in _NEVER:
        known.module = NO_MODULE
        return b""
    return pn.eeprom_data(answer.bodies[0]) if answer is not None and answer.bodies and not answer.errno else b""


def _why(error: OSError | FormatError) -> str:
    if isinstance(error, FormatError):
        return error.reason
    return errno.errorcode.get(error.errno or 0, type(error).__name__)
