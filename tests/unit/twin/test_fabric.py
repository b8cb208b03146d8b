"""Routes of the three shapes: whole, by the hash, around what is dead."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sdfstream.twin.fabric import FabricShape, TwinFabric, mixed

SHAPES = {
    "rail": FabricShape("rail", hosts=8, rails=2, leaves=8, spines=4),
    "leaf-spine": FabricShape("leaf-spine", hosts=8, rails=2, leaves=4, spines=4),
    "three-tier": FabricShape("three-tier", hosts=8, rails=1, leaves=8, spines=4, pods=2, aggregation=2),
}


def flows(fabric: TwinFabric, n: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    src, dst = rng.integers(0, len(fabric.nics), (2, n))
    dst = np.where(fabric.host_of[src] == fabric.host_of[dst], (dst + fabric.spec.rails) % len(fabric.nics), dst)
    return src, dst, mixed(src, dst, np.arange(n))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_route_leads_hop_by_hop_from_one_nic_to_the_other(shape: str) -> None:
    fabric = TwinFabric(SHAPES[shape], seed=3)
    src, dst, flow = flows(fabric)
    for a, b, row in zip(src, dst, fabric.routes(src, dst, flow).tolist(), strict=True):
        hops = [fabric.names[k].split("->") for k in row if k != fabric.links]
        assert hops[0][0] == fabric.nics[a]
        assert hops[-1][1] == fabric.nics[b]
        assert all(x[1] == y[0] for x, y in itertools.pairwise(hops))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_dead_link_moves_its_own_flows_and_no_others(shape: str) -> None:
    fabric = TwinFabric(SHAPES[shape], seed=3)
    src, dst, flow = flows(fabric)
    before = fabric.routes(src, dst, flow)
    dead = next(k for k in before[:, 1].tolist() if k != fabric.links)
    after = fabric.routes(src, dst, flow, [dead, dead ^ 1])
    crossed = ((before == dead) | (before == (dead ^ 1))).any(axis=1)
    assert crossed.any()
    assert not np.isin(after, [dead, dead ^ 1]).any()
    assert (after[~crossed] == before[~crossed]).all()


def test_hashes_spread_flows_evenly_over_spines() -> None:
    fabric = TwinFabric(FabricShape("leaf-spine", hosts=32, leaves=8, spines=8), seed=1)
    src, dst, flow = flows(fabric, 8000)
    first = fabric.routes(src, dst, flow)[:, 1]
    used = np.bincount([int(fabric.names[k].split("->s")[1]) for k in first if k != fabric.links], minlength=8)
    assert used.max() < 1.15 * used.mean()


@pytest.mark.parametrize("shape", SHAPES)
def test_every_interface_has_an_address_of_its_own(shape: str) -> None:
    fabric = TwinFabric(SHAPES[shape])
    assert len({fabric.address(k) for k in range(fabric.links)}) == fabric.links
    declared = fabric.declared()
    assert len(declared["links"]) == fabric.links // 2
    assert len(declared["nics"]) == len(fabric.nics)


@pytest.mark.parametrize(
    ("shape", "switch"), [("rail", "l0"), ("leaf-spine", "l0"), ("three-tier", "l0"), ("three-tier", "p1a0")]
)
def test_a_polarised_hash_crowds_its_share_of_flows_on_one_uplink(shape: str, switch: str) -> None:
    fabric = TwinFabric(SHAPES[shape], seed=3)
    src, dst, flow = flows(fabric, 4000)
    ups = [k for k, name in enumerate(fabric.names) if name.startswith(f"{switch}->") and "/" not in name]
    ups = [k for k in ups if fabric.names[k].split("->")[1] not in fabric.leaves]
    before = fabric.routes(src, dst, flow)
    fabric.polarised = {switch: 0.8}
    after = fabric.routes(src, dst, flow)
    crowded = int(np.isin(after, fabric.favourite(switch)).sum())
    all_up = int(np.isin(after, ups).sum())
    assert crowded / all_up == pytest.approx(0.8 + 0.2 / len(ups), abs=0.05)
    elsewhere = ~np.isin(before, ups).any(axis=1)
    assert (after[elsewhere] == before[elsewhere]).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_what_has_no_way_up_has_no_favourite(shape: str) -> None:
    fabric = TwinFabric(SHAPES[shape])
    with pytest.raises(KeyError):
        fabric.favourite(fabric.tops[0])
