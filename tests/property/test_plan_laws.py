"""What a mesh plan promises, whatever the inventory: degree, connectivity, budget, determinism, stability, coverage."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.plan import rings, setcover
from sdfstream.plan.config import PlanConfig
from sdfstream.plan.draw import Plan, draw
from sdfstream.plan.hashing import of_names
from sdfstream.plan.inventory import Inventory
from tests.fixtures.meshes import connected, edges, fabric, traced

CONFIG = PlanConfig()
HOSTS = st.sets(st.integers(0, 199), min_size=2, max_size=70).map(lambda found: [f"h{i}" for i in sorted(found)])
SEEDS = st.integers(0, 1 << 62)
FEW = settings(max_examples=40, deadline=None)


def sessions(plan: Plan) -> set[tuple[str, str, int, int, float]]:
    nics = plan.columns.nics
    return {
        (nics[int(s)].id, nics[int(d)].id, int(p), int(c), float(r))
        for s, d, p, c, r in zip(plan.src, plan.dst, plan.path, plan.dscp, plan.rate_hz, strict=True)
    }


@FEW
@given(HOSTS, SEEDS, st.integers(0, 10_000), st.integers(2, 12), st.integers(1, 3))
def test_clocks_have_peers_and_stay_together_without_any_one(
    hosts: list[str], seed: int, epoch: int, degree: int, rails: int
) -> None:
    config = replace(CONFIG, seed=seed, degree=degree)
    plan = draw(fabric(hosts, rails=rails), config, epoch)
    pairs = edges(plan)
    degrees = {h: sum(h in pair for pair in pairs) for h in hosts}
    assert min(degrees.values()) >= min(degree, len(hosts) - 1)
    assert max(degrees.values()) <= max(2 * degree, degree + 4)
    assert connected(set(hosts), pairs)
    for gone in hosts if len(hosts) > 2 else ():
        assert connected(set(hosts) - {gone}, pairs), gone
    assert plan.figures["clocks_below_degree"] == 0
    assert plan.figures["islands"] == 1


@FEW
@given(HOSTS, SEEDS, st.floats(1, 300), st.integers(1, 3))
def test_nobody_sends_more_than_its_budget(hosts: list[str], seed: int, budget: float, rails: int) -> None:
    inventory = fabric(hosts, rails=rails, budget=budget)
    inventory = replace(inventory, budgets={h: budget / (1 + i % 3) for i, h in enumerate(hosts)})
    plan = draw(inventory, replace(CONFIG, seed=seed, cover_dscps=(0, 26)), 0)
    host = plan.columns.host
    load = np.bincount(host[plan.src], plan.rate_hz, len(hosts)) + np.bincount(host[plan.dst], plan.rate_hz, len(hosts))
    assert (load <= plan.budget_pps + 1e-6).all()
    assert np.allclose(load, plan.load_pps)
    assert connected(set(hosts), edges(plan)), "clocks come first, however little there is"
    if (plan.budget_pps < 16 * (len(hosts) - 1)).all() and len(hosts) < 12:
        assert plan.figures["hosts_slowed"] > 0


@FEW
@given(HOSTS, SEEDS, st.integers(0, 1000), st.randoms(use_true_random=False))
def test_the_same_input_gives_the_same_plan_in_any_order(
    hosts: list[str], seed: int, epoch: int, random: object
) -> None:
    inventory = fabric(hosts)
    shuffled = list(inventory.nics)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    config = replace(CONFIG, seed=seed)
    one, other = draw(inventory, config, epoch), draw(replace(inventory, nics=tuple(shuffled)), config, epoch)
    for name in ("src", "dst", "path", "dscp", "rate_hz", "purpose"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


@FEW
@given(SEEDS, st.integers(21, 160), st.sampled_from([0.05, 0.1, 0.3]), st.integers(0, 500), st.sampled_from([4, 7, 10]))
def test_a_redraw_replaces_at_most_the_stated_share(seed: int, n: int, share: float, epoch: int, degree: int) -> None:
    ids = of_names([f"h{i}" for i in range(n)])
    drawn = [rings.graph(ids, degree, seed, epoch + k, share) for k in range(6)]
    sets = [{(min(a, b), max(a, b)) for a, b in zip(g.a.tolist(), g.b.tolist(), strict=True)} for g in drawn]
    for before, after in itertools.pairwise(sets):
        assert len(after - before) <= share * len(before)


def test_the_graph_is_another_one_after_a_while() -> None:
    ids = of_names([f"h{i}" for i in range(200)])
    first, last = (set(zip(*rings.graph(ids, 10, 1, e, 0.1), strict=True)) for e in (0, 100))
    assert len(first & last) < 0.2 * len(first)
    assert rings.graph(ids, 10, 1, 0, 0.0).a.tolist() == rings.graph(ids, 10, 1, 99, 0.0).a.tolist()


@FEW
@given(st.integers(24, 150), SEEDS, st.integers(0, 100))
def test_a_join_or_a_leave_changes_only_what_it_must(n: int, seed: int, epoch: int) -> None:
    """The newcomer's own edges come; of the others only those it slips into go, and what must follow from that."""
    names = [f"h{i}" for i in range(n + 1)]
    config = replace(CONFIG, seed=seed, redraw_share=0.0 if n < 100 else 0.1)
    without = edges(draw(fabric(names[:-1], rails=1), config, epoch))
    with_it = edges(draw(fabric(names, rails=1), config, epoch))
    theirs = {pair for pair in with_it - without if names[-1] not in pair}
    assert len(without - with_it) <= 5 + 16, "one edge a ring, and chords"
    assert len(theirs) <= 16


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 7), st.integers(1, 4), SEEDS, st.integers(1, 2))
def test_every_route_is_crossed_with_few_sessions_once_traces_are_there(
    pods: int, spines: int, seed: int, rails: int
) -> None:
    hosts = [f"h{i}" for i in range(4 * pods)]
    config = replace(CONFIG, seed=seed, cover_probability=0.99)
    blind = draw(fabric(hosts, rails=rails, spines=spines, budget=1e5), config, 0)
    routes = traced(blind, spines, seed)
    seeing = draw(fabric(hosts, rails=rails, spines=spines, budget=1e5, routes=routes), config, 0)
    figures = seeing.figures
    assert figures["pairs_known"] == figures["pairs"] == rails * pods * (pods - 1) // 2
    assert figures["ways_crossed"] == figures["ways_known"]
    # a session crosses one way there and one back, so half as many sessions as ways could do
    assert figures["coverage_sessions"] <= figures["ways_known"] + len(seeing.columns.nics)
    crossed = {(w.hops, w.forward) for w in routes} and {
        w.hops for w in routes if (w.src, w.dst, w.path, w.dscp) in {s[:4] for s in sessions(seeing)}
    }
    assert crossed == {w.hops for w in routes}
    for direction in range(2):
        nics = set(seeing.columns.nics[int(i)].id for i in np.concatenate([seeing.src, seeing.dst]))
        assert len(nics) == len(seeing.columns.nics), f"every rail of every host is used {direction}"


@pytest.mark.parametrize("declared", [True, False])
def test_without_traces_a_block_of_ports_is_tried(declared: bool) -> None:
    plan = draw(fabric([f"h{i}" for i in range(16)], spines=4, declared=declared), CONFIG, 0)
    tried = sessions(plan)
    assert plan.figures["nics_unused"] == 0
    if declared:
        assert plan.figures["pairs"] == 2 * 6
        for rail in range(2):
            both = [(s, d) for s, d, *_ in tried if {s[-1], d[-1]} == {str(rail)}]
            up = sum(int(s.split("/")[0][1:]) < int(d.split("/")[0][1:]) for s, d in both)
            assert 0 < up < len(both), "both ways round"
    assert plan.figures["coverage_sessions"] >= plan.figures["pairs"] * 13 * 0.7


@settings(max_examples=4, deadline=None)
@given(SEEDS, st.integers(0, 50))
def test_when_the_budget_is_short_attachments_take_turns(seed: int, epoch: int) -> None:
    inventory = fabric([f"h{i}" for i in range(48)], rails=1, per_leaf=2, spines=8, budget=240.0)
    config = replace(CONFIG, seed=seed)
    plan = draw(inventory, config, epoch)
    assert plan.figures["pairs_waiting"] > 0
    assert plan.figures["hosts_slowed"] == 0
    seen: set[tuple[str, str]] = set()
    nics = plan.columns.nics
    many = 400
    for e in range(epoch, epoch + many, 8):
        later = draw(inventory, config, e)
        mine = later.purpose == 1
        seen |= {
            (
                min(nics[int(s)].leaf or "", nics[int(d)].leaf or ""),
                max(nics[int(s)].leaf or "", nics[int(d)].leaf or ""),
            )
            for s, d in zip(later.src[mine], later.dst[mine], strict=True)
        }
        if len(seen - {(x, x) for x, _ in seen}) >= 24 * 23 // 2:
            break
    assert len({p for p in seen if p[0] != p[1]}) == 24 * 23 // 2, "everybody's turn comes"


def test_hardware_clocks_of_separate_rails_are_islands_and_that_is_said() -> None:
    inventory = fabric([f"h{i}" for i in range(14)], rails=2, hardware=True)
    apart = draw(inventory, CONFIG, 0)
    assert apart.figures["islands"] == 2
    assert apart.figures["clocks_below_degree"] == 0
    joined = draw(inventory, replace(CONFIG, cross_rail=True), 0)
    assert joined.figures["islands"] == 1
    nics = joined.columns.nics
    hosts = {(nics[int(s)].host, nics[int(d)].host) for s, d in zip(joined.src, joined.dst, strict=True)}
    assert all(a != b for a, b in hosts), "a host does not probe itself"


def test_hosts_with_other_networks_are_joined_where_they_meet() -> None:
    """Trainers have a backend and a frontend, storage only the frontend, and a lone box only the backend."""
    base = fabric([f"h{i}" for i in range(30)], rails=1)
    nics = list(base.nics)
    nics += [replace(n, id=n.id.replace("/r", "/f"), plane="frontend", rail=None, leaf=None) for n in base.nics[:20]]
    store = [
        replace(n, id=f"s{i}/f0", host=f"s{i}", clock=f"s{i}", plane="frontend", rail=None, leaf=None)
        for i, n in enumerate(base.nics)
    ]
    plan = draw(Inventory((*nics, *store)), CONFIG, 3)
    clocks = set(plan.columns.clocks)
    pairs = edges(plan)
    assert len(clocks) == 60
    assert plan.figures["islands"] == 1
    assert plan.figures["joints"] == 0
    for gone in sorted(clocks):
        assert connected(clocks - {gone}, pairs)
    for s, d in zip(plan.src.tolist(), plan.dst.tolist(), strict=True):
        assert plan.columns.group[s] == plan.columns.group[d], "no session between networks that do not meet"


@FEW
@given(st.integers(1, 60), st.integers(1, 40), SEEDS)
def test_greedy_cover_covers_all_that_can_be_and_chooses_nothing_useless(n: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    elements = rng.integers(-1, m, (n, 4))
    covered = np.zeros(m, dtype=bool)
    room = np.full(5, 10_000)
    picked = setcover.cover(
        elements, covered, rng.integers(0, 1 << 60, n).astype(np.uint64), rng.integers(0, 5, (n, 2)), room
    )
    able = set(elements[elements >= 0].tolist())
    assert set(np.flatnonzero(covered).tolist()) == able
    assert set(elements[picked][elements[picked] >= 0].tolist()) == able
    assert 2 * len(picked) == 5 * 10_000 - room.sum()
    assert len(picked) <= len(able)


@FEW
@given(st.integers(1, 50), SEEDS, st.integers(0, 4))
def test_greedy_cover_never_overdraws(n: int, seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    room = rng.integers(0, most + 1, 6)
    before, ends = room.copy(), rng.integers(0, 6, (n, 2))
    ends[:, 1] = (ends[:, 0] + 1 + rng.integers(0, 5, n)) % 6
    picked = setcover.cover(
        rng.integers(-1, 30, (n, 4)),
        np.zeros(30, dtype=bool),
        rng.integers(0, 1 << 60, n).astype(np.uint64),
        ends,
        room,
    )
    assert (np.bincount(ends[picked].ravel(), minlength=6) <= before).all()
    assert (room >= 0).all()


def test_an_empty_inventory_is_an_empty_plan() -> None:
    for inventory in (Inventory(()), fabric(["h1"])):
        plan = draw(inventory, CONFIG, 0)
        assert len(plan.src) == 0
