"""What docs/switches.md shows is what is read: its gnmic configuration, its cabling, its table, its SQL."""

import json
import re
from pathlib import Path

import yaml

from sdfstream.detect.switches.cables import cable_of
from sdfstream.plan import cabling_file
from sdfstream.probes.switches import leaves
from sdfstream.records import switches
from sdfstream.records.fabric import Topology
from sdfstream.records.finding import Subject
from sdfstream.records.topics import PORT

PAGE = (Path(__file__).parents[4] / "docs" / "switches.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def test_its_subscriptions_are_of_leaves_that_are_read() -> None:
    configured = yaml.safe_load(block("yaml"))
    (output,) = configured["outputs"].values()
    assert (output["type"], output["format"], output["topic"]) == ("kafka", "event", "gnmic")
    subscribed = configured["subscriptions"]["ports"]["stream-subscriptions"]
    for path in (path for one in subscribed for path in one["paths"]):
        below = leaves.plain(path)
        assert any(leaf.startswith(below) for leaf in leaves.COUNTERS | leaves.WORDS), path


def test_its_cabling_is_one_that_can_be_declared_and_names_the_ports() -> None:
    topology = Topology(cabling_file.read(json.loads(block("json")))).refuse("nics", "links", "nodes")
    ends = (("leaf-3", "Ethernet1/1"), ("spine-1", "Ethernet7"), ("leaf-3", "Ethernet17"), ("leaf-3", "Ethernet9"))
    assert [cable_of(topology, switches.port_id(*end)) for end in ends] == [
        *(2 * [Subject("link", "leaf-3--spine-1")]), Subject("nic", "gpu-17/mlx5_2"), None,
    ]  # fmt: skip


def test_columns_that_it_names_are_there() -> None:
    named = set(re.findall(r"`((?:rx|tx|fec)_[a-z]+|symbol_errors|carrier_changes|speed_mbps)`", PAGE))
    assert named and named <= set(PORT.columns.names)
    assert set(leaves.SOURCES) <= set(PORT.columns.names)
