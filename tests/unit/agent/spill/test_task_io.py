"""The disk's task is woken for what there is to do, and not by every message that the bus has taken."""

from __future__ import annotations

from pathlib import Path

from sdfstream.agent.queues import OutputQueue
from sdfstream.agent.spill.files_io import SpillFolder
from sdfstream.agent.spill.task_io import SpillTask
from sdfstream.stats import Counters


def test_work_is_what_memory_must_give_up_and_what_the_disk_holds(tmp_path: Path) -> None:
    queues = [OutputQueue("event"), OutputQueue("bulk")]
    task = SpillTask(SpillFolder(tmp_path / "spill", 1 << 20), queues, Counters("agent"), 1 << 16, lambda: None)
    assert not task.has_work
    task.excess_bytes = 1
    assert task.has_work
    task.excess_bytes = 0
    queues[1].acknowledged[3] += 1
    assert task.has_work
    queues[1].acknowledged.clear()
    queues[0].on_disk = 1
    assert task.has_work
