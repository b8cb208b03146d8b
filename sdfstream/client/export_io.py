"""A topic, table or view as a Parquet file: as large as it may be, whole or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from sdfstream.client.choice import Choice
from sdfstream.client.fabric_io import Fabric
from sdfstream.errors import ConfigError, UnavailableError

Progress = Callable[[str, int], None]
"""Called with a name and the rows read of it so far."""


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file that was written."""

    name: str
    path: Path
    rows: int
    size_bytes: int
    refused: dict[str, int]
    """What could not be read, by reason."""


def export(
    fabric: Fabric, names: list[str], out: Path, choice: Choice, *, replace: bool, progress: Progress
) -> Iterator[ExportedFile]:
    """Write ``<out>/<name>.parquet`` for each of `names`, one after the other.

    Raises
    ------
    ConfigError
        A name is not known, a file is there already, or a name has no column for what is chosen: before anything is
        written.
    UnavailableError
        A file cannot be written.
    """
    for name in names:
        fabric.check_name(name)
        fabric.check_choice(name, choice)
        if not replace and (out / f"{name}.parquet").exists():
            raise ConfigError(f"{out / name}.parquet is there already; name another folder, or give --replace")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"{out} cannot be made: {error.strerror}") from error
    for name in names:
        yield _write(fabric, name, out / f"{name}.parquet", choice, progress)


def _write(fabric: Fabric, name: str, path: Path, choice: Choice, progress: Progress) -> ExportedFile:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    rows = 0

    def seen(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        nonlocal rows
        said_s = time.monotonic()
        for frame in frames:
            rows += frame.height
            if time.monotonic() - said_s >= 1.0:
                said_s = time.monotonic()
                progress(name, rows)
            yield frame

    try:
        # opened here: polars, given the path, may open it in a thread of its own after it has raised what went wrong
        with unfinished.open("wb") as file:
            fabric.scan(name, choice=choice, seen=seen).sink_parquet(file, compression="zstd", maintain_order=True)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise UnavailableError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return ExportedFile(name, path, rows, path.stat().st_size, fabric.refused(name))
