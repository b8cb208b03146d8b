"""A lab for an ordinary user: the same command again, as root of a user namespace of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final, NoReturn

from sdfstream.runtime.output_io import progress

_ENTER: Final = ("unshare", "--user", "--map-root-user", "--")
_INSIDE: Final = "SDFSTREAM_DEMO_IN_USER_NAMESPACE"


def is_needed() -> bool:
    """Whether this process is root neither of its machine nor of a namespace that `enter` made."""
    return os.geteuid() != 0 and _INSIDE not in os.environ


def is_possible() -> bool:
    """Whether an ordinary user may become root of a user namespace here."""
    try:
        subprocess.run([*_ENTER, "true"], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def enter() -> NoReturn:
    """Become the same command as root of a user namespace: the same process, so that signals and its end stay its."""
    progress("not root: working in a user namespace")
    sys.stdout.flush()
    command = [*_ENTER, sys.executable, "-m", "sdfstream", *sys.argv[1:]]
    os.execvpe(command[0], command, {**os.environ, _INSIDE: "1"})
