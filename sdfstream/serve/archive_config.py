"""The archive of a live pipeline, as the settings describe it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdfstream.archive.config import LIVE, ArchiveConfig

if TYPE_CHECKING:
    from sdfstream.settings import Settings


def live_archive(settings: Settings, bus_id: str) -> ArchiveConfig:
    """The server of the settings, or chDB in the data folder; spill and failed inserts go to the data folder.

    `bus_id` names the bus for deduplication (`ArchiveConfig`).
    """
    return ArchiveConfig(
        target=settings.archive or str(settings.data / "archive"),
        bus_id=bus_id,
        limits=LIVE,
        retention=settings.retention,
        spill_dir=str(settings.data / "archive-spill"),
        kept_dir=str(settings.data / "archive-kept"),
    )
