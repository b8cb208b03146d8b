"""A twin's messages: the same for the same seed, in order, of the topics' columns, and true to its truth."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.bus import codec
from sdfstream.errors import ConfigError
from sdfstream.records import columns
from sdfstream.records.fabric import SILENT_TYPE
from sdfstream.records.message import Message, Output
from sdfstream.records.topics import LIVENESS, PROBE, QP, TOPOLOGY
from sdfstream.twin.conditions import calm
from sdfstream.twin.fabric import FabricShape, TwinFabric, mixed
from sdfstream.twin.queues import Queues
from sdfstream.twin.scenario import parse
from sdfstream.twin.simulation import Twin

SMALL = {
    "seconds": 8,
    "fabric": {"hosts": 6, "leaves": 6, "spines": 3},
    "probes": {"peers": 3, "ports": 2},
    "clocks": {"ms": 50},
}


def run(seed: int = 3, **more: object) -> tuple[Twin, list[Message]]:
    twin = Twin(parse({**SMALL, **more}, "s.yaml"), seed)
    return twin, list(twin.messages())


def rows(messages: list[Message], *names: str) -> dict[str, np.ndarray]:
    bodies = [m.body for m in messages if m.topic == PROBE.name]
    return {n: np.concatenate([columns.instants(b, n) for b in bodies]) for n in names}


def test_the_same_seed_gives_the_same_messages_and_another_seed_others() -> None:
    first, second, other = run()[1], run()[1], run(4)[1]
    assert first == second
    assert first != other


def test_messages_are_in_order_and_pass_the_bus() -> None:
    _, messages = run(jobs=[{"ranks": 3}])
    assert [m.bus_at_ns for m in messages] == sorted(m.bus_at_ns for m in messages)
    for message in messages:
        _, refused = codec.check(Output(message.topic, message.key, message.body))
        assert refused == 0
    assert {m.topic for m in messages} >= {PROBE.name, LIVENESS.name, "sdf.raw.qp.v1", "sdf.state.job.v1"}


def test_clocks_of_rows_are_the_true_clocks() -> None:
    twin, messages = run()
    body = max((m.body for m in messages if m.topic == PROBE.name), key=lambda b: b.num_rows)
    t1, t2 = (columns.instants(body, n) for n in ("t1_ns", "t2_ns"))
    ends = [columns.names(body, n) for n in ("clock_src", "clock_dst")]
    number = {h: i for i, h in enumerate(twin.fabric.hosts)}
    src, dst = (np.array([number[d[c]] for c in codes]) for codes, d in ends)
    at = t1 - twin.start_ns
    delay = t2 - t1 - (twin.clocks.offset(dst, at) - twin.clocks.offset(src, at))
    answered = t2 > 0
    assert (delay[answered] > 8_000).all()
    assert np.median(delay[answered]) < 30_000


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_a_lossy_link_loses_its_share_of_what_crosses_it(share: float) -> None:
    twin, messages = run(seconds=30, faults=[{"kind": "gray-loss", "at": 0, "share": share, "direction": "fwd"}])
    found = rows(messages, "t4_ns", "t1_ns")
    link = twin.faults[0].links[0]
    table = twin.sessions.tables[-1]
    crosses = (table.fwd[0] == link).any(axis=1) | (table.rev[0] == link).any(axis=1)
    expected = crosses.mean() * share
    lost = (found["t4_ns"] == np.iinfo(np.int64).min).mean()
    assert crosses.any()
    assert lost == pytest.approx(expected + 2e-4, rel=0.2)


def test_a_dead_link_is_silent_and_heals_by_rerouting() -> None:
    faults = [{"kind": "link-down", "at": 2, "reroute_s": 2.0}]
    twin, messages = run(seconds=12, probes={"peers": 4, "ports": 3}, faults=faults)
    changes = [
        (c["state"], (m.bus_at_ns - twin.start_ns) / 1e9)
        for m in messages
        if m.topic == LIVENESS.name and not m.body.data["complete"]
        for c in m.body.data["changes"]
    ]
    silent = [at for state, at in changes if state == "silent"]
    alive = [at for state, at in changes if state == "alive"]
    assert silent
    assert 2.5 < min(silent) < max(silent) < 4.2
    assert 4.0 <= min(alive) < max(alive) < 4.3
    assert not np.isin(twin.sessions.tables[-1].fwd, twin.faults[0].links).any()


def test_a_congested_link_queues_and_marks_where_the_truth_says() -> None:
    twin, messages = run(seconds=6, faults=[{"kind": "congested-link", "at": 1, "direction": "fwd"}])
    queue, busy = twin.links[-1].queue_bytes, twin.links[-1].busy
    link = twin.faults[0].links[0]
    assert int(queue.argmax()) == link
    assert queue[link] > 250_000
    assert busy[link] > 0.99
    assert any(3 in m.body.column("ecn_fwd").to_pylist() for m in messages if m.topic == PROBE.name)


def test_flows_that_are_reported_carry_what_ports_move() -> None:
    twin, messages = run(seconds=6, known={"flows": True}, load={"utilisation": 0.3})
    told = sum(sum(m.body.column("bytes").to_pylist()) for m in messages if m.topic == QP.name)
    moved = sum(t.busy[: 2 * len(twin.fabric.nics) : 2].sum() for t in twin.links) * twin.fabric.spec.gbps * 1e9 / 80
    assert told == pytest.approx(moved, rel=0.05)
    traced = [m.body.data for m in messages if m.topic == TOPOLOGY.name and "protocol" in m.body.data]
    assert len(traced) == twin.load.src.size


def silent_traces(twin: Twin, messages: list[Message]) -> list[tuple[float, dict]]:
    found = [m for m in messages if m.topic == TOPOLOGY.name and m.body.type == SILENT_TYPE]
    return [((m.bus_at_ns - twin.start_ns) / 1e9, m.body.data) for m in found]


@pytest.mark.parametrize("seed", range(4))
def test_a_few_paths_that_fall_silent_are_traced_as_far_as_their_packets_get(seed: int) -> None:
    """Over a link that is dead in one direction they end before it; what is dead on the way back they pass."""
    fault = {"kind": "link-down", "at": 3, "lasts": 4, "direction": "random"}
    twin, messages = run(seed, fabric={"hosts": 8, "leaves": 2, "spines": 3}, faults=[fault])
    traces = silent_traces(twin, messages)
    assert traces and all(3.5 < at_s < 5.0 for at_s, _ in traces)
    near = twin.fabric.names[twin.faults[0].links[0]].split("->")[0]
    number = [n for n, x in enumerate(twin.sessions.tables[-1].fwd[0]) if twin.faults[0].links[0] in x.tolist()]
    forward = {twin.agents.name(n) for n in number}
    for _, data in traces:
        name = (data["src"], data["dst"], data["path"], data["dscp"])
        reached = [hop is not None for hop in data["hops"]]
        if name in forward:
            assert reached == ([True, False, False] if near.startswith("l") else [True, True, False])
        else:
            assert reached[0] and data["dir"] == "fwd"
    for src in {d["src"] for _, d in traces}:
        far_nics = [d["dst"] for _, d in traces if d["src"] == src]
        assert len(far_nics) == len(set(far_nics)) <= 4


def test_nothing_is_traced_of_paths_that_are_answered_again_or_by_agents_that_know_no_routes() -> None:
    short = {"kind": "link-down", "at": 3, "lasts": 0.7}
    twin, messages = run(fabric={"hosts": 8, "leaves": 2, "spines": 3}, faults=[short])
    assert any(m.body.data["changes"] for m in messages if m.topic == LIVENESS.name)
    assert silent_traces(twin, messages) == []
    fault = {"kind": "link-down", "at": 3, "lasts": 4}
    assert silent_traces(*run(faults=[fault], known={"traces": False})) == []


def test_full_links_carry_what_the_flows_over_them_got() -> None:
    """Where flows yield at several links, each leaves room that others take."""
    fabric = TwinFabric(FabricShape(kind="leaf-spine", hosts=24, leaves=4, spines=4, gbps=10))
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, 24, (2, 200))
    src, dst = src[src != dst], dst[src != dst]
    routes = fabric.routes(src, dst, mixed(np.arange(src.size)))
    asked = rng.uniform(0.2e9, 2.5e9, src.size)
    cell = Queues(fabric).step(routes, asked, calm(fabric), 0)
    carried = np.bincount(routes.ravel(), np.repeat(cell.got, routes.shape[1]), fabric.links + 1)[:-1] / 10e9
    assert (cell.busy[:-1] > 0.995).sum() >= 8
    np.testing.assert_allclose(cell.busy[:-1], np.minimum(carried, 1.0), atol=0.01)
    assert carried.max() <= 1.005


def test_a_full_queue_pauses_what_feeds_it() -> None:
    faults = [{"kind": "pfc-storm", "at": 1, "target": "h001/r0"}]
    twin, _ = run(seconds=6, load={"utilisation": 0.4}, faults=faults)
    cell = twin._cells[0][0]
    paused = {twin.fabric.names[k] for k in np.flatnonzero(cell.paused)}
    assert paused
    assert any(name.endswith("->l1") for name in paused)
    assert not any(name.startswith("h001/r0->") for name in paused), "the culprit is not its own victim"


def test_thresholds_far_too_low_mark_what_hardly_waits() -> None:
    twin, _ = run(seconds=4, load={"utilisation": 0.0}, faults=[{"kind": "ecn-early", "at": 1, "direction": "fwd"}])
    cell, link = twin._cells[0][0], twin.faults[0].links[0]
    assert cell.mark[link] > 0.2
    assert cell.delay_ns[link] + cell.random_ns[link] < 1000
    assert (np.delete(cell.mark, link) == 0).all()


def test_what_a_nic_sends_is_never_marked() -> None:
    twin, _ = run(seconds=4, faults=[{"kind": "slow-nic", "at": 1, "target": "h001/r0", "share": 0.001}])
    sends, receives = twin.fabric.directions("h001/r0", "fwd")[0], twin.fabric.directions("h001/r0", "rev")[0]
    cell = twin._cells[0][0]
    assert cell.delay_ns[sends] > 20_000 and cell.mark[sends] == 0
    assert cell.mark[receives] > 0


def test_a_polarised_hash_fills_one_uplink_while_the_others_stand_idle() -> None:
    fabric = {"kind": "leaf-spine", "hosts": 20, "leaves": 4, "spines": 4}
    load = {"utilisation": 0.4, "flows_per_nic": 8}
    fault = {"kind": "ecmp-imbalance", "at": 1, "lasts": 2, "target": "l1"}
    twin, _ = run(seconds=5, fabric=fabric, load=load, faults=[fault])
    names = twin.fabric.names
    (full,) = twin.faults[0].links
    ups = [k for k, name in enumerate(names) if name.startswith("l1->s")]
    during = next(t for t in twin.links if t.at_ns >= 2_000_000_000)
    after = twin.links[-1]
    assert full in ups
    assert during.busy[full] > 0.95 and during.queue_bytes[full] > 100_000
    assert all(during.busy[k] < 0.3 and not during.queue_bytes[k] for k in ups if k != full)
    assert after.busy[full] < 0.9


def test_only_switches_with_ways_up_are_polarised() -> None:
    with pytest.raises(ConfigError, match="no hashing leaf 's0'"):
        run(seconds=2, faults=[{"kind": "ecmp-imbalance", "at": 1, "target": "s0"}])
