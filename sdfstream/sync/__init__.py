"""One timeline: per-edge floors, clock states, corrected one-way delay."""

from sdfstream.sync.config import SyncConfig
from sdfstream.sync.stage import SyncStage

__all__ = ["SyncConfig", "SyncStage"]
