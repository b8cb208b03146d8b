"""The rhythm in which a host speaks about its liveness."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from sdfstream.agent.heartbeat import COMPLETE_NS, HEARTBEAT_NS, SETTLED_NS, Heartbeat
from sdfstream.records.units import NS_PER_MS, NS_PER_S

STEP_NS = 50 * NS_PER_MS


def spoken(changes_at: set[int], until_ns: int) -> list[tuple[int, str]]:
    """(time, what was said) of a host whose paths change at these times."""
    heartbeat, published = Heartbeat(0), []
    for now_ns in range(0, until_ns, STEP_NS):
        complete, changed = heartbeat.is_complete_due(now_ns), now_ns in changes_at
        if complete or changed or heartbeat.is_due(now_ns):
            published.append((now_ns, "complete" if complete else "changes" if changed else "empty"))
            heartbeat.published(now_ns, complete=complete, changed=changed)
    return published


def test_quiet_paths_cost_a_sign_of_life_a_second_and_a_list_every_ten() -> None:
    published = spoken(set(), 25 * NS_PER_S)
    assert [(at // NS_PER_S, what) for at, what in published if what == "complete"] == [
        (0, "complete"), (10, "complete"), (20, "complete"),
    ]  # fmt: skip
    assert [at for at, _ in published] == [n * NS_PER_S for n in range(25)]


def test_the_list_follows_a_change_once_it_has_settled() -> None:
    published = spoken({3 * NS_PER_S, 3 * NS_PER_S + STEP_NS}, 6 * NS_PER_S)
    assert (3 * NS_PER_S, "changes") in published
    assert (3 * NS_PER_S + STEP_NS + SETTLED_NS, "complete") in published
    assert sum(what == "complete" for _, what in published) == 2


@given(st.sets(st.integers(0, 30 * NS_PER_S // STEP_NS - 1).map(lambda n: n * STEP_NS), max_size=200))
def test_whatever_changes_nothing_is_late_and_no_list_is_far(changes_at: set[int]) -> None:
    published = spoken(changes_at, 30 * NS_PER_S)
    times = [at for at, _ in published]
    assert changes_at <= set(times)
    assert all(b - a <= HEARTBEAT_NS for a, b in itertools.pairwise(times))
    lists = [at for at, what in published if what == "complete"]
    assert all(SETTLED_NS <= b - a <= COMPLETE_NS for a, b in itertools.pairwise(lists))
