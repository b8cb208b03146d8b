"""A job's files in the drop directory: one per host while the job runs, written as a whole or not at all.

Control sockets lie in a folder of their own under the folder for temporary files, since a socket's name may not be
long. The folder also holds the lock that shows whether the job's process lives, however it ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.errors import ConfigError, FormatError
from sdfstream.records.job import FILE_VERSION, JobShard

_PREFIX: Final = "sdfjob-"


def shard_file(jobs_dir: Path, job: str, host: str) -> Path:
    """Where a job's file of one host is."""
    return jobs_dir / f"{job}@{host}.json"


class JobFiles:
    """The files of one job's process.

    Raises
    ------
    ConfigError
        A job of that name is running, with this drop directory.
    """

    def __init__(self, jobs_dir: Path, job: str) -> None:
        jobs_dir.mkdir(parents=True, exist_ok=True)
        if is_running(jobs_dir, job):
            raise ConfigError(f"a job named {job!r} is running; stop it first, or choose another name")
        remove_leftovers(jobs_dir, job)
        self._jobs_dir = jobs_dir
        self._job = job
        self._written: set[Path] = set()
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def socket(self, host: str) -> Path:
        """Control socket of a host's share."""
        return self.folder / host

    def write(self, shard: JobShard, block: int) -> None:
        """Write, or replace, a host's file."""
        path = shard_file(self._jobs_dir, shard.job, shard.host)
        new = path.with_suffix(".new")
        new.write_text(json.dumps({"version": FILE_VERSION, "block": block, **shard.as_data()}))
        new.replace(path)
        self._written.add(path)

    def close(self) -> None:
        """Take everything away."""
        for path in self._written:
            path.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def shards(jobs_dir: Path) -> dict[str, list[dict[str, Any]]]:
    """The emulated jobs' files in the drop directory, by job; unreadable and foreign files are left out."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(jobs_dir.glob("*.json")):
        try:
            shard = strict_json.loads(path.read_text())
        except (OSError, ValueError, FormatError):
            continue
        if isinstance(shard, dict) and isinstance(shard.get("block"), int) and isinstance(shard.get("control"), str):
            found.setdefault(str(shard.get("job")), []).append(shard)
    return found


def is_running(jobs_dir: Path, job: str) -> bool:
    """Whether the process of a job lives."""
    return any(_is_locked(Path(shard["control"]).parent) for shard in shards(jobs_dir).get(job, []))


def free_block(jobs_dir: Path, blocks: Iterable[int]) -> int:
    """The first block that no running job has.

    Raises
    ------
    ConfigError
        All are taken.
    """
    listed = shards(jobs_dir) if jobs_dir.is_dir() else {}
    taken = {p["block"] for job, its in listed.items() if is_running(jobs_dir, job) for p in its}
    for block in blocks:
        if block not in taken:
            return block
    raise ConfigError("too many jobs at once: no block of source ports is free")


def remove_leftovers(jobs_dir: Path, job: str) -> None:
    """Remove the files of a run that died."""
    for shard in shards(jobs_dir).get(job, []):
        folder = Path(shard["control"]).parent
        if folder.name.startswith(_PREFIX) and not _is_locked(folder):
            shutil.rmtree(folder, ignore_errors=True)
        shard_file(jobs_dir, job, str(shard.get("host"))).unlink(missing_ok=True)


def _is_locked(folder: Path) -> bool:
    try:
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
