"""The file ``<data>/run.json``, by which a verb finds the pipeline that runs on a data folder.

The pipeline writes it when it is ready and removes it when it ends. A file left behind by a killed pipeline is
recognised: its process is gone, or its number now belongs to a process that started later.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.errors import FormatError

FILE: Final = "run.json"
SOCKET: Final = "sql.sock"
"""The socket beside it, at which the data folder's owner asks."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Process and SQL address of a running pipeline."""

    pid: int
    http_port: int
    """Port of the SQL front on loopback."""
    http_host: str = "127.0.0.1"
    database: str = "sdf"
    started: str = ""
    """Start time of the process in the kernel's own units, to tell it from a later one with the same number."""

    @property
    def url(self) -> str:
        """The target for `engine_io.Engine.open`."""
        host = f"[{self.http_host}]" if ":" in self.http_host else self.http_host
        return f"http://{host}:{self.http_port}/{self.database}"


def write_endpoint(data: str | Path, http_port: int, *, http_host: str = "127.0.0.1", database: str = "sdf") -> Path:
    """Announce this process as the pipeline of the data folder `data`; returns the file."""
    folder = Path(data)
    folder.mkdir(parents=True, exist_ok=True)
    endpoint = Endpoint(os.getpid(), http_port, http_host, database, _started(os.getpid()) or "")
    unfinished = folder / f".{FILE}.{os.getpid()}"
    unfinished.write_text(json.dumps(asdict(endpoint)) + "\n", encoding="utf-8")
    unfinished.replace(folder / FILE)
    return folder / FILE


def read_endpoint(data: str | Path) -> Endpoint | None:
    """The pipeline that runs on `data`; None when none does (no file, not ours to read, or its process is gone)."""
    try:
        found: Any = strict_json.loads((Path(data) / FILE).read_text(encoding="utf-8"))
        endpoint = Endpoint(
            pid=int(found["pid"]),
            http_port=int(found["http_port"]),
            http_host=str(found.get("http_host", "127.0.0.1")),
            database=str(found.get("database", "sdf")),
            started=str(found.get("started", "")),
        )
    except (OSError, FormatError, ValueError, TypeError, KeyError, AttributeError):
        return None
    started = _started(endpoint.pid)
    if started is None or (endpoint.started and started != endpoint.started):
        return None
    return endpoint


def remove_endpoint(data: str | Path) -> None:
    """Take back what `write_endpoint` announced, unless another process has announced itself since."""
    with contextlib.suppress(OSError, FormatError, ValueError, TypeError, AttributeError):
        path = Path(data) / FILE
        if strict_json.loads(path.read_text(encoding="utf-8")).get("pid") == os.getpid():
            path.unlink()


def _started(pid: int) -> str | None:
    """Start time of a process (field 22 of /proc/PID/stat); "" where there is no /proc; None when it is gone."""
    if not Path("/proc/self/stat").exists():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            return ""
        return ""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
