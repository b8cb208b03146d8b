"""Nothing is known of the fabric: a link or switch at fault is placed by the NICs and paths that single it out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

import sdfstream.twin
from sdfstream import pipeline
from sdfstream.records.message import Event
from sdfstream.records.topics import FINDING
from sdfstream.runtime.replay import replay
from sdfstream.score.detect.facts import RunFacts, facts
from sdfstream.score.detect.run import run as scored
from sdfstream.settings import Settings
from sdfstream.twin.recording_io import fabric_truth, route_truth
from sdfstream.twin.scenario import parse
from sdfstream.twin.simulation import Twin

SCENARIOS: Final = Path(sdfstream.twin.__file__).parent / "scenarios"
EIGHT: Final = ({"kind": "leaf-spine", "hosts": 8, "leaves": 4, "spines": 4}, {"peers": 5, "ports": 3})
MORE: Final = ({"kind": "leaf-spine", "hosts": 24, "leaves": 6, "spines": 4}, {"peers": 5, "ports": 2})
"""Of so many hosts each probes a few: some of a leaf are tied to their neighbours by no probe."""


def run(seed: int, seconds: float, *faults: dict[str, Any], of: tuple[Any, Any] = EIGHT) -> RunFacts:
    """A blind twin with these faults, through detect alone: silence and loss need no clocks."""
    data = {
        "about": "nothing is known", "fabric": of[0],
        "probes": of[1], "known": {"topology": False, "traces": False},
        "load": {"utilisation": 0.3}, "seconds": seconds, "faults": list(faults),
    }  # fmt: skip
    twin = Twin(parse(data, "x", "x"), seed, "x")
    (detect,) = [stage for stage in pipeline.stages(Settings()) if stage.name == "detect"]
    end_ns = twin.start_ns + round(seconds * 1e9)
    said = [
        dict(message.body.data)
        for message in replay(twin.messages(), [detect], twin.start_ns, end_ns)
        if message.topic == FINDING.name and isinstance(message.body, Event)
    ]
    truth = [fault.truth(twin.start_ns, seconds, twin.fabric.names) for fault in twin.faults]
    return facts(fabric_truth(twin) | {"routes": route_truth(twin)}, truth, said, blind=True)


@pytest.mark.parametrize("seed", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", ["link-down", "switch-down"])
def test_what_died_between_the_switches_is_placed(kind: str, seed: int) -> None:
    made = run(seed, 20.0, {"kind": kind, "at": 8, "lasts": 7})
    (fact,) = made.faults
    assert (fact.found, fact.exact, fact.inferred, fact.cause) == (True, True, True, True), fact
    assert fact.directed is not False
    assert fact.delay_s is not None
    assert fact.delay_s < 1.6
    assert made.false_alarms == []


@pytest.mark.parametrize("seed", [1, 2])
def test_one_direction_of_a_link_is_told_as_one(seed: int) -> None:
    (fact,) = run(seed, 16.0, {"kind": "link-down", "at": 8, "lasts": 6, "direction": "random"}).faults
    assert (fact.exact, fact.directed) == (True, True), fact


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_leaf_whose_neighbours_are_not_all_probed_is_one_leaf(seed: int) -> None:
    """It fell into parts, each with its own link that was told as dead."""
    made = run(seed, 13.0, {"kind": "link-down", "at": 8, "lasts": 4, "direction": "random"}, of=MORE)
    (fact,) = made.faults
    assert (fact.exact, fact.directed, fact.findings) == (True, True, 1), fact
    assert made.false_alarms == []


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("kind", "probes"), [("mtu", {"peers": 5, "ports": 2, "large_hz": 2}), ("remark", EIGHT[1] | {"dscp": 26})]
)
def test_a_link_that_is_set_wrongly_is_placed_like_a_dead_one(kind: str, probes: Any, seed: int) -> None:
    """By the NICs that share its switch, which the finding lists, and the paths over it."""
    made = run(seed, 16.0, {"kind": kind, "at": 8, "lasts": 7}, of=(EIGHT[0], probes))
    (fact,) = made.faults
    assert (fact.exact, fact.inferred, fact.cause, fact.findings) == (True, True, True, 1), fact
    assert made.false_alarms == []


def test_a_link_all_paths_of_one_nic_cross_by_chance_is_the_link_alone() -> None:
    """Nobody probes between the two NICs of its leaf; one was told as well, as though it passed no large packets."""
    made = scored(SCENARIOS / "mtu-blind.yaml", 221, Settings())
    (fact,) = made.faults
    assert (fact.exact, fact.inferred, fact.cause, fact.findings) == (True, True, True, 1), fact
    assert made.false_alarms == []


@pytest.mark.parametrize("seed", [1, 2])
def test_a_dead_link_is_no_matter_of_size_where_large_packets_are_probed(seed: int) -> None:
    probes = {"peers": 5, "ports": 2, "large_hz": 2}
    made = run(seed, 20.0, {"kind": "link-down", "at": 8, "lasts": 9}, of=(EIGHT[0], probes))
    (fact,) = made.faults
    assert fact.reported == (f"link-down link {fact.target}",), fact
    assert made.false_alarms == []


@pytest.mark.parametrize("seed", [81, 82, 83])
def test_a_lossy_link_is_one_finding_though_both_nics_of_its_leaf_seem_to_lose(seed: int) -> None:
    """Each NIC explained the other's losses away; what was left were paths, and paths beside the link later on."""
    made = run(seed, 34.0, {"kind": "gray-loss", "at": 8, "lasts": 20, "share": 0.1})
    (fact,) = made.faults
    assert (fact.exact, fact.inferred, fact.cause, fact.findings) == (True, True, True, 1), fact
    assert fact.delay_s is not None
    assert fact.delay_s < 4
    assert made.false_alarms == []


@pytest.mark.parametrize("seed", [91, 92])
def test_where_packets_are_sprayed_both_nics_of_a_leaf_lose_by_one_link_of_it(seed: int) -> None:
    """Which one no measurement from outside tells; each NIC was told, with the link beside."""
    sprayed = EIGHT[0] | {"hash": "spray"}
    made = run(seed, 26.0, {"kind": "gray-loss", "at": 8, "lasts": 12, "share": 0.1}, of=(sprayed, EIGHT[1]))
    (fact,) = made.faults
    assert (fact.found, fact.cause, fact.findings) == (True, True, 1), fact
    assert made.false_alarms == []


@pytest.mark.parametrize("seed", [84, 101])
def test_one_percent_that_no_single_path_shows_is_placed(seed: int) -> None:
    made = run(seed, 30.0, {"kind": "gray-loss", "at": 8, "share": 0.01})
    (fact,) = made.faults
    assert (fact.exact, fact.inferred, fact.cause, fact.findings) == (True, True, True, 1), fact
    assert made.false_alarms == []


@pytest.mark.parametrize("direction", ["fwd", "rev"])
def test_a_nic_that_loses_in_one_direction_has_it_named(direction: str) -> None:
    """A lost probe's row says nothing of it: the reflectors' own numbers do."""
    fault = {"kind": "gray-loss", "at": 8, "lasts": 14, "share": 0.03, "target": "h002/r0", "direction": direction}
    made = run(4, 22.0, fault)
    (fact,) = made.faults
    assert (fact.exact, fact.directed, fact.cause, fact.findings) == (True, True, True, 1), fact
    assert made.false_alarms == []


@pytest.mark.parametrize("seed", [82, 83])
def test_a_leaf_that_dies_is_told_as_one(seed: int) -> None:
    """It was two NICs, where no cabling is declared."""
    made = run(seed, 18.0, {"kind": "switch-down", "at": 8, "lasts": 7, "target": "l2"})
    (fact,) = made.faults
    assert fact.reported == ("link-down switch l2",), fact
    assert made.false_alarms == []


@pytest.mark.parametrize("seed", [81, 82])
def test_a_link_that_is_down_for_a_moment_again_and_again_flaps(seed: int) -> None:
    made = run(seed, 28.0, {"kind": "link-flap", "at": 8, "lasts": 19, "every_s": 2, "up_s": 0.3})
    (fact,) = made.faults
    assert fact.reported == (f"link-flap link {fact.target}",), fact
    assert (fact.exact, fact.inferred, fact.cause) == (True, True, True), fact
    assert made.false_alarms == []


@pytest.mark.parametrize("seed", [1, 2])
def test_a_nic_is_still_a_nic(seed: int) -> None:
    made = run(seed, 16.0, {"kind": "nic-down", "at": 8, "lasts": 6})
    (fact,) = made.faults
    assert (fact.exact, fact.inferred) == (True, False)
    assert made.false_alarms == []


def test_a_link_is_not_named_while_a_nic_at_the_other_end_may_show_another() -> None:
    """Paths between two leaves lose, and so does a NIC of the second: the second's link explains both."""
    of = ({"kind": "leaf-spine", "hosts": 16, "leaves": 4, "spines": 4}, {"peers": 5, "ports": 2})
    found = run(172, 50.0, {"kind": "gray-loss", "at": 20, "lasts": 20, "share": 0.03, "direction": "random"}, of=of)
    assert (found.faults[0].exact, found.faults[0].findings, found.false_alarms) == (True, 1, [])


@pytest.mark.parametrize("seed", [203, 224])
def test_a_leaf_whose_parts_nobody_probes_between_is_one_by_its_size(seed: int) -> None:
    """A link of a leaf with so few NICs that there is none was told, beside the right one or instead (of several)."""
    of = ({"kind": "leaf-spine", "hosts": 16, "leaves": 4, "spines": 4}, {"peers": 5, "ports": 2})
    found = run(seed, 50.0, {"kind": "gray-loss", "at": 20, "lasts": 20, "share": 0.03, "direction": "random"}, of=of)
    assert (found.faults[0].exact, found.faults[0].findings, found.false_alarms) == (True, 1, [])


FOUR: Final = ({"kind": "leaf-spine", "hosts": 16, "leaves": 4, "spines": 4}, {"peers": 5, "ports": 3})


@pytest.mark.parametrize("seed", [1, 2, 422])
def test_a_link_that_drops_some_flows_alone_is_not_told_as_dead(seed: int) -> None:
    """Nor is it when it heals: its paths come back one by one. Twelve of 114 paths are dead on seed 422."""
    made = run(seed, 22.0, {"kind": "hash-loss", "at": 8, "lasts": 7, "direction": "random"}, of=FOUR)
    (fact,) = made.faults
    assert (fact.exact, fact.inferred, fact.directed, fact.cause) == (True, True, True, True), fact
    assert [text.split()[0] for text in fact.reported] == ["loss"]
    assert made.false_alarms == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_link_that_passes_nothing_in_one_direction_is_dead_and_stays_so_until_it_heals(seed: int) -> None:
    made = run(seed, 22.0, {"kind": "link-down", "at": 8, "lasts": 7, "direction": "random"}, of=MORE)
    (fact,) = made.faults
    assert (fact.exact, fact.directed, fact.cause) == (True, True, True), fact
    assert [text.split()[0] for text in fact.reported] == ["link-down"]
    assert fact.delay_s is not None and fact.delay_s < 1.2
    assert made.false_alarms == []


@pytest.mark.parametrize("seed", [202, 422, 425])
def test_a_leaf_none_of_whose_nics_probe_each_other_is_told_and_not_its_nics(seed: int) -> None:
    shape = {"kind": "leaf-spine", "hosts": 12, "leaves": 6, "spines": 3}
    made = run(seed, 20.0, {"kind": "switch-down", "at": 8, "lasts": 7, "target": "l2"}, of=(shape, EIGHT[1]))
    (fact,) = made.faults
    assert (fact.exact, fact.cause, fact.findings) == (True, True, 1), fact
