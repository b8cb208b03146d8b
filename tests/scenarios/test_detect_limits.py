"""Agents that go by limits other than detect's own, and by different ones: blame waits for what they say."""

import pytest

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.stage import DetectStage
from tests.fixtures.drive import run
from tests.fixtures.leafspine import Fabric, Fault, Shape

AT_S = 6.0
UNSAID: tuple[int, ...] = ()


def links_at(fabric: Fabric, what: str) -> tuple[str, ...]:
    return tuple(link for link in fabric.links if what in link.split("->"))


@pytest.mark.parametrize("own_ms", [200, 600, 1000])
@pytest.mark.parametrize(
    ("limits_ms", "first_ms"),
    [
        (UNSAID, 1000),
        ((1000,), 1000),
        ((600,), 600),
        ((600, 1000), 600),
        ((2000, 600, 600, 600), 600),
        ((300, 2000), 300),
    ],
)
def test_a_dead_leaf_and_a_dead_nic_are_one_finding_each_by_whichever_limits_agents_go(
    limits_ms: tuple[int, ...], first_ms: int, own_ms: int
) -> None:
    """A dead leaf was one of its links first, and one of two NICs none, where detect expected less than agents say."""
    shape = Shape(hosts=8, leaves=4, ports=2, limits_ms=limits_ms)
    for what, kind, subject in (("l1", "link-down", "l1"), ("h02/r0", "nic-down", "h02/r0")):
        fault = Fault(links_at(Fabric(3, [], shape), what), AT_S, 99, drop=1)
        reported = run(DetectStage(DetectConfig(liveness_ms=own_ms)), Fabric(3, [fault], shape).messages(9))
        ((at_s, *said),) = [(t, f["kind"], f["subject"]["id"]) for t, f in reported.findings("open")]
        assert said == [kind, subject]
        assert first_ms / 1000 < at_s - AT_S < first_ms / 1000 + 0.4
