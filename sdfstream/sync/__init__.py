"""One timeline: what packets prove about clocks, clock states, corrected one-way delay.

Read `stage` first; a tick's work is in two halves that may run in processes of their own (`edge_stage`, `mesh_stage`):

===================  ===============================================================================================
rows in              `intake` (accepted or refused), `registry` (numbers for names), `bustime` (ticks, lag)
work on sessions     `edgework` its order; `hosts` sessions and their delay windows; `blocks` a tick's minima and
                     moments; `edge_filter` what each session knows by itself; `breaks` steps and reroutes;
                     `reduce` sessions to one edge per pair of clocks
work on all clocks   `meshwork` its order; `gather` edges of all processes; `mesh` least squares over the clocks;
                     `clocks` their states and status; `wander` how fast they wander; `drift` how fast they warm up;
                     `reference` what offsets are relative to; `smoother` smoothed rows, 2-4 s back; `utc` the tie to
                     UTC
rows out             `estimates` stamps corrected; `delays` windows of one-way delay; `publish` record batches
between processes    `wire`
===================  ===============================================================================================
"""

from sdfstream.sync.config import SyncConfig
from sdfstream.sync.edge_stage import SyncEdgeStage
from sdfstream.sync.mesh_stage import SyncMeshStage
from sdfstream.sync.stage import SyncStage

__all__ = ["SyncConfig", "SyncEdgeStage", "SyncMeshStage", "SyncStage"]
