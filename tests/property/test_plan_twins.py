"""RoCEv2 sessions of a plan: beside UDP ones of NICs with devices, within every budget, and only where asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.errors import ConfigError
from sdfstream.plan.config import PlanConfig
from sdfstream.plan.draw import ROCEV2, UDP, draw
from sdfstream.plan.publish import host_plans
from tests.fixtures.meshes import fabric

BOTH = PlanConfig(transports=("udp", "rocev2"))


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 20), st.sets(st.integers(0, 19)), st.floats(5, 200), st.integers(0, 1 << 30))
def test_pairs_whose_both_ends_have_a_device_get_one_more_session(
    count: int, able: set[int], budget: float, seed: int
) -> None:
    hosts = [f"h{i}" for i in range(count)]
    inventory = fabric(hosts, budget=budget)
    nics = tuple(replace(nic, rdma=hosts.index(nic.host) in able) for nic in inventory.nics)
    inventory = replace(inventory, nics=nics)
    plain = draw(inventory, replace(PlanConfig(), seed=seed), 0)
    plan = draw(inventory, replace(BOTH, seed=seed), 0)
    udp = plan.transport == UDP
    for name in ("src", "dst", "path", "dscp", "rate_hz", "purpose"):
        assert (getattr(plan, name)[udp] == getattr(plain, name)).all(), "UDP is planned as without"
    assert (plan.load_pps <= np.maximum(plan.budget_pps, plain.load_pps) + 1e-6).all()
    twins = list(zip(plan.src[~udp].tolist(), plan.dst[~udp].tolist(), strict=True))
    pairs = set(zip(plan.src[udp].tolist(), plan.dst[udp].tolist(), strict=True))
    can = {p for p in pairs if all(plan.columns.nics[i].rdma for i in p)}
    assert len(set(twins)) == len(twins)
    assert set(twins) <= can
    assert len(can) - len(twins) == plan.figures["rocev2_unpaid"]
    assert (plan.path[~udp] >= 0xC000).all()
    assert set(plan.transport[~udp].tolist()) <= {ROCEV2}
    said = [s for p in host_plans(plan, BOTH, 1) for s in p.sessions]
    assert sum(s.transport == "rocev2" for s in said) == len(twins)


def test_a_plan_without_rocev2_is_the_same_whoever_has_a_device() -> None:
    inventory = fabric(["h0", "h1", "h2"])
    able = replace(inventory, nics=tuple(replace(nic, rdma=True) for nic in inventory.nics))
    plain, with_devices = (list(host_plans(draw(one, PlanConfig(), 0), PlanConfig(), 1)) for one in (inventory, able))
    assert plain == with_devices


@pytest.mark.parametrize("transports", [("rocev2",), ("udp", "ib"), ()])
def test_transports_that_cannot_be_are_refused(transports: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"plan\.transports is"):
        PlanConfig(transports=transports)
