"""Settings of the archive: its engine, the size of inserts, memory and disk it may use."""

from __future__ import annotations

from dataclasses import dataclass, field

from sdfstream.archive.retention import Retention


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When an insert is due, and how much it may take at once.

    It is due as soon as a topic's waiting messages reach `rows`, `bytes` or `age_ms`; fewer than `few_rows` wait up to
    `few_age_ms`, since an insert of one row costs as much CPU time as some 15,000 rows of a larger one (chDB: 12 to 17
    ms). Messages that wait when the engine is free go in together, up to the `most_…`: so an archive that is behind
    makes larger inserts, which cost less (0.42 M rows/s per core at 10,000 rows an insert, 1.8 at 100,000, 4.3 at
    1,000,000; chDB).
    """

    rows: int = 200_000
    bytes: int = 64 << 20
    """Arrow bytes in memory."""
    age_ms: int = 1000
    """Longest wait of a message before its insert begins, where `few_rows` or more wait; so late are they visible to
    SQL."""
    few_rows: int = 0
    """Rows that are not worth an insert of their own each `age_ms`; 0: any are."""
    few_age_ms: int = 5000
    """Longest wait of fewer than `few_rows` rows; at least `age_ms`."""
    most_rows: int = 1_000_000
    most_bytes: int = 256 << 20
    most_messages: int = 50_000
    """Bounds the intent, which may have to name every one of them."""
    most_hours: int = 48
    """Hours of bus time in one insert. Every hour makes table parts of its own, and each is an entry in the table's
    deduplication window: an insert that may have to be repeated must never fill it."""


LIVE = BatchLimits(rows=1_000_000, bytes=192 << 20, few_rows=15_000)
"""Age alone makes an insert due, up to hundreds of hosts: a second's delays of a path are one row of the seconds' table
if they come in one insert, five in five, and those have to be merged."""
REPLAY = BatchLimits(rows=1_000_000, bytes=256 << 20, age_ms=10_000)


@dataclass(frozen=True, slots=True)
class ArchiveConfig:
    """One archive: its engine, its limits, retention of rows, handling of inserts that fail."""

    target: str
    """Folder of an embedded chDB engine, or ``http://user:password@host:8123/database`` of a ClickHouse server."""
    bus_id: str
    """The bus that numbers the messages: one run of the in-process bus, a Kafka cluster, one replay of a recording.

    Deduplication tokens begin with it, because message numbers begin again at 0 with every in-process bus: two
    runs under one id would lose rows.
    """
    limits: BatchLimits = field(default=LIVE)
    pending_bytes: int = 512 << 20
    """Messages in memory and not yet inserted; with more than that nothing further is read."""
    retention: Retention | None = None
    """How long rows stay, by the archive's own time; None: for good."""
    replay: bool = False
    """The rows to write are old: no row of this archive expires from now on; one with expiring rows is refused."""
    retry_ms: int = 200
    """Wait before an insert that failed for a reason that may pass is tried again; doubles, `retry_most_ms` at most."""
    retry_most_ms: int = 1000
    """Upper bound of the wait, thus of the delay until an engine that is back is noticed."""
    spill_bytes: int = 2 << 30
    """Compressed rows on disk while the engine is away; with more nothing further is read, and the rest waits on the
    bus."""
    spill_dir: str | None = None
    """Folder for them; None: ``<target>-spill`` for a folder target, ``./sdfstream-spill`` for a server."""
    kept_dir: str | None = None
    """Folder of failed inserts, refused by the engine for good, as Arrow files with the reason; None: ``<target>-kept``
    for a folder target, ``./sdfstream-kept`` for a server."""
    kept_bytes: int = 2 << 30
    """Most bytes of failed inserts on disk; beyond it they are held and tried again like those that may pass, since an
    engine that refuses everything must not fill the disk."""
