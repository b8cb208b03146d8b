"""Compares the hardware clocks of a host's NICs with its system clock: devices, ioctls, which clock is whose.

A NIC's clock is ``/dev/ptpN``; N comes from the driver (ETHTOOL_GET_TS_INFO), which also answers for a bond or a VLAN,
else from sysfs. NICs may share one clock, and come and go. Reading blocks for some microseconds a NIC, with an odd
driver for much longer: it belongs into a thread of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from sdfstream.probes import phc
from sdfstream.probes.config import HostConfig, NicConfig
from sdfstream.probes.net.netns_io import inside
from sdfstream.probes.virtual_clock import Clock
from sdfstream.stats import Counters

_SIOCETHTOOL: Final = 0x8946
_ETHTOOL_GET_TS_INFO: Final = 0x41
_TS_INFO: Final = struct.Struct("=IIi8I")
"""``struct ethtool_ts_info``: cmd, so_timestamping, phc_index, tx_types and 3 reserved, rx_filters and 3 reserved."""
_NEVER: Final = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS)
"""Errors after which a method is not tried again while the device stays open."""
LOOK_NS: Final = 10_000_000_000
"""Pause between two looks which NIC has which clock."""


class Device(Protocol):
    """An open ``/dev/ptpN``."""

    def ioctl(self, number: int, buffer: bytearray) -> None:
        """Hand `buffer` to the kernel, which writes into it; raises OSError."""

    def close(self) -> None:
        """Close it."""


class CharacterDevice:
    """The real one."""

    def __init__(self, index: int) -> None:
        self._fd = os.open(f"/dev/ptp{index}", os.O_RDONLY | os.O_CLOEXEC)

    def ioctl(self, number: int, buffer: bytearray) -> None:
        """Hand `buffer` to the kernel."""
        fcntl.ioctl(self._fd, number, buffer, True)

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)


def clock_index(nic: NicConfig) -> int | None:
    """N of the NIC's ``/dev/ptpN``; None when it has no clock, or is not there just now."""
    index = None
    with contextlib.suppress(OSError):
        index = inside(nic.netns, lambda: _driver_index(nic.device))
    if index is None and nic.netns is None:  # sysfs shows our own namespace's devices only
        index = _sysfs_index(nic.device)
    return index


def _driver_index(device: str) -> int | None:
    """The PHC index by the driver; raises OSError when it has none."""
    buffer = ctypes.create_string_buffer(_TS_INFO.pack(_ETHTOOL_GET_TS_INFO, *([0] * 10)), _TS_INFO.size)
    asked = struct.pack("16sP16x", device.encode()[:15], ctypes.addressof(buffer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        fcntl.ioctl(sock.fileno(), _SIOCETHTOOL, asked)
    index: int = _TS_INFO.unpack(buffer.raw)[2]
    return index if index >= 0 else None


def _sysfs_index(device: str, root: str = "/sys") -> int | None:
    try:
        found = sorted(p.name for p in (Path(root) / "class/net" / device / "device/ptp").iterdir())
    except OSError:
        return None
    numbers = [int(name[3:]) for name in found if name.startswith("ptp") and name[3:].isdigit()]
    return numbers[0] if numbers else None


@dataclass(slots=True)
class _Open:
    device: Device
    methods: list[phc.ReadMethod]
    """Those not yet found wanting, best first."""


class HostClocks:
    """The hardware clocks of one host's NICs.

    Parameters
    ----------
    host : HostConfig
    clock : Clock
        The host's (virtual) clock. A NIC's stamps go through it as well, here as in probes, so the two agree.
    index_of, open_device : callable, optional
        Which ``/dev/ptpN`` is a NIC's, and how it is opened: a seam for machines without one.
    now_ns : callable, optional
        Steady clock.
    """

    def __init__(
        self,
        host: HostConfig,
        clock: Clock,
        *,
        index_of: Callable[[NicConfig], int | None] = clock_index,
        open_device: Callable[[int], Device] = CharacterDevice,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.counters = Counters("host-clock")
        self._host = host
        self._clock = clock
        self._index_of = index_of
        self._open_device = open_device
        self._now_ns = now_ns
        self._planes: Mapping[str, str | None] = {nic.nic: nic.plane for nic in host.nics}
        self._index: dict[str, int] = {}
        self._open: dict[int, _Open] = {}
        self._look_at = -LOOK_NS
        self._seq = 0

    @property
    def known(self) -> int:
        """NICs with a clock, as of the last look."""
        return len(self._index)

    def read(self) -> pa.RecordBatch | None:
        """One row of ``sdf.raw.probe.v1`` per NIC whose clock could be read; None when there is none.

        Never raises: what cannot be read is counted.
        """
        if self._now_ns() - self._look_at >= LOOK_NS:
            self._look()
        read = {index: self._sample(index) for index in sorted(set(self._index.values()))}
        found = {nic: sample for nic, index in self._index.items() if (sample := read[index]) is not None}
        if not found:
            return None
        self._seq += 1
        self.counters.add("samples", n=len(found))
        return phc.rows(self._host.host, {nic: self._shown(s) for nic, s in found.items()}, self._planes, self._seq)

    def close(self) -> None:
        """Close all devices; a later `read` opens them again."""
        for index in list(self._open):
            self._give_up(index)
        self._look_at = -LOOK_NS

    def _look(self) -> None:
        self._look_at = self._now_ns()
        self._index = {nic.nic: n for nic in self._host.nics if (n := self._index_of(nic)) is not None}
        for index in set(self._open) - set(self._index.values()):
            self._give_up(index)

    def _sample(self, index: int) -> phc.Sample | None:
        """A burst of one clock, by the best method that works."""
        try:
            opened = self._opened(index)
        except OSError as error:
            self._refuse("open", error)
            return None
        for method in list(opened.methods):
            answer = phc.request(method)
            try:
                opened.device.ioctl(method.number, answer)
            except OSError as error:
                if error.errno in _NEVER:
                    opened.methods.remove(method)
                    continue
                self._refuse(method.name, error)
                if error.errno in (errno.ENODEV, errno.EBADF):
                    self._give_up(index)  # the NIC is gone; whatever comes back is looked for anew
                    return None
                continue  # this method is busy now; a worse one may do
            sample = phc.best(phc.samples(method, answer))
            if sample is None:
                self.counters.add("refused", f"{method.name}.no-sample")
            return sample
        return None

    def _opened(self, index: int) -> _Open:
        opened = self._open.get(index)
        if opened is None:
            device = self._open_device(index)
            opened = self._open[index] = _Open(device, list(phc.METHODS))
            answer = phc.request(phc.CAPABILITIES)
            with contextlib.suppress(OSError):
                device.ioctl(phc.CAPABILITIES.number, answer)
            if not phc.offers_precise(answer):
                opened.methods.remove(phc.PRECISE)
        return opened

    def _give_up(self, index: int) -> None:
        opened = self._open.pop(index)
        with contextlib.suppress(OSError):
            opened.device.close()

    def _refuse(self, what: str, error: OSError) -> None:
        self.counters.add("refused", f"{what}.{errno.errorcode.get(error.errno or 0, 'error').lower()}")

    def _shown(self, sample: phc.Sample) -> phc.Sample:
        return phc.Sample(*self._clock.reading(np.array(sample, dtype=np.int64)).tolist())
