"""Inserts that failed for good, kept as Arrow files until they can be inserted after all.

Each file is one Arrow IPC stream of the rows as they were to be inserted; its schema's metadata says the table, the
deduplication token and the engine's reason, so that any Arrow reader can look at it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from sdfstream.archive.config import ArchiveConfig
from sdfstream.archive.packing import current
from sdfstream.archive.target import Folder, parse


@dataclass(frozen=True, slots=True)
class KeptInsert:
    """One insert read back from its file."""

    path: Path
    table: str
    token: str
    reason: str
    rows: pa.Table


class Kept:
    """The folder of kept inserts; made when the first one comes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, config: ArchiveConfig) -> Kept:
        """The folder that `config` names or implies."""
        if config.kept_dir is not None:
            return cls(Path(config.kept_dir))
        target = parse(config.target)
        return cls(Path(f"{target.path.rstrip('/')}-kept" if isinstance(target, Folder) else "sdfstream-kept"))

    def keep(self, table: str, rows: pa.Table, token: str, reason: str) -> Path:
        """Write one insert; the same table and token overwrite their file. Raises OSError when the disk refuses."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{table}-{hashlib.blake2s(token.encode(), digest_size=8).hexdigest()}.arrows"
        part = path.with_suffix(".part")
        schema = rows.schema.with_metadata({"sdf_table": table, "sdf_token": token, "sdf_reason": reason})
        with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            writer.write_table(rows.replace_schema_metadata(schema.metadata))
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(path)
        return path

    def files(self) -> list[Path]:
        """The kept inserts, in no order that matters: each carries its own token."""
        return sorted(self.folder.glob("*.arrows")) if self.folder.is_dir() else []

    @staticmethod
    def read(path: Path) -> KeptInsert:
        """One kept insert. Raises pyarrow.ArrowInvalid, KeyError or OSError when the file is not one."""
        with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
            rows = reader.read_all()
        meta = {k.decode(): v.decode() for k, v in (rows.schema.metadata or {}).items()}
        table, token, reason = meta["sdf_table"], meta["sdf_token"], meta["sdf_reason"]
        rows = current(table, rows.replace_schema_metadata(None))
        return KeptInsert(path, table, token, reason, rows)
