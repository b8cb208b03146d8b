"""A plan must not depend on the version that draws it: another hash would tear every mesh apart at an upgrade."""

from __future__ import annotations

import hashlib
import json

from sdfstream.plan import publish
from sdfstream.plan.config import PlanConfig
from sdfstream.plan.draw import draw
from sdfstream.plan.hashing import mixed, of_names, of_pair
from sdfstream.records.mesh import HostPlan
from tests.fixtures.meshes import fabric, traced

HOSTS = [f"h{i}" for i in range(30)]


def digest(plans: list[HostPlan]) -> str:
    said_later = ("prober_ports", "networks", "expires_at_ns")
    data = [{key: value for key, value in p.as_data().items() if key not in said_later} for p in plans]
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def test_hashes() -> None:
    names = of_names(["", "h0/r0", "Zürich"])
    assert [hex(int(v)) for v in names] == NAMES
    assert [hex(int(v)) for v in mixed(names, 1, 2)] == MIXED
    assert (of_pair(names, names[::-1]) == of_pair(names[::-1], names)).all()


def test_plans() -> None:
    config = PlanConfig(cover_dscps=(0, 26), clock_dscp=46)
    blind = draw(fabric(HOSTS), config, 0)
    seeing = draw(fabric(HOSTS, routes=traced(blind, 2)), config, 1_000)
    poor = draw(fabric(HOSTS, budget=150.0, per_leaf=2, spines=4), config, 7)
    assert [digest(list(publish.host_plans(p, config, 5))) for p in (blind, seeing, poor)] == PLANS


NAMES = ["0xb4b2797457a0a6e4", "0xfc2c07b5e642412f", "0x8d579a7fa387470"]
MIXED = ["0x801e95598b4c9398", "0x4b35700caa11fa89", "0x3515e26a7400fccd"]
PLANS = ["1a885f46e1710c11", "ce81d444a5e33c1d", "e9e5f443ce23e2ad"]
