"""The agent's side of host edges: which clock is read how, what is refused, and that only sync takes the rows."""

import errno
from typing import Any

import numpy as np
import pytest

from sdfstream.agent.config_file import read_agent
from sdfstream.agent.report import PathReport
from sdfstream.detect.stage import DetectStage
from sdfstream.errors import ConfigError
from sdfstream.probes import phc
from sdfstream.probes.config import HostConfig, NicConfig, SessionConfig, VirtualClock
from sdfstream.probes.phc_io import LOOK_NS, HostClocks, _sysfs_index
from sdfstream.probes.stamp.paths import clock_of_far_end
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.hostclock import paths_only
from sdfstream.records.message import Message
from sdfstream.records.topics import PROBE
from tests.fixtures.phc import EXTENDED, OFFSET, PRECISE, FakePhc

NOW = 1_800_000_000 * 10**9
NICS = tuple(NicConfig(f"h1/r{i}", f"eth{i}", f"10.0.0.{i}", plane="backend") for i in range(3))


class World:
    """Three NICs; the first two share a clock, the third has none until it is given one."""

    def __init__(self, **phc_settings: Any) -> None:
        self.index = {"h1/r0": 0, "h1/r1": 0}
        self.phc = FakePhc(NOW, **phc_settings)
        self.opened: list[int] = []
        self.steady_ns = 0

    def device(self, index: int) -> FakePhc:
        self.opened.append(index)
        self.phc.closed = False
        return self.phc

    def clocks(self, virtual: VirtualClock | None = None) -> HostClocks:
        return HostClocks(
            HostConfig("h1", NICS),
            Clock(virtual),
            index_of=lambda nic: self.index.get(nic.nic),
            open_device=self.device,
            now_ns=lambda: self.steady_ns,
        )


def rows(clocks: HostClocks) -> list[dict[str, Any]]:
    batch = clocks.read()
    return [] if batch is None else batch.to_pylist()


def test_the_smallest_window_of_a_burst_is_used_and_a_shared_clock_is_read_once() -> None:
    world = World(ahead_ns=37 * 10**9, interrupted=lambda i: 0 if i == 4 else 3_000)
    got = rows(world.clocks())
    assert [(r["src"], r["dst"], r["clock_src"], r["clock_dst"]) for r in got] == [
        ("h1/r0", "h1/r0", "h1", "h1/r0"),
        ("h1/r1", "h1/r1", "h1", "h1/r1"),
    ]
    assert {r["t4_ns"] - r["t1_ns"] for r in got} == {1000}
    assert {r["t2_ns"] - (r["t1_ns"] + r["t4_ns"]) // 2 for r in got} == {37 * 10**9}
    assert world.phc.asked.count(EXTENDED) == 1 and PRECISE not in world.phc.asked


@pytest.mark.parametrize(
    ("settings", "used", "window_ns"),
    [
        ({"precise": True}, PRECISE, 0),
        ({"precise": True, "fails": {PRECISE: errno.EOPNOTSUPP}}, EXTENDED, 1000),
        ({"extended": False}, OFFSET, 1000),
    ],
)
def test_the_best_method_that_works_is_used_and_what_is_not_offered_is_asked_once(
    settings: dict[str, Any], used: int, window_ns: int
) -> None:
    world = World(**settings)
    clocks = world.clocks()
    for _ in range(3):
        assert {r["t4_ns"] - r["t1_ns"] for r in rows(clocks)} == {window_ns}
    assert [n for n in world.phc.asked if n != 0x80503D01].count(used) == 3
    assert len(world.phc.asked) <= 3 + 2


def test_a_method_that_is_busy_is_tried_again() -> None:
    world = World(precise=True, fails={PRECISE: errno.EBUSY})
    clocks = world.clocks()
    assert {r["t4_ns"] - r["t1_ns"] for r in rows(clocks)} == {1000}
    world.phc.fails.clear()
    assert {r["t4_ns"] - r["t1_ns"] for r in rows(clocks)} == {0}
    assert clocks.counters.as_dict() == {"host-clock.refused.precise.ebusy": 1, "host-clock.samples": 4}


def test_a_nic_that_goes_and_one_that_comes() -> None:
    world = World()
    clocks = world.clocks()
    assert len(rows(clocks)) == 2
    world.phc.fails[EXTENDED] = errno.ENODEV
    assert rows(clocks) == [] and world.phc.closed
    world.phc.fails.clear()
    world.index = {"h1/r2": 5}
    world.steady_ns += LOOK_NS
    assert [r["src"] for r in rows(clocks)] == ["h1/r2"]
    assert world.opened == [0, 5]
    world.index = {}
    world.steady_ns += LOOK_NS
    assert rows(clocks) == [] and clocks.known == 0 and world.phc.closed


def test_a_device_that_may_not_be_opened_is_counted_and_nothing_else_is_lost() -> None:
    world = World()

    def refuse(index: int) -> FakePhc:
        raise PermissionError(errno.EACCES, "no")

    clocks = HostClocks(HostConfig("h1", NICS), Clock(), index_of=lambda nic: 0, open_device=refuse, now_ns=lambda: 0)
    assert clocks.read() is None
    assert clocks.counters.as_dict() == {"host-clock.refused.open.eacces": 1}
    assert rows(world.clocks())


def test_a_window_too_wide_is_refused() -> None:
    world = World(step_ns=phc.WIDEST_NS)
    clocks = world.clocks()
    assert clocks.read() is None
    assert clocks.counters.get("refused", "extended.no-sample") == 1


def test_a_virtual_clock_changes_both_clocks_as_it_changes_probes() -> None:
    """A NIC's stamps in probe rows go through it, too: the two must stay one clock."""
    plain, wrong = rows(World(ahead_ns=500).clocks()), rows(World(ahead_ns=500).clocks(VirtualClock(offset_ns=1e6)))
    for name in ("t1_ns", "t2_ns", "t3_ns", "t4_ns"):
        assert wrong[0][name] - plain[0][name] == 1_000_000


def test_sysfs_names_the_clock_where_the_driver_does_not(tmp_path: Any) -> None:
    assert _sysfs_index("eth0", str(tmp_path)) is None
    (tmp_path / "class/net/eth0/device/ptp/ptp12").mkdir(parents=True)
    assert _sysfs_index("eth0", str(tmp_path)) == 12


@pytest.mark.parametrize("seed", range(20))
def test_random_answers_are_read_without_an_exception(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for method in phc.METHODS:
        for _ in range(50):
            found = phc.samples(method, rng.bytes(method.size))
            assert found.dtype == np.int64 and found.shape[1] == 3
            assert (found >= 0).all() and (found[:, 2] >= found[:, 0]).all()
            phc.best(found)


def test_a_nics_own_clock_is_named_after_it_whatever_the_far_hosts_clock_is_called() -> None:
    for named in (None, "other"):
        session = SessionConfig("h1/r0", "h2/r0", "10.0.0.9", clock_dst=named)
        assert clock_of_far_end(session, hardware=True) == "h2/r0"
        assert clock_of_far_end(session, hardware=False) == (named or "h2")


def test_rates_and_names_that_cannot_work_are_refused() -> None:
    host = {"host": "h1", "nics": [{"nic": "h1/r0", "device": "eth0", "address": "10.0.0.1"}]}
    with pytest.raises(ConfigError, match="phc_rate_hz must lie within 0 and 10"):
        read_agent({"hosts": [host], "phc_rate_hz": 50})
    with pytest.raises(ConfigError, match=r"hosts\.0\.host: utc is no host's name"):
        read_agent({"hosts": [{"host": "utc", "nics": []}]})


def test_no_reader_of_paths_takes_a_host_edge() -> None:
    edges = World().clocks().read()
    assert edges is not None
    assert paths_only(edges).num_rows == 0
    report = PathReport(np.random.default_rng(0))
    report.add(edges)
    assert report.paths() == [] and report.totals() == (0, 0)
    stage = DetectStage()
    stage.step([Message(PROBE.name, "h1", edges, NOW, 0)], NOW)
    assert stage._engines.sessions.count == 0 and stage.counters.total("refused") == 0
