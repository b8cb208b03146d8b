"""RDMA devices below ``ROOT/sys/class/infiniband``: ports, GID tables, counters. Whatever is odd is left out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sdfstream.probes.rdma.gids import GidEntry, gid_entry
from sdfstream.probes.rdma.hw_counters import common_counters
from sdfstream.stats import Counters

_MOST_BYTES: Final = 4096
_MOST_GIDS: Final = 1024
_EMPTY_RUN: Final = 32
"""So many empty entries one after another end a table: mlx5 has 256 of them, others 1024, and each is a file."""


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """One port of a device."""

    device: str
    port: int
    state: str
    """``ACTIVE``, ``DOWN``, …; ``unknown`` where sysfs says none."""
    link_layer: str
    gids: tuple[GidEntry, ...]
    counters: dict[str, int]
    """By common name (`hw_counters`)."""


def rdma_ports(root: str, refused: Counters) -> list[RdmaPort]:
    """All ports of all devices; an empty list where there is none."""
    devices = Path(root, "sys/class/infiniband")
    found = [
        _port(devices / device / "ports" / number, device, int(number), refused)
        for device in _names(devices)
        for number in _names(devices / device / "ports")
        if number.isascii() and number.isdigit()
    ]
    return sorted(found, key=lambda port: (port.device, port.port))


def has_core(root: str) -> bool:
    """Whether the kernel has an RDMA core."""
    return Path(root, "sys/class/infiniband").is_dir()


def has_user_access(root: str) -> bool:
    """Whether programs can open a device."""
    return any(name.startswith("uverbs") for name in _names(Path(root, "dev/infiniband")))


def opened_by_programs(root: str) -> frozenset[str]:
    """Devices that programs can open now; one that its driver takes away is missing here at once.

    A driver without hot unplug (Soft-RoCE) waits until nobody has the device open, and shows it elsewhere meanwhile.
    """
    folder = Path(root, "sys/class/infiniband_verbs")
    return frozenset((_text(folder / name / "ibdev") or "").strip() for name in _names(folder)) - {""}


def firmware(device: str, root: str = "/") -> str:
    """A device's firmware as it says; empty: not known."""
    return (_text(Path(root, "sys/class/infiniband", device, "fw_ver")) or "").strip()


def _port(folder: Path, device: str, number: int, refused: Counters) -> RdmaPort:
    layer = (_text(folder / "link_layer") or "unknown").strip()
    state = (_text(folder / "state") or "").partition(":")[2].strip() or "unknown"
    texts = {name: _text(folder / "hw_counters" / name) for name in _names(folder / "hw_counters")}
    return RdmaPort(device, number, state, layer, _gids(folder, layer), common_counters(texts, refused))


def _gids(folder: Path, layer: str) -> tuple[GidEntry, ...]:
    found, last = [], 0
    indices = sorted(int(name) for name in _names(folder / "gids") if name.isascii() and name.isdigit())
    for index in indices[:_MOST_GIDS]:
        if index - last > _EMPTY_RUN:
            break
        gid = _text(folder / "gids" / str(index)) or ""
        if not gid.strip("0:\n "):
            continue
        last = index
        kind, netdev = (_text(folder / "gid_attrs" / what / str(index)) for what in ("types", "ndevs"))
        entry = gid_entry(index, gid, kind, netdev, infiniband=layer == "InfiniBand")
        if entry is not None:
            found.append(entry)
    return tuple(found)


def _text(path: Path) -> str | None:
    """A small file's text; None: not there, or it refuses to be read (empty GID entries do, with EINVAL)."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("ascii", "replace")
    except OSError:
        return None


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []
