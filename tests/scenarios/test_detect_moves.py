"""NICs move into containers and back: unknown meanwhile, never down, and no finding about anything else.

``SDFSTREAM_MOVES=1000 pytest -s tests/scenarios/test_detect_moves.py`` plays a thousand.
"""

from __future__ import annotations

import os

import numpy as np

from sdfstream.detect.stage import DetectStage
from tests.fixtures.drive import run
from tests.fixtures.leafspine import Fabric, Fault, Shape

MOVES = int(os.environ.get("SDFSTREAM_MOVES", "16"))
SHAPE = Shape(hosts=6, rails=1, leaves=2, spines=2, ports=1, watched=2, watch_ports=2, clocks=False, owd=False)
"""Two pairs of its NICs are watched besides, with a limit of 50 ms: peers miss a NIC long before its port is read."""


def moves(seed: int) -> tuple[list[Fault], float]:
    """Each NIC away for 0.3 to 6 s, then back for 1 to 8 s, again and again; and when all is over."""
    rng = np.random.default_rng(seed)
    nics = [f"h{h:02d}/r{r}" for h in range(SHAPE.hosts) for r in range(SHAPE.rails)]
    free_s = {nic: 10.0 + float(rng.uniform(0, 8)) for nic in nics}
    faults = []
    for _ in range(MOVES):
        nic = min(free_s, key=lambda n: free_s[n])
        away_s = float(rng.uniform(0.3, 6.0))
        faults.append(Fault(nic=nic, at_s=free_s[nic], until_s=free_s[nic] + away_s))
        free_s[nic] += away_s + float(rng.uniform(1.0, 8.0))
    return faults, max(f.until_s for f in faults) + 8.0


def test_a_nic_that_moved_into_a_container_is_unknown_and_never_down() -> None:
    faults, run_s = moves(seed=17)
    found = run(DetectStage(), Fabric(17, faults, SHAPE).messages(run_s))
    said = found.opened() + found.resolved()
    print(f"{MOVES} moves in {run_s:.0f} s: {said}")
    assert not [one for one in said if one[1] in ("nic-down", "nic-flap", "link-down", "link-flap", "host-silent")]
    assert not said
    long = {f.nic for f in faults if f.nic and f.until_s - f.at_s > 3.0}
    states = {nic: {state for _, _, state in found.nic(nic)} for nic in long}
    assert all("unknown" in seen for seen in states.values()), "what is away is not shown as healthy"
    assert not any("unhealthy" in seen for seen in states.values())
