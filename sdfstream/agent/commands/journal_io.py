"""The journal's file: written whole beside the old one, made durable, then renamed over it, so one is always whole."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.errors import FormatError, UnavailableError

_MOST_BYTES: Final = 64 << 20


class JournalFile:
    """One file, readable by its owner alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Any] | None:
        """What was written last; None when there is no file.

        Raises
        ------
        FormatError
            ``journal``: it cannot be read; it has been set aside under the same name with ``.unreadable``.
        UnavailableError
            The folder or the file cannot be read or written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnavailableError(f"control_state {self.path}: {error.strerror}") from error
        try:
            data = strict_json.loads(content, most_bytes=_MOST_BYTES)
        except FormatError:
            data = None
        if isinstance(data, dict):
            return data
        self.set_aside()
        raise FormatError("journal", f"{self.path} is no journal")

    def set_aside(self) -> None:
        """Keep what cannot be read for a person to look at."""
        with contextlib.suppress(OSError):
            self.path.replace(self.path.with_name(self.path.name + ".unreadable"))

    def write(self, data: Mapping[str, Any]) -> None:
        """Replace the content; durable when this returns. May take milliseconds.

        Raises
        ------
        OSError
            It could not be written; the old content is still there.
        """
        fresh = self.path.with_name(self.path.name + ".new")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(json.dumps(data, separators=(",", ":")).encode())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def machine_run() -> str:
    """Names the machine's run: steady times of another run mean nothing."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
