"""Where the archive lies and when it inserts."""

from __future__ import annotations

from dataclasses import dataclass, field

from sdfstream.archive.retention import Retention


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """An insert is due as soon as a topic's waiting messages reach one of these.

    Small inserts cost: 0.42 M rows/s per core at 10,000 rows an insert, 1.8 at 100,000, 4.3 at 1,000,000 (chDB).
    """

    rows: int = 200_000
    bytes: int = 64 << 20
    """Arrow bytes in memory."""
    age_ms: int = 1000
    """How long a message may wait in the archive before its insert begins: live rows are visible to SQL that late."""


LIVE = BatchLimits()
REPLAY = BatchLimits(rows=1_000_000, bytes=256 << 20, age_ms=10_000)


@dataclass(frozen=True, slots=True)
class ArchiveConfig:
    """One archive: its engine, its limits, what happens to old rows and to inserts that fail."""

    target: str
    """Folder of an embedded chDB engine, or ``http://user:password@host:8123/database`` of a ClickHouse server."""
    bus_id: str
    """Which bus numbers the messages: one run of the in-process bus, a Kafka cluster, one replay of a recording.

    Deduplication tokens begin with it, because message numbers begin again at 0 with every in-process bus: two
    runs under one id would lose rows.
    """
    limits: BatchLimits = field(default=LIVE)
    pending_bytes: int = 512 << 20
    """`Archive.add` waits while more than this lies in memory, not yet inserted."""
    retention: Retention | None = None
    """How long rows stay, by the wall clock; None: for good."""
    replay: bool = False
    """What is written is old: no row of this archive ages from now on, and one whose rows age is refused."""
    retries: int = 6
    """Further attempts after an insert failed for a reason that may pass (server away, too many parts, memory)."""
    retry_ms: int = 200
    """Wait before the first further attempt; doubles each time, 10 s at most."""
    kept_dir: str | None = None
    """Folder for batches whose insert failed for good, as Arrow files with the reason; None: ``<target>-kept`` for
    a folder target, ``./sdfstream-kept`` for a server."""
