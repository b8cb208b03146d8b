"""One boot of the guest: a command in, its log, status and files out; a hard limit, and one retry of a failed boot."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.rdma.guest import scripts
from tests.rdma.guest.initramfs import BootFiles, boot_files
from tests.rdma.guest.packages import GuestUnavailableError, missing_tools

_MEMORY_MB = 1024
_TRANSLATED_MB = 512
"""For translated code, half of what QEMU takes by itself: it is locked as well (`_locked`)."""
_PLENTY_KB = 8 << 20
_CAP_IPC_LOCK = 14


class GuestFailedError(Exception):
    """The guest gave no result, twice; the message ends with the last lines of its console."""


@dataclass(frozen=True)
class GuestResult:
    """What a command in the guest left."""

    status: int
    log: str
    folder: Path
    """What the command wrote to ``/out``."""
    seconds: float
    """From start to power-off."""
    boots: int


def run(
    command: Sequence[str],
    out: Path,
    *,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    channels: Mapping[str, Path] | None = None,
    processors: int = 1,
    limit_s: float = 240,
) -> GuestResult:
    """Run `command` in a guest, in `folder` of this machine's files.

    Parameters
    ----------
    out : Path
        Empty folder; ``/out`` in the guest.
    channels : mapping of str to Path, optional
        Name to a unix socket of this machine, on which somebody listens: a port of that name in the guest leads to it.
    processors : int
        Emulated ones. With more than one all starts more slowly, most of all on a busy machine.
    limit_s : float
        After it the guest is killed and counts as failed: a boot is 3 s, and 60 s of a starved machine's.

    Raises
    ------
    GuestUnavailableError
        No guest can be made here.
    GuestFailedError
        Two boots left no status.
    """
    if missing := missing_tools():
        raise GuestUnavailableError(f"Debian packages are missing: {' '.join(missing)}; as root: scripts/setup rdma")
    files = boot_files()
    console = ""
    for boots in (1, 2):
        for old in out.iterdir():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        (out / "stage").write_text(scripts.stage(command, environment or {}, str(folder)))
        began_s = time.monotonic()
        console = _boot(files, out, channels or {}, processors, limit_s)
        if (out / "status").exists():
            log = (out / "log").read_text(errors="replace")
            return GuestResult(int((out / "status").read_text()), log, out, time.monotonic() - began_s, boots)
    log = (out / "log").read_text(errors="replace") if (out / "log").exists() else "no command was run"
    raise GuestFailedError(f"no result within {limit_s:g} s, twice\n{console[-3000:]}\n--- log\n{log[-3000:]}")


def _boot(files: BootFiles, out: Path, channels: Mapping[str, Path], processors: int, limit_s: float) -> str:
    """The console's text of one boot; the machine is killed when its time is over."""
    process = subprocess.Popen(
        qemu_command(files, out, channels, processors),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        text, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
        text += f"\nkilled after {limit_s:g} s".encode()
    except BaseException:
        process.kill()
        process.wait()
        raise
    return text.decode(errors="replace")


def qemu_command(files: BootFiles, out: Path, channels: Mapping[str, Path], processors: int = 1) -> list[str]:
    """QEMU's command line: emulated processors, this machine's root read-only and `out`, `channels`, no network.

    Never KVM: on a machine that is itself a guest the device may be there and start nothing. Addresses are not
    randomised: what was translated for one process serves the next one that runs the same libraries.
    """
    shared = "local,security_model=none,multidevs=remap"
    return [
        "qemu-system-x86_64",
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none", "-serial", "stdio"),
        *("-accel", f"tcg,tb-size={_TRANSLATED_MB}", "-M", "q35", "-cpu", "max"),
        *("-smp", str(processors), "-m", str(_MEMORY_MB), *_locked()),
        *("-kernel", str(files.kernel), "-initrd", str(files.initrd)),
        *("-append", "console=ttyS0 quiet panic=-1 random.trust_cpu=1 mitigations=off norandmaps"),
        *("-fsdev", f"{shared},id=r,path=/,readonly=on", "-device", "virtio-9p-pci,fsdev=r,mount_tag=root"),
        *("-fsdev", f"{shared},id=o,path={out}", "-device", "virtio-9p-pci,fsdev=o,mount_tag=out"),
        *("-device", "virtio-rng-pci"),
        *_ports(channels),
    ]


def _locked() -> list[str]:
    """Memory that stays where it is, where that is allowed and there is plenty: what is measured within is in ms."""
    lines = Path("/proc/self/status").read_text().splitlines() + Path("/proc/meminfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    allowed = int(fields.get("CapEff", "0"), 16) >> _CAP_IPC_LOCK & 1
    plenty = int(fields.get("MemAvailable", "0 kB").split()[0]) >= _PLENTY_KB
    return ["-overcommit", "mem-lock=on"] if allowed and plenty else []


def _ports(channels: Mapping[str, Path]) -> list[str]:
    ports = ["-device", "virtio-serial-pci"] if channels else []
    for name, path in channels.items():
        ports += ["-chardev", f"socket,id={name},path={path}", "-device", f"virtserialport,chardev={name},name={name}"]
    return ports
