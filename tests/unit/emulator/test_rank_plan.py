"""A job on paper: numbers, ports, what is refused."""

from __future__ import annotations

import pytest

from sdfstream.emulator.rank_plan import ALTERNATES, BLOCKS, JobSpec, NicEndpoint, plan
from sdfstream.errors import ConfigError
from sdfstream.records.job import job_shard, queue_pair


def nics(n: int) -> list[NicEndpoint]:
    return [NicEndpoint(f"h{i:02d}/r0", "r0", f"10.0.0.{i + 1}") for i in range(n)]


def hosts(n: int) -> tuple[str, ...]:
    return tuple(f"h{i:02d}" for i in range(n))


def test_no_two_queue_pairs_of_a_nic_share_a_port_whatever_their_jobs() -> None:
    taken: dict[str, list[int]] = {}
    numbers: list[int] = []
    for block in range(BLOCKS):
        spec = JobSpec("t", hosts(9), collective="all-to-all", qps=8, block=block)
        for qp in plan(spec, nics(9)).qps:
            taken.setdefault(qp.src, []).extend(qp.ports)
            numbers.append(qp.number)
            assert len(qp.ports) == 1 + ALTERNATES
    assert len(set(numbers)) == len(numbers)
    for ports in taken.values():
        assert len(set(ports)) == len(ports) == BLOCKS * 64 * 17
        assert set(ports) <= set(range(50_000, 65_536))  # probes use 49152..49999


def test_the_same_job_has_the_same_plan() -> None:
    spec = JobSpec("t", hosts(4), qps=3)
    assert plan(spec, nics(4)) == plan(spec, nics(4))


def test_given_ports_are_used_and_never_offered_as_anothers_alternate() -> None:
    spec = JobSpec("t", hosts(2), qps=2, ports=(50_001, 60_000, 50_002, 50_003))
    first, second, third, _ = plan(spec, nics(2)).qps
    assert (first.ports[0], second.ports[0], third.ports[0]) == (50_001, 60_000, 50_002)
    assert not set(first.ports) & set(second.ports)
    same = plan(JobSpec("t", hosts(3), qps=2, ports=(50_001, 60_000)), nics(3)).qps
    assert [qp.ports[0] for qp in same] == [50_001, 60_000] * 3


def test_a_queue_pair_reads_as_the_job_map_reads_it() -> None:
    [qp, *_] = plan(JobSpec("t", hosts(2)), nics(2)).qps
    moved = qp.queue_pair(qp.ports[5], 1_000_000)
    assert (moved.qp, moved.path, moved.steering) == ("h00/r0#1", qp.ports[5], "socket")
    assert qp.ports[0] in moved.alternates and qp.ports[5] not in moved.alternates
    assert len(moved.alternates) == ALTERNATES
    data = {"job": "t", "host": "h00", "qps": [moved]}
    assert queue_pair({f: getattr(moved, f) for f in moved.__slots__}) == moved
    assert job_shard({**data, "qps": []}).job == "t"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "a b"}, "job.name"),
        ({"name": ""}, "job.name"),
        ({"hosts": ("h00",)}, "job.hosts"),
        ({"hosts": ("h00", "h00")}, "job.hosts"),
        ({"collective": "gather"}, "job.collective"),
        ({"qps": 65}, "job.qps"),
        ({"qps": 0}, "job.qps"),
        ({"chunk_kb": 2000}, "job.chunk_kb"),
        ({"message_mb": 0}, "job.message_mb"),
        ({"dscp": 64}, "job.dscp"),
        ({"rate_bps": 0}, "job.rate_bps"),
        ({"collectives": -1}, "job.collectives"),
        ({"seconds": 0.0}, "job.seconds"),
        ({"ports": (50_000,)}, "job.ports"),
        ({"ports": (50_000, 80)}, "job.ports"),
        ({"ports": (50_000, 50_000)}, "job.ports"),
    ],
)
def test_what_cannot_be_is_refused_with_the_key(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        JobSpec(**({"name": "t", "hosts": hosts(2)} | wrong))  # type: ignore[arg-type]


def test_a_job_needs_a_nic_for_every_host() -> None:
    with pytest.raises(ConfigError, match="2 hosts, but 1 NICs"):
        plan(JobSpec("t", hosts(2)), nics(1))
