"""The corpus' scenarios on fabrics and with probes that it has none of: one finding, at its place, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

import sdfstream.twin
from sdfstream.score.detect.facts import RunFacts
from sdfstream.score.detect.run import run
from sdfstream.settings import Settings

SCENARIOS: Final = Path(sdfstream.twin.__file__).parent / "scenarios"


class Variant(NamedTuple):
    """What replaces a scenario's fabric and probes, and what its load grows by."""

    fabric: dict[str, Any]
    probes: dict[str, Any]
    more_load: float = 0.0


def leaf_spine(hosts: int, leaves: int, spines: int) -> dict[str, Any]:
    return {"kind": "leaf-spine", "hosts": hosts, "leaves": leaves, "spines": spines}


SIX_SPINES: Final = Variant(leaf_spine(24, 6, 6), {"peers": 8, "ports": 2, "hz": 5, "flush_ms": 100})
TWO_SPINES: Final = Variant(leaf_spine(16, 4, 2), {"peers": 6, "ports": 2, "hz": 16, "flush_ms": 50})
TWO_LEAVES_A_RAIL: Final = Variant(
    {"kind": "rail", "hosts": 8, "rails": 2, "leaves": 4, "spines": 3},
    {"peers": 13, "ports": 1, "hz": 12, "flush_ms": 50},
)
JITTERING: Final = Variant(
    leaf_spine(12, 3, 4), {"peers": 6, "ports": 2, "hz": 16, "flush_ms": 50, "noise_us": 8.0, "loss": 8e-4}, 0.15
)


def on(variant: Variant, name: str, seed: int, folder: Path) -> RunFacts:
    """A shipped scenario in a variant."""
    data = yaml.safe_load((SCENARIOS / f"{name}.yaml").read_text())
    data["fabric"] = data.get("fabric", {}) | variant.fabric
    data["probes"] = data.get("probes", {}) | variant.probes
    data["load"]["utilisation"] = round(data["load"]["utilisation"] + variant.more_load, 2)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(data))
    return run(path, seed, Settings())


@pytest.mark.parametrize(
    ("name", "variant", "seed"),
    [
        ("ecmp-imbalance", SIX_SPINES, 702),  # six uplinks of few probes each: four NICs explain them as well
        ("incast-three", TWO_SPINES, 601),  # an uplink two hops before the NIC's port
        ("congested-blind", TWO_SPINES, 702),  # all that a NIC gets crosses the full link
        ("ecn-mistuned", TWO_SPINES, 702),  # pauses hold up the whole fabric: clocks lose their bounds
        ("ecn-mistuned-blind", JITTERING, 703),  # three NICs are paused, for what shows later
        ("gray-10-blind", JITTERING, 703),  # no gap in round trips tells the leaves
    ],
)
def test_one_finding_at_its_place(name: str, variant: Variant, seed: int, tmp_path: Path) -> None:
    made = on(variant, name, seed, tmp_path)
    (fault,) = made.faults
    assert (fault.exact, fault.cause, fault.findings, made.false_alarms) == (True, True, 1, []), fault


def test_a_fast_flap_between_two_leaves_is_no_loss(tmp_path: Path) -> None:
    """Which of the two leaves' links it is, nothing tells; the outages are short of what counts as one by itself."""
    made = on(TWO_LEAVES_A_RAIL, "link-flap-fast-blind", 702, tmp_path)
    assert made.alarms == 1


def test_a_queue_shows_where_a_quarter_of_all_paths_is_busy_at_times(tmp_path: Path) -> None:
    """Of two uplinks it is not said that the leaf hashes badly, but where it queues."""
    made = on(TWO_SPINES, "ecmp-imbalance", 702, tmp_path)
    (fault,) = made.faults
    assert (fault.exact, fault.findings, made.false_alarms) == (True, 1, [])


def test_no_nic_is_slow_in_a_surge_that_fills_the_fabric(tmp_path: Path) -> None:
    made = on(TWO_SPINES, "healthy-blind", 702, tmp_path)
    assert (made.alarms, made.false_alarms) == (0, [])
