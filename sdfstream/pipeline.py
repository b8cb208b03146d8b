"""READ FIRST: the path of a sample, stage by stage.

::

    agents ─► sdf.raw.* ─► sync ─► sdf.state.clock.v1, sdf.derived.owd.v1 ─► detect ─► sdf.event.finding.v1
    jobs ───┘    │           └─► workload ─► sdf.derived.qp.v1      │                       │
      ▲          └───────────┴──────────────┬─────────────────────┬─┴───────────────────────┘
      │                               archive (every topic), board, recorder
      └── sdf.control.command.v1 ◄── actuate ◄── jobs, routes, windows of queue pairs, outcomes, overrides
    agents ◄── sdf.state.mesh.v1 (who probes whom) ◄── plan ◄── agents' NICs, cabling, traces

Each stage declares the topics that it reads and writes (`reads`, `writes`). The same stages run over one seam, the
`Stage` protocol of `runtime.driver`: live, in one process or shared among processes on Kafka (`runtime.live_io`), and
over a recording as fast as the machine allows (`runtime.replay`). A stage never reads a clock: `driver.Driver` steps it
at every 100 ms boundary of bus time, and with the messages of each slice of 50 ms (`records.slices`), so that its
outputs depend only on what was on the bus.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sdfstream.actuate.stage import ActuateStage, Authority
from sdfstream.detect.stage import DetectStage
from sdfstream.plan.stage import PlanStage
from sdfstream.records.topics import ESTIMATE, PROBE
from sdfstream.runtime import layouts
from sdfstream.runtime.driver import Stage, StageMaker
from sdfstream.settings import Settings
from sdfstream.sync.edge_stage import SyncEdgeStage
from sdfstream.sync.mesh_stage import SyncMeshStage
from sdfstream.sync.stage import SyncStage
from sdfstream.workload.stage import WorkloadStage


def makers(settings: Settings, authority: Authority | None = None) -> list[StageMaker]:
    """Makers of the stages, in path order; without `authority` (a replay) the controller enforces nothing, and agents
    follow no plan.
    """
    found = [
        _maker(SyncStage, lambda _: SyncStage(settings.sync), settings.sync),
        _maker(WorkloadStage, lambda _: WorkloadStage(settings.workload), settings.workload),
        _maker(DetectStage, lambda _: DetectStage(settings.detect), settings.detect),
    ]
    if settings.actuate.mode != "off":
        found.append(_maker(ActuateStage, lambda _: ActuateStage(settings.actuate, authority), settings.actuate))
    if settings.draws_plan:
        signer = authority.signer if authority is not None else None
        found.append(_maker(PlanStage, lambda _: PlanStage(settings.plan, signer), settings.plan))
    return found


def stages(settings: Settings, authority: Authority | None = None) -> list[Stage]:
    """The stages, in the order of the path, each as one unit."""
    return [maker.make("0") for maker in makers(settings, authority)]


def split_sync(settings: Settings) -> list[StageMaker]:
    """Sync split over processes: any number with the first stage, one with the second (docs/sync-scale.md)."""
    edge = _maker(SyncEdgeStage, lambda unit: SyncEdgeStage(settings.sync, unit), settings.sync)
    edge.for_all, edge.by_partition = (ESTIMATE.name,), PROBE.name
    return [edge, _maker(SyncMeshStage, lambda _: SyncMeshStage(settings.sync), settings.sync)]


STAGES: Final[tuple[type[Stage], ...]] = (
    SyncStage,
    SyncEdgeStage,
    SyncMeshStage,
    WorkloadStage,
    DetectStage,
    ActuateStage,
    PlanStage,
)
WRITTEN: Final = frozenset(topic for stage in STAGES for topic in stage.writes)
"""Topics that any stage writes."""


def _maker(kind: type[Stage], make: Callable[[str], Stage], config: object) -> StageMaker:
    own, former = layouts.identity(kind.name, config), layouts.formerly(kind.name, config)
    return StageMaker(kind.name, kind.reads, kind.writes, make, identity=own, formerly=former)
