"""Hosts heard of together are as if heard of one after the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.detect.presence import Presence
from sdfstream.detect.sessions import Sessions
from sdfstream.records.units import ABSENT_NS, NS_PER_MS

HOSTS = [f"h{i}" for i in range(5)]
START_NS = 1_800_000_000_000_000_000


def fresh() -> Presence:
    presence = Presence(Sessions(100))
    for host in HOSTS:
        presence.sessions.hosts.add(host)
    return presence


def one_by_one(presence: Presence, hosts: list[int], until_ns: list[int], at_ns: list[int]) -> list[bool]:
    slept = []
    for number, until, at in zip(hosts, until_ns, at_ns, strict=True):
        presence.take_message(HOSTS[number], at, "")
        if until != ABSENT_NS:
            presence.take_report(HOSTS[number], until, at)
        slept.append(presence.may_have_slept(HOSTS[number]))
    return slept


@given(st.integers(0, 1 << 32))
def test_hosts_of_a_slice_together_are_as_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    together, apart = fresh(), fresh()
    at = START_NS
    for _ in range(30):
        at += int(rng.choice([50, 50, 50, 400, 900, 5_000, 70_000])) * NS_PER_MS
        hosts = rng.permutation(len(HOSTS))[: rng.integers(1, len(HOSTS) + 1)]
        at_ns = at + np.sort(rng.integers(0, 50 * NS_PER_MS, hosts.size))
        late_ns = rng.choice([0, 100, 700, 3_000, 20_000], hosts.size) * NS_PER_MS
        until_ns = np.where(rng.random(hosts.size) < 0.2, ABSENT_NS, at_ns - late_ns)
        found = together.take_together(hosts, until_ns, at_ns).tolist()
        assert found == one_by_one(apart, hosts.tolist(), until_ns.tolist(), at_ns.tolist())
        for name, column in apart.hosts.snapshot().items():
            assert np.array_equal(together.hosts[name], column), name  # type: ignore[arg-type]
        for presence in (together, apart):
            presence.watermark.advance(presence.hosts["reported_ns"], at)
        if rng.random() < 0.2:
            for presence in (together, apart):
                presence.note_awake(HOSTS[int(hosts[0])])
