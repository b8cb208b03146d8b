"""The guest's boot files: an uncompressed kernel and a small initramfs, made once and cached by kernel version.

A kernel that QEMU enters by its ELF header need not be decompressed in emulation, which saves three seconds a boot.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import lzma
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.rdma.guest import modules, packages, scripts
from tests.rdma.guest.packages import GuestUnavailableError

CACHE = Path(__file__).resolve().parents[3] / ".cache" / "rdma"
_XZ = bytes.fromhex("fd377a585a00")
_ELF = b"\x7fELF"


@dataclass(frozen=True)
class BootFiles:
    """What QEMU boots."""

    kernel: Path
    initrd: Path


def boot_files() -> BootFiles:
    """The cached boot files, made first where there are none.

    Raises
    ------
    GuestUnavailableError
        Something that they are made of cannot be had here.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with _lock(CACHE / "lock"):
        makers = (Path(str(module.__file__)) for module in (modules, scripts))
        recipe = hashlib.sha256(b"".join(file.read_bytes() for file in (Path(__file__), *makers)))
        home = CACHE / recipe.hexdigest()[:16]
        if not (home / "initrd").exists():
            _build(home)
        return BootFiles(home / "vmlinux", home / "initrd")


def _build(home: Path) -> None:
    unpacked = CACHE / "unpacked"
    for old in CACHE.iterdir():
        if old.is_dir() and old != unpacked:
            shutil.rmtree(old)
    if not (unpacked / "complete").exists():  # a mirror drops kernels: what is here once stays
        shutil.rmtree(unpacked, ignore_errors=True)
        packages.unpack(packages.kernel_package(), unpacked)
        packages.unpack("busybox-static", unpacked)
        (unpacked / "complete").touch()
    image = next((unpacked / "boot").glob("vmlinuz-*"))
    version = image.name.removeprefix("vmlinuz-")
    home.mkdir()
    (home / "vmlinux").write_bytes(uncompressed(image.read_bytes()))
    loaded = modules.in_order(unpacked, version)
    archive = newc(
        [
            *((name, stat.S_IFDIR | 0o755, b"", (0, 0)) for name in ("bin", "dev", "modules", *scripts.FOLDERS)),
            ("dev/console", stat.S_IFCHR | 0o600, b"", (5, 1)),
            ("bin/busybox", stat.S_IFREG | 0o755, (unpacked / "bin" / "busybox").read_bytes(), (0, 0)),
            *(
                (f"modules/{number:03d}.ko", stat.S_IFREG | 0o644, file.read_bytes(), (0, 0))
                for number, file in enumerate(loaded)
            ),
            ("init", stat.S_IFREG | 0o755, scripts.INIT.encode(), (0, 0)),
        ]
    )
    new = home / "initrd.new"
    new.write_bytes(archive)
    new.replace(home / "initrd")


def uncompressed(image: bytes) -> bytes:
    """The ELF kernel inside a bzImage that is packed by xz."""
    start = image.find(_XZ)
    while start >= 0:
        with contextlib.suppress(lzma.LZMAError):
            kernel = lzma.LZMADecompressor().decompress(image[start:])
            if kernel.startswith(_ELF):
                return kernel
        start = image.find(_XZ, start + 1)
    raise GuestUnavailableError("the kernel image holds no xz-packed ELF kernel")


def newc(entries: list[tuple[str, int, bytes, tuple[int, int]]]) -> bytes:
    """A cpio archive of the form that the kernel unpacks: (name, mode, content, (major, minor)) each."""
    made = bytearray()
    for inode, (name, mode, content, device) in enumerate([*entries, ("TRAILER!!!", 0, b"", (0, 0))], 1):
        fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0)
        made += b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        made += bytes(-len(made) % 4) + content
        made += bytes(-len(made) % 4)
    return bytes(made)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
