"""Routes by trace, and whether a source port selects one."""

from __future__ import annotations

import pytest

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.routes import Directed, ProbeKey, Routes, Selectable, hops_of
from sdfstream.numeric import codec
from sdfstream.records.fabric import Flow
from sdfstream.records.units import NS_PER_S

S = NS_PER_S
FLOW = Flow("h0/r0", "h1/r0", "udp", 51_000, 4791, 0)
PATH = Directed(ProbeKey("h0/r0", "h1/r0", 50_000, 0), "fwd")


def test_a_route_counts_only_when_whole_and_fresh() -> None:
    routes = Routes(60 * S)
    routes.take_flow(FLOW, ("a", None, "c"), False, S)
    assert routes.flow(FLOW, S) is None
    routes.take_flow(FLOW, ("a", "b", "c"), True, 2 * S)
    assert routes.flow(FLOW, 62 * S) == ("a", "b", "c")
    assert routes.flow(FLOW, 62 * S + 1) is None


def test_gaps_that_agree_change_nothing_gaps_that_contradict_make_it_unknown() -> None:
    routes = Routes(60 * S)
    routes.take_flow(FLOW, ("a", "b", "c"), True, S)
    learned = routes.take_flow(FLOW, ("a", None, "c"), False, 50 * S)
    assert learned is not None and learned.change == "gaps"
    assert routes.flow(FLOW, 55 * S) == ("a", "b", "c") and routes.flow(FLOW, 62 * S) is None, "and do not renew it"
    learned = routes.take_flow(FLOW, ("a", None, "d"), False, 56 * S)
    assert learned is not None and learned.change == "changed" and learned.before_ns == S
    assert routes.flow(FLOW, 57 * S) is None


def test_probe_paths_are_found_by_what_they_cross_there_and_back() -> None:
    routes = Routes(60 * S)
    routes.take_probe(PATH, ("a", "b"), True, S)
    back = Directed(PATH.key, "rev")
    routes.take_probe(back, ("c", "d"), True, S)
    assert routes.crossing("h0/r0", "b", S) == [PATH.key] == routes.crossing("h0/r0", "d", S)
    assert routes.crossing("h1/r0", "b", S) == []
    assert routes.over("d", S) == [back]
    routes.take_probe(PATH, ("a", "x"), True, 2 * S)
    assert routes.crossing("h0/r0", "b", 2 * S) == [] and routes.over("x", 2 * S) == [PATH]
    assert routes.over("x", 63 * S) == []
    assert routes.forget(200 * S) == 2 and len(routes) == 0 and routes.over("x", S) == []


@pytest.mark.parametrize("hops", ["abc", 5, ["a", 5]])
def test_hops_are_a_list_of_addresses_and_nulls(hops: object) -> None:
    with pytest.raises(TypeError):
        hops_of(hops)


def traced(routes: dict[int, str], **config: object) -> Selectable:
    made = Selectable(ActuateConfig(**config))  # type: ignore[arg-type]
    for port, hop in routes.items():
        made.note(("a", "b"), "udp", port, ("l", hop, "m"), "new", S, S)
    return made


@pytest.mark.parametrize(
    ("routes", "answer"),
    [
        ({}, "unknown"),
        ({1: "x"}, "unknown"),
        ({1: "x", 2: "y"}, "unknown"),  # too few traces
        ({1: "x", 2: "y", 3: "x", 4: "y"}, "yes"),
        (dict.fromkeys(range(7), "x"), "unknown"),
        (dict.fromkeys(range(8), "x"), "no"),
        ({**dict.fromkeys(range(8), "x"), 9: "y"}, "yes"),
    ],
)
def test_yes_no_and_unknown_by_what_was_traced(routes: dict[int, str], answer: str) -> None:
    verdict = traced(routes).of("a", "b", S)
    assert verdict.answer == answer
    assert verdict.ports == len(routes) and verdict.routes == len(set(routes.values()))
    assert traced(routes).of("a", "b", 400 * S).answer == "unknown", "all too old"


def test_ports_of_different_classes_are_not_mixed() -> None:
    made = traced(dict.fromkeys(range(4), "x"))
    for port in range(4):
        made.note(("a", "b"), "tcp", port, ("l", "y", "m"), "new", S, S)
    assert made.of("a", "b", S).answer == "unknown"


def test_an_unexplained_change_is_spraying_an_explained_one_is_not() -> None:
    routes = {1: "x", 2: "y", 3: "x", 4: "y"}
    for unrest_ns, answer in ((None, "no"), (12 * S, "yes")):
        made = traced(routes)
        made.note(("a", "b"), "udp", 1, ("l", "z", "m"), "changed", S, 10 * S)
        assert made.of("a", "b", 10 * S).answer == "unknown", "not known yet"
        if unrest_ns is not None:
            made.unrest(unrest_ns)  # told after the trace
        made.settle(13 * S + 1)
        assert made.of("a", "b", 14 * S).answer == answer
        assert made.of("b", "a", 14 * S).answer != "yes" or answer == "yes"
        assert made.all(14 * S)[0].changes == (unrest_ns is None)


def test_routes_that_never_rest_are_sprayed_whatever_the_unrest() -> None:
    made = traced({1: "x", 2: "y", 3: "x", 4: "y"})
    for round_ in range(3):
        made.unrest((2 + round_) * S)
        for port in (1, 2, 3):
            hops = ("l", f"w{round_}{port}", "m")
            made.note(("a", "b"), "udp", port, hops, "changed", (1 + round_) * S, (2 + round_) * S)
    made.settle(20 * S)
    verdict = made.of("a", "b", 20 * S)
    assert verdict.answer == "no" and verdict.changes == 0
    made.note(("a", "b"), "udp", 1, ("l", "x", "m"), "same", 5 * S, 20 * S)
    made.note(("a", "b"), "udp", 2, ("l", "y", "m"), "same", 5 * S, 20 * S)
    assert made.of("a", "b", 20 * S).answer == "yes", "settled again"


def test_evidence_is_forgotten_as_configured() -> None:
    made = traced({1: "x", 2: "y", 3: "x", 4: "y"})
    made.broken(("a", "b"), "udp", 1, S)
    made.settle(10 * S)
    again = Selectable(made.config)
    again.restore(codec.load(codec.dump({"s": made.snapshot()}))["s"])
    assert again.snapshot() == made.snapshot()
    made.forget(500 * S)
    assert made.of("a", "b", 500 * S).answer == "no", "spraying is remembered longer than ways"
    made.forget(700 * S)
    assert not made.all(700 * S)
