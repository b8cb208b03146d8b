"""Where the archive lies, when it inserts, and what it may hold back."""

from __future__ import annotations

from dataclasses import dataclass, field

from sdfstream.archive.retention import Retention


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When an insert is due, and how much it may take at once.

    It is due as soon as a topic's waiting messages reach `rows`, `bytes` or `age_ms`. What has gathered by the time
    that the engine is free goes in together, up to the `most_…`: so an archive that is behind makes larger inserts,
    which cost less (0.42 M rows/s per core at 10,000 rows an insert, 1.8 at 100,000, 4.3 at 1,000,000; chDB).
    """

    rows: int = 200_000
    bytes: int = 64 << 20
    """Arrow bytes in memory."""
    age_ms: int = 1000
    """How long a message may wait in the archive before its insert begins: live rows are visible to SQL that late."""
    most_rows: int = 1_000_000
    most_bytes: int = 256 << 20
    most_messages: int = 50_000
    """Bounds the intent, which may have to name every one of them."""
    most_hours: int = 48
    """Hours of bus time in one insert. Every hour makes parts of its own, and each is an entry in the table's
    deduplication window: what may have to be inserted again, one insert per topic, must never fill it."""


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
    """Messages in memory and not yet inserted; with more than that nothing further is read."""
    retention: Retention | None = None
    """How long rows stay, by the wall clock; None: for good."""
    replay: bool = False
    """What is written is old: no row of this archive ages from now on, and one whose rows age is refused."""
    retry_ms: int = 200
    """Wait before an insert that failed for a reason that may pass is tried again; doubles, `retry_most_ms` at most."""
    retry_most_ms: int = 1000
    """So an engine that comes back is noticed that late at most."""
    spill_bytes: int = 2 << 30
    """Compressed rows on disk that wait for an engine that is away; then nothing further is read, and the bus keeps
    the rest."""
    spill_dir: str | None = None
    """Folder for them; None: ``<target>-spill`` for a folder target, ``./sdfstream-spill`` for a server."""
    kept_dir: str | None = None
    """Folder for batches whose insert failed for good, as Arrow files with the reason; None: ``<target>-kept`` for
    a folder target, ``./sdfstream-kept`` for a server."""
    kept_bytes: int = 2 << 30
    """With more than that kept, what fails for good is held and tried again like what fails for a while: an engine
    that refuses everything is no reason to fill the disk."""
