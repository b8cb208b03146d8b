"""Nobody is woken by what load that grows everywhere, or a busy host, makes of a port's queue and marks."""

from __future__ import annotations

from pathlib import Path

import pytest

import sdfstream.twin
from sdfstream.score.detect.run import run
from sdfstream.settings import Settings

SCENARIOS = Path(sdfstream.twin.__file__).parent / "scenarios"


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("healthy-blind", 191),  # a port that marks everything while load is twice what it was
        ("healthy-rail", 194),  # one path of many into a busy host's NIC: its port moves little, and is not slow
        ("healthy-blind", 207),  # a NIC's port that fills and marks nearly everything for as long as the surge lasts
        ("healthy-rail", 219),  # a link that fills, where links are half full: other paths hardly wait
        ("healthy-spray-blind", 196),  # three paths into one NIC of a leaf, while its other NIC's see nothing
    ],
)
def test_a_healthy_fabric_has_no_alarm(name: str, seed: int) -> None:
    made = run(SCENARIOS / f"{name}.yaml", seed, Settings())
    assert (made.alarms, made.false_alarms) == (0, [])


def test_a_port_that_many_fill_is_still_a_warning() -> None:
    """Its paths alone are marked: load has not grown elsewhere."""
    made = run(SCENARIOS / "incast-job-blind.yaml", 191, Settings())
    (fault,) = made.faults
    assert fault.exact and fault.findings == 1 and made.false_alarms == []
