"""What may be ordered without asking the executor, and what the executor makes of an order."""

from __future__ import annotations

from typing import Any

import pytest

from sdfstream.agent.commands.actuator import ActuatorAnswer
from sdfstream.agent.commands.host_state import ORDER_NS
from sdfstream.agent.commands.orders import GivenOrder
from sdfstream.agent.commands.path_watch import WatchKey
from tests.fixtures.control import MS, PATHS, SILENT, queue_pair, shard
from tests.unit.agent.commands.test_executor import QP, Bench


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.say(made.controller.failover("f", made.now_ns))
    return made


def offered(bench: Bench) -> dict[str, list[int | None]]:
    """Command to the source ports that it may order."""
    found = bench.executor.orders("h0", bench.now_ns)
    assert found is not None
    assert bench.executor.orders("h0", bench.now_ns) is None, "said once"
    return {order.command: [request.path for _, request in order.alternates] for order in found}


def test_what_is_armed_may_be_ordered_until_it_has_been(bench: Bench) -> None:
    assert offered(bench) == {"f": list(PATHS[1:])}
    (order,) = bench.executor.orders("h0", bench.now_ns) or _again(bench)
    assert order.watch == WatchKey("f", PATHS[0])
    request = bench.executor.ordered("h0", GivenOrder("f", PATHS[2]), bench.now_ns)
    assert request is not None
    bench.probe(PATHS[0], SILENT)
    assert bench.wait(20) == [], "it asks for nothing itself: the answer is on its way"
    assert bench.twin.asked == []
    assert offered(bench) == {}
    answer = ActuatorAnswer(request, True, "", {"path": PATHS[0]}, {"path": PATHS[2]})
    bench.executor.take_answers([answer], bench.now_ns)
    bench.act()
    assert [o.state for o in bench.said][-1] == "applied"
    assert bench.said[-1].why == f"the path it was on is dead and path {PATHS[2]} is clean: moved"


def _again(bench: Bench) -> Any:
    bench.executor.host_states["h0"].orders_changed = True
    return bench.executor.orders("h0", bench.now_ns)


def test_an_order_that_was_not_done_leaves_it_armed(bench: Bench) -> None:
    request = bench.executor.ordered("h0", GivenOrder("f", PATHS[1]), bench.now_ns)
    assert request is not None
    bench.executor.take_answers([ActuatorAnswer(request, False, "busy: no")], bench.now_ns)
    bench.act()
    assert bench.said[-1].state == "failed"
    assert offered(bench) == {}, "not at once again"
    bench.probe(PATHS[0], SILENT)
    assert "applied" in bench.wait(1_000)


def test_nobody_waits_for_an_order_that_fits_no_lease(bench: Bench) -> None:
    assert bench.executor.ordered("h0", GivenOrder("another", PATHS[1]), bench.now_ns) is None
    assert bench.executor.ordered("h0", GivenOrder("f", PATHS[1]), bench.now_ns) is not None
    assert bench.executor.ordered("h0", GivenOrder("f", PATHS[2]), bench.now_ns) is None, "it is being moved"
    assert bench.executor.counters.get("unmatched", "order") == 2


@pytest.mark.parametrize(
    "what", [{"steering": "kernel"}, {"steering": "none"}, {"path": PATHS[1], "alternates": PATHS}, None]
)
def test_only_what_the_engine_can_order_is_offered(bench: Bench, what: dict[str, Any] | None) -> None:
    pairs = [] if what is None else [queue_pair(**what)]
    bench.executor.take_jobs("h0", [shard(*pairs)], bench.now_ns)
    assert offered(bench) == {}


def test_of_two_commands_for_a_queue_pair_the_newest_counts_and_a_lapsed_one_never(bench: Bench) -> None:
    bench.now_ns += 1_000
    bench.say(bench.controller.failover("g", bench.now_ns))
    assert offered(bench) == {"g": list(PATHS[1:])}
    bench.wait(60_000, step_ms=1_000)
    assert offered(bench) == {}
    assert QP not in bench.twin.paths


def test_the_executor_waits_a_moment_for_an_order_and_then_asks_itself(bench: Bench) -> None:
    bench.executor.host_states["h0"].handed_over = {"f"}
    bench.probe(PATHS[0], SILENT)
    assert bench.wait(ORDER_NS / MS) == []
    assert bench.wait(5) == ["applied"]
    assert bench.path == PATHS[1]


def test_a_dead_path_without_a_clean_alternate_is_said_at_once(bench: Bench) -> None:
    bench.executor.host_states["h0"].handed_over = {"f"}
    for path in PATHS:
        bench.probe(path, SILENT)
    assert bench.wait(5) == ["held"]
