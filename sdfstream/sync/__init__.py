"""One timeline: what packets prove about clocks, clock states, corrected one-way delay. Start at `stage`."""

from sdfstream.sync.config import SyncConfig
from sdfstream.sync.edge_stage import SyncEdgeStage
from sdfstream.sync.mesh_stage import SyncMeshStage
from sdfstream.sync.stage import SyncStage

__all__ = ["SyncConfig", "SyncEdgeStage", "SyncMeshStage", "SyncStage"]
