"""Scenario files: defaults, and sentences that name the key."""

from __future__ import annotations

from typing import Any

import pytest

from sdfstream.errors import ConfigError
from sdfstream.twin import shipped_io
from sdfstream.twin.scenario import parse, read
from sdfstream.twin.simulation import Twin


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"fabrik": {}}, "'fabrik' is no key; do you mean 'fabric'?"),
        ({"fabric": {"hosts": "8"}}, "fabric.hosts must be a whole number"),
        ({"fabric": {"hosts": True}}, "fabric.hosts must be a whole number"),
        ({"fabric": {"hosts": 1}}, "fabric.hosts must lie between 2 and 20000"),
        ({"fabric": {"kind": "torus"}}, "fabric.kind must be one of rail, leaf-spine, three-tier"),
        ({"fabric": {"kind": "rail", "rails": 3}}, "fabric.leaves must be a multiple of fabric.rails"),
        ({"faults": [{"kind": "link-dwon"}]}, "faults[0].kind: no kind 'link-dwon'; do you mean 'link-down'?"),
        ({"faults": [{"kind": "link-down", "at": 90}]}, "faults[0].at lies behind the end"),
        ({"faults": {}}, "faults must be a list"),
        ([], "the file must be a mapping"),
        ({"seconds": float("nan")}, "seconds must lie between"),
    ],
)
def test_what_cannot_be_is_refused_with_the_path_of_its_key(data: Any, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(data, "s.yaml")
    assert str(refused.value).startswith("s.yaml: ")
    assert said in str(refused.value)


def test_a_target_that_the_fabric_lacks_is_refused() -> None:
    scenario = parse({"faults": [{"kind": "host-down", "target": "h999"}]}, "s.yaml")
    with pytest.raises(ConfigError, match=r"faults\[0\].target: the fabric has no host 'h999'"):
        Twin(scenario, 1, "s.yaml")


@pytest.mark.parametrize("name", shipped_io.names())
def test_every_shipped_scenario_is_read_and_says_what_it_is_about(name: str) -> None:
    scenario = read(shipped_io.find(name))
    assert scenario.about
    assert scenario.name == name
    Twin(scenario, 1)
