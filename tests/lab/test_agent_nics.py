"""NICs that vanish and return, in every way they can; paths through routers; two agents end to end."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from tests.fixtures.agents import RecordedAgent, running
from tests.fixtures.namespaces import Namespaces, namespaces, run

__all__ = ["namespaces"]
pytestmark = pytest.mark.lab
PORT = 8620


def pair(net: Namespaces) -> tuple[AgentConfig, AgentConfig]:
    """Hosts a and b, joined by one cable; each probes the other."""
    net.add("a", "b")
    net.cable("a", "r0", "b", "r0")
    net.ip("a", "addr add 10.7.0.0/31 dev r0", "addr add fd07::/127 dev r0")
    net.ip("b", "addr add 10.7.0.1/31 dev r0", "addr add fd07::1/127 dev r0")
    return agent(net, "a", "10.7.0.0", "b", "10.7.0.1"), agent(net, "b", "10.7.0.1", "a", "10.7.0.0")


def agent(
    net: Namespaces,
    host: str,
    address: str,
    peer: str,
    far: str,
    trace_s: float = 0.0,
    ports: tuple[int, ...] = (50000,),
) -> AgentConfig:
    return AgentConfig(
        hosts=(
            HostConfig(
                host=host,
                nics=(NicConfig(f"{host}/r0", "r0", address, net.path(host), plane="backend"),),
                sessions=(
                    SessionConfig(f"{host}/r0", f"{peer}/r0", far, PORT, source_ports=ports, dscp=46, rate_hz=100.0),
                ),
                read_ports=False,
            ),
        ),
        reflector_port=PORT,
        liveness_ms=100,
        trace_interval_s=trace_s,
        trace_rate_hz=50.0,
        realtime=False,
    )


def alive(recorded: RecordedAgent, role: str = "sender", times: int = 1) -> bool:
    return recorded.states(role=role).count("alive") >= times


async def test_two_agents_measure_each_other(namespaces: Namespaces) -> None:
    near, far = pair(namespaces)
    async with running(near) as a, running(far) as b:
        await a.until(lambda: len(a.rows()) > 200 and len(b.rows()) > 200)
    for recorded, src, dst in ((a, "a/r0", "b/r0"), (b, "b/r0", "a/r0")):
        rows = recorded.rows().slice(50)
        column = {name: rows.column(name).combine_chunks() for name in rows.column_names}
        assert set(column["src"].to_pylist()) == {src}
        assert set(column["dst"].to_pylist()) == {dst}
        assert set(column["plane"].to_pylist()) == {"backend"}
        assert set(column["dscp_fwd"].to_pylist()) <= {46, None}
        assert set(column["ttl_fwd"].to_pylist()) <= {255, None}
        kernel = [np.asarray(column[f"t{i}_kind"]) == 1 for i in (1, 2, 3, 4)]
        whole = np.logical_and.reduce(kernel)
        assert whole.mean() > 0.9
        t1, t2, t3, t4 = (
            column[f"t{i}_ns"].to_numpy(zero_copy_only=False)[whole].astype(np.int64) for i in (1, 2, 3, 4)
        )
        assert (t1 < t2).all()
        assert (t2 < t3).all()
        assert (t3 < t4).all()
        assert not [k for k in recorded.final if k.startswith("io.refused")]
        assert not [k for k in recorded.final if k.startswith("agent.failed")]
    assert alive(a)
    assert alive(a, "reflector")


@pytest.mark.parametrize(
    ("away", "back"),
    [
        (
            ("link set r0 netns {spare}",),
            ("-n {spare} link set r0 netns {a}", "addr add 10.7.0.0/31 dev r0", "link set r0 up"),
        ),
        (("link set r0 down",), ("link set r0 up",)),
        (("addr del 10.7.0.0/31 dev r0",), ("addr add 10.7.0.0/31 dev r0",)),
        (("link set r0 down", "link set r0 name r9"), ("link set r9 name r0", "link set r0 up")),
    ],
    ids=["other namespace", "switched off", "address gone", "renamed"],
)
async def test_a_nic_that_is_away_is_unknown_and_comes_back(
    namespaces: Namespaces, away: tuple[str, ...], back: tuple[str, ...]
) -> None:
    near, far = pair(namespaces)
    namespaces.add("spare")
    names = {"a": namespaces.full("a"), "spare": namespaces.full("spare")}

    def do(commands: tuple[str, ...]) -> None:
        for command in commands:
            text = command.format(**names)
            if text.startswith("-n "):
                _, space, text = text.split(" ", 2)
                namespaces.ip(space.removeprefix(namespaces.prefix), text)
            else:
                namespaces.ip("a", text)

    async with running(near) as a, running(far) as b:
        await a.until(lambda: alive(a) and alive(a, "reflector") and alive(b))
        do(away)
        await a.until(lambda: a.states(role="sender")[-1] == "unknown" and a.states(role="reflector")[-1] == "unknown")
        await b.until(lambda: b.states(role="sender")[-1] == "silent")
        do(back)
        await a.until(lambda: alive(a, times=2) and alive(a, "reflector", times=2) and alive(b, times=2))
        before = len(a.rows())
        await a.until(lambda: len(a.rows()) > before + 50)
    # what could not be sent is not told as lost, and nobody was blamed
    assert "silent" not in a.states(role="sender")
    assert a.final["io.nic-away"] == a.final["io.nic-back"] == 1
    assert not [k for k in a.final if k.startswith("agent.failed")]


async def test_a_namespace_that_goes_and_is_made_again(namespaces: Namespaces) -> None:
    near, far = pair(namespaces)
    async with running(near) as a, running(far) as b:
        await a.until(lambda: alive(a) and alive(b))
        namespaces.ip("b", "link del r0")
        run("ip", "netns", "del", namespaces.full("a"))
        await a.until(lambda: a.states(role="sender")[-1] == "unknown")
        run("ip", "netns", "add", namespaces.full("a"))
        namespaces.cable("a", "r0", "b", "r0")
        namespaces.ip("a", "addr add 10.7.0.0/31 dev r0")
        namespaces.ip("b", "addr add 10.7.0.1/31 dev r0")
        await a.until(lambda: alive(a, times=2) and alive(b, times=2))
    assert not [k for k in a.final if k.startswith("agent.failed")]


async def test_an_agent_starts_before_its_nic(namespaces: Namespaces) -> None:
    namespaces.add("a", "b")
    near = agent(namespaces, "a", "10.7.0.0", "b", "10.7.0.1")
    async with running(near) as a:
        await a.until(lambda: a.states(role="sender") == ["unknown"])
        namespaces.cable("a", "r0", "b", "r0")
        namespaces.ip("a", "addr add 10.7.0.0/31 dev r0")
        namespaces.ip("b", "addr add 10.7.0.1/31 dev r0")
        async with running(agent(namespaces, "b", "10.7.0.1", "a", "10.7.0.0")) as b:
            await a.until(lambda: alive(a) and alive(b))


async def test_a_lost_carrier_is_silence_not_absence(namespaces: Namespaces) -> None:
    near, far = pair(namespaces)
    async with running(near) as a, running(far):
        await a.until(lambda: alive(a))
        namespaces.ip("b", "link set r0 down")
        await a.until(lambda: a.states(role="sender")[-1] == "silent")
        rows = len(a.rows())
        await a.until(lambda: len(a.rows()) > rows + 20)
    assert a.rows().column("t4_ns").to_pylist()[-1] is None


def chain(net: Namespaces, v6: bool) -> tuple[str, str, list[str]]:
    """Hosts a and b with three routers between them: the hosts' addresses and, as a sees them, the routers'."""
    names = ["a", "l", "s", "m", "b"]
    net.add(*names)
    bits, family = (127, "-6 ") if v6 else (31, "")
    ends = [(f"fd07:{i}::", f"fd07:{i}::1") if v6 else (f"10.7.{i}.0", f"10.7.{i}.1") for i in (1, 2, 3, 4)]
    for (left, right), (near, far) in zip(itertools.pairwise(names), ends, strict=True):
        to_right, to_left = ("r0" if left == "a" else "u0"), ("r0" if right == "b" else "d0")
        net.cable(left, to_right, right, to_left)
        net.ip(left, f"addr add {near}/{bits} dev {to_right}")
        net.ip(right, f"addr add {far}/{bits} dev {to_left}")
        net.sysctl(right, "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
    for i in range(3):
        net.ip(names[i], f"{family}route add {ends[3][0]}/{bits} via {ends[i][1]}")
        net.ip(names[4 - i], f"{family}route add {ends[0][0]}/{bits} via {ends[3 - i][0]}")
    return ends[0][0], ends[3][1], [far for _, far in ends[:3]]


@pytest.mark.parametrize("v6", [False, True])
async def test_paths_are_traced_hop_by_hop(namespaces: Namespaces, v6: bool) -> None:
    """a - l - s - m - b: three routers; nobody else sees a traced packet."""
    net = namespaces
    first, last, routers = chain(net, v6)
    near_agent = agent(net, "a", first, "b", last, trace_s=60.0, ports=(50000, 50001))
    far_agent = agent(net, "b", last, "a", first)
    async with running(far_agent) as b, running(near_agent) as a:
        await a.until(lambda: len(a.events("sdf.state.topology.v1")) >= 2)
        await a.until(lambda: len(a.rows()) > 100)
    traces = {t["path"]: t for t in a.events("sdf.state.topology.v1")}
    assert sorted(traces) == [50000, 50001]
    for trace in traces.values():
        assert trace["hops"] == routers
        assert trace["complete"]
        assert (trace["src"], trace["dst"], trace["dscp"], trace["dir"]) == ("a/r0", "b/r0", 46, "fwd")
    assert b.final.get("reflector.refused.short", 0) == 0
    assert a.final.get("sender.refused.unknown-session", 0) == 0, "a traced packet reached the far host"
    rows = a.rows()
    assert sum(v is None for v in rows.column("t4_ns").to_pylist()) <= len(rows) // 50, "tracing disturbed the probes"
    assert not [k for k in a.final if "unmatched" in k or k.startswith("agent.failed")]


async def test_stamps_that_come_late_from_a_queue_of_our_own_are_matched(namespaces: Namespaces) -> None:
    """Behind a slow queue the kernel stamps a packet long after it was handed over (stamps are taken after it)."""
    near, far = pair(namespaces)
    for host in "ab":
        queue = f"tc -n {namespaces.full(host)} qdisc add dev r0 root tbf rate 400kbit burst 1600 limit 100000"
        run(*queue.split())
    async with running(near) as a, running(far):
        await a.until(lambda: len(a.rows()) > 300)
    rows = a.rows().slice(50)
    kinds = {i: rows.column(f"t{i}_kind").to_pylist() for i in (1, 2, 3, 4)}
    for i in (1, 2, 3, 4):
        assert kinds[i].count(1) > 0.9 * len(rows), f"t{i}: {kinds[i].count(1)} of {len(rows)}"
    t1, t2 = (np.array(rows.column(f"t{i}_ns").to_pylist(), dtype=float) for i in (1, 2))
    assert np.nanmedian(t2 - t1) < 2e6, "the queue lies before t1"
    assert not [k for k in a.final if "unmatched" in k or k.startswith("agent.failed")]
