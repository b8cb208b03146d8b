"""``python -m tests.rdma.guest build``: make the boot files. ``… run COMMAND …``: run a command in a guest, here."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.rdma.guest import boot
from tests.rdma.guest.initramfs import boot_files
from tests.rdma.guest.packages import GuestUnavailableError, missing_tools


def main(arguments: list[str]) -> int:
    """Exit code of the command; 2: no guest can be had."""
    try:
        if arguments[:1] == ["build"]:
            if missing := missing_tools():
                raise GuestUnavailableError(f"Debian packages are missing: {' '.join(missing)}")
            print(boot_files().initrd)
            return 0
        if arguments[:1] == ["run"] and arguments[1:]:
            with tempfile.TemporaryDirectory() as folder:
                done = boot.run(arguments[1:], Path(folder), folder=Path.cwd())
                print(done.log, end="")
                print(f"status {done.status} after {done.seconds:.1f} s", file=sys.stderr)
                return done.status
    except (GuestUnavailableError, boot.GuestFailedError) as error:
        print(error, file=sys.stderr)
        return 2
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
