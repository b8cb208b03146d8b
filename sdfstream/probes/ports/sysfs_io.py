"""sysfs below a root: texts of a net device's and of an RDMA port's folder, and which RDMA port is whose."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import Final

from sdfstream.errors import FormatError
from sdfstream.probes.ports.sysfs import NET_FILES, RDMA_FILES

_MOST_BYTES: Final = 4096
_NOT_THERE: Final = (errno.ENOENT, errno.ENOTDIR)


class PortFiles:
    """Reads small files below ``ROOT/sys/class``; whatever is odd about a file is in the text or None."""

    def __init__(self, root: str) -> None:
        self._net = os.path.join(root, "sys/class/net")  # noqa: PTH118  plain strings: read hundreds of times a second
        self._rdma = os.path.join(root, "sys/class/infiniband")  # noqa: PTH118

    def net_texts(self, device: str) -> dict[str, str | None] | None:
        """Texts of `NET_FILES`; None when the device has no folder."""
        return _texts(f"{self._net}/{_plain(device)}", NET_FILES)

    def rdma_texts(self, device: str, port: int) -> dict[str, str | None] | None:
        """Texts of `RDMA_FILES` of one port; None when it has no folder."""
        return _texts(f"{self._rdma}/{_plain(device)}/ports/{port}", RDMA_FILES)

    def is_device(self, device: str, index: int, address: bytes) -> bool:
        """Whether the folder of that name shows this very device (sysfs may be of another namespace)."""
        folder = f"{self._net}/{_plain(device)}"
        shown = (_text(f"{folder}/address") or "").strip().replace(":", "")
        return (_text(f"{folder}/ifindex") or "").strip() == str(index) and shown == address.hex()

    def rdma_ports(self, device: str) -> tuple[tuple[str, int], ...]:
        """RDMA ports (device, number) of a net device, or all ports of an RDMA device of that name.

        A port belongs to the net device that its GID table names (``gid_attrs/ndevs``); where the table names
        none (InfiniBand), to the one below the same PCI function (``device/net``) with that ``dev_port``.
        """
        _plain(device)
        by_name = _numbers(f"{self._rdma}/{device}/ports")
        if by_name:
            return tuple((device, port) for port in by_name)
        for rdma in _names(self._rdma):
            for port in _numbers(f"{self._rdma}/{rdma}/ports"):
                if self._is_port_of(f"{self._rdma}/{rdma}", port, device):
                    return ((rdma, port),)
        return ()

    def bonded(self, device: str) -> tuple[str, ...]:
        """Devices below a bond, by name; empty for anything else."""
        words = (_text(f"{self._net}/{_plain(device)}/bonding/slaves") or "").split()
        return tuple(sorted(word for word in words if "/" not in word and len(word) < 64))[:16]

    def _is_port_of(self, folder: str, port: int, device: str) -> bool:
        gids = f"{folder}/ports/{port}/gid_attrs/ndevs"
        named = {(_text(f"{gids}/{gid}") or "").strip() for gid in _names(gids)[:16]} - {""}
        if named:
            return device in named
        if device not in _names(f"{folder}/device/net"):
            return False
        ports = _numbers(f"{folder}/ports")
        own = (_text(f"{folder}/device/net/{device}/dev_port") or "0").strip()
        return len(ports) == 1 or own == str(port - 1)


def _texts(folder: str, files: Iterable[str]) -> dict[str, str | None] | None:
    texts: dict[str, str | None] = {}
    for file in files:
        try:
            texts[file] = _read(f"{folder}/{file}")
        except OSError as error:
            if error.errno not in _NOT_THERE:
                texts[file] = None
    if not texts and not os.path.isdir(folder):  # noqa: PTH112
        return None
    return texts


def _text(path: str) -> str | None:
    try:
        return _read(path)
    except OSError:
        return None


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(descriptor, _MOST_BYTES).decode("ascii", "replace")
    finally:
        os.close(descriptor)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return []


def _numbers(folder: str) -> list[int]:
    return sorted(int(name) for name in _names(folder) if name.isascii() and name.isdigit() and len(name) < 6)


def _plain(device: str) -> str:
    if not device or "/" in device or device in (".", "..") or "\0" in device:
        raise FormatError("device-name", device[:40])
    return device
