"""What kinds of fault do to the rows of probes, ports, clocks and topology."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sdfstream.errors import ConfigError
from sdfstream.records import columns
from sdfstream.records.fabric import SILENT_TYPE
from sdfstream.records.message import Message
from sdfstream.records.topics import LIVENESS, PORT, PROBE, TOPOLOGY
from sdfstream.records.units import ABSENT_NS
from sdfstream.twin.probing import LARGE_PORT
from sdfstream.twin.scenario import parse
from sdfstream.twin.simulation import Twin

SMALL = {
    "seconds": 8,
    "fabric": {"kind": "leaf-spine", "hosts": 6, "leaves": 3, "spines": 2},
    "probes": {"peers": 5, "ports": 4, "loss": 0.0},
    "clocks": {"ms": 50},
}


def run(seed: int = 3, **more: object) -> tuple[Twin, list[Message]]:
    twin = Twin(parse({**SMALL, **more}, "s.yaml"), seed)
    return twin, list(twin.messages())


def rows(twin: Twin, messages: list[Message]) -> list[dict[str, Any]]:
    """Probe rows with `crosses` (a path crosses the first fault's links, there or back) and `at_s`, their true time."""
    table, links, s = twin.sessions.tables[-1], twin.faults[0].links, twin.sessions
    names = [(twin.fabric.nics[a], twin.fabric.nics[b]) for a, b in zip(s.src.tolist(), s.dst.tolist(), strict=True)]
    number = {(*pair, port): k for k, (pair, port) in enumerate(zip(names, s.port.tolist(), strict=True))}
    found = []
    for body in (m.body for m in messages if m.topic == PROBE.name):
        for row, t1_ns in zip(body.to_pylist(), columns.instants(body, "t1_ns").tolist(), strict=True):
            k = number[row["src"], row["dst"], row["path"]]
            host = twin.fabric.hosts.index(row["clock_src"])
            at_ns = t1_ns - twin.start_ns
            at_ns -= round(twin.clocks.offset(np.array([host]), np.array([at_ns]))[0])
            lost = row["t4_ns"] in (None, ABSENT_NS)
            there, back = (bool(np.isin(routes[0, k], links).any()) for routes in (table.fwd, table.rev))
            found.append({**row, "number": k, "lost": lost, "there": there, "back": back, "at_s": at_ns / 1e9})
    return found


def test_hash_loss_drops_whole_paths_over_the_link_and_passes_the_others() -> None:
    fault = {"kind": "hash-loss", "at": 0, "direction": "fwd", "share": 0.4}
    twin, messages = run(faults=[fault])
    lost: dict[tuple[int, bool], set[bool]] = {}
    for row in rows(twin, messages):
        lost.setdefault((row["number"], row["there"] or row["back"]), set()).add(row["lost"])
    assert all(len(values) == 1 for values in lost.values()), "a five-tuple fares the same all the time"
    hit = [values.pop() for (_, crosses), values in lost.items() if crosses]
    assert 0.2 < np.mean(hit) < 0.65
    assert not any(values.pop() for (_, crosses), values in lost.items() if not crosses)
    traced = [m.body for m in messages if m.topic == TOPOLOGY.name and "path" in m.body.data]
    whole = [event for event in traced if event.type != SILENT_TYPE]
    assert len(whole) == 2 * len(twin.sessions) - sum(hit), "what is dropped cannot be traced"
    assert whole != traced, "but how far silent paths' packets get is told"


@pytest.mark.parametrize(("large_bytes", "is_lost"), [(1400, False), (4096, True)])
def test_a_small_mtu_stops_large_probes_alone(large_bytes: int, is_lost: bool) -> None:
    probes = {"peers": 5, "ports": 2, "loss": 0.0, "large_hz": 2, "large_bytes": large_bytes}
    twin, messages = run(probes=probes, faults=[{"kind": "mtu", "at": 0}])
    for row in rows(twin, messages):
        is_large = row["path"] == LARGE_PORT
        assert row["size_bytes"] == (large_bytes if is_large else 128)
        assert row["lost"] == (is_large and is_lost and (row["there"] or row["back"]))


def test_sessions_of_large_probes_have_a_rate_and_limits_of_their_own() -> None:
    twin, messages = run(probes={"peers": 2, "ports": 2, "hz": 10, "large_hz": 1}, seconds=12)
    s = twin.sessions
    large = s.port == LARGE_PORT
    assert len(s) == 6 * 2 * 3
    assert set(s.interval_ns[large].tolist()) == {1_000_000_000}
    assert set(s.limit_ns[large].tolist()) == {3_000_000_000}
    assert set(s.limit_ns[~large].tolist()) == {600_000_000}
    assert set(s.timeout_ns[~large].tolist()) == {500_000_000}
    paths = np.concatenate([columns.values(m.body, "path") for m in messages if m.topic == PROBE.name])
    assert np.mean(paths == LARGE_PORT) == pytest.approx(1 / 21, rel=0.1)
    stated = [c for m in messages if m.topic == LIVENESS.name for c in m.body.data["changes"]]
    assert {(c["path"] == LARGE_PORT, c["interval_ns"]) for c in stated} == {(True, 10**9), (False, 10**8)}


def test_a_degrading_optic_loses_more_and_more_and_its_nic_counts_errors() -> None:
    fault = {"kind": "optic-degrading", "at": 2, "lasts": 18, "target": "h001/r0", "direction": "rev", "share": 0.4}
    twin, messages = run(seconds=20, load={"utilisation": 0.3}, faults=[fault])
    hit = [row for row in rows(twin, messages) if row["there"] or row["back"]]
    early, late = ([row["lost"] for row in hit if low <= row["at_s"] < low + 4] for low in (2, 15))
    assert np.mean(early) < 0.1
    assert 0.25 < np.mean(late) < 0.4
    ports = [row for m in messages if m.topic == PORT.name for row in m.body.to_pylist()]
    errors = {nic: [row["symbol_errors"] for row in ports if row["nic"] == nic] for nic in twin.fabric.nics}
    assert errors["h001/r0"][1] == 0
    assert np.diff(errors["h001/r0"][3:]).min() > 1000
    assert not any(sum(values) for nic, values in errors.items() if nic != "h001/r0")


def test_a_remarking_link_shows_in_the_dscp_of_its_direction_alone() -> None:
    fault = {"kind": "remark", "at": 0, "direction": "fwd"}
    twin, messages = run(probes={"peers": 5, "ports": 4, "loss": 0.0, "dscp": 26}, faults=[fault])
    found = rows(twin, messages)
    assert {row["there"] for row in found} == {row["back"] for row in found} == {True, False}
    for row in found:
        assert row["dscp_sent"] == 26
        assert row["dscp_fwd"] == (0 if row["there"] else 26)
        assert row["dscp_rev"] == (0 if row["back"] else 26)


def test_an_asymmetry_adds_its_delay_to_one_direction_and_is_benign() -> None:
    fault = {"kind": "asymmetry", "at": 4, "direction": "fwd", "us": 200}
    twin, messages = run(faults=[fault])
    assert twin.faults[0].truth(0, 8)["benign"]
    trips = {False: [], True: []}  # type: dict[bool, list[int]]
    for row, t in zip(rows(twin, messages), _times(messages), strict=True):
        if row["there"] and not row["back"]:
            trips[row["at_s"] >= 4].append((t[3] - t[0]) - (t[2] - t[1]))
    assert np.median(trips[True]) - np.median(trips[False]) == pytest.approx(200_000, abs=2000)


def _times(messages: list[Message]) -> list[list[int]]:
    bodies = [m.body for m in messages if m.topic == PROBE.name]
    return [list(t) for b in bodies for t in zip(*(columns.instants(b, f"t{i}_ns").tolist() for i in (1, 2, 3, 4)),
                                                 strict=True)]  # fmt: skip


def test_a_faulty_clock_runs_off_while_the_fault_lasts() -> None:
    fault = {"kind": "clock-faulty", "at": 2, "lasts": 3, "target": "h002", "us": 50}
    twin, calm = run(faults=[fault])[0], run()[0]
    at = np.array([1, 2, 3, 5, 7]) * 1_000_000_000
    host = np.full(at.size, 2)
    gained = twin.clocks.offset(host, at) - calm.clocks.offset(host, at)
    assert gained == pytest.approx([0, 0, 50_000, 150_000, 150_000], abs=1)
    shown = [twin.clocks.shown(2, t, 0) - calm.clocks.shown(2, t, 0) for t in at.tolist()]
    assert shown == pytest.approx(gained, abs=1)
    lines = {line["at_ns"]: line["offset_ns"] for line in twin.clocks.truth(0) if line["clock"] == "h002"}
    assert {2_000_000_000, 5_000_000_000} <= lines.keys()


def test_swapped_cables_show_in_routes_and_not_in_the_plan() -> None:
    twin, messages = run(faults=[{"kind": "miscabled", "at": 0, "target": "h000/r0"}])
    (pair,) = twin.fabric.swapped
    first, second = (twin.fabric.nics[n] for n in pair)
    assert first == "h000/r0"
    (declared,) = [m.body.data for m in messages if m.key == "twin"]
    plan = {nic["id"]: nic["link"].split("--")[1] for nic in declared["nics"]}
    real = {nic: twin.fabric.leaves[leaf] for nic, leaf in zip(twin.fabric.nics, twin.fabric.leaf_of, strict=True)}
    assert {nic for nic in plan if plan[nic] != real[nic]} == {first, second}
    assert (plan[first], plan[second]) == (real[second], real[first])
    truth = twin.faults[0].truth(0, 8, twin.fabric.names)
    assert truth["at_ns"] == 0 and truth["healed_at_ns"] is None
    assert set(truth["links"]) >= {f"{first}->{real[first]}", f"{real[second]}->{second}"}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"kind": "miscabled", "at": 1}, "cables are swapped from the start"),
        ({"kind": "miscabled", "at": 0, "target": "h099/r0"}, "the fabric has no NIC 'h099/r0'"),
    ],
)
def test_swapped_cables_that_cannot_be_are_refused(fault: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run(faults=[fault])


def test_a_fabric_of_one_leaf_has_no_cables_to_swap() -> None:
    with pytest.raises(ConfigError, match="no other leaf"):
        run(fabric={"kind": "leaf-spine", "leaves": 1}, faults=[{"kind": "miscabled", "at": 0}])


def test_a_flapping_link_is_down_for_its_share_of_the_time() -> None:
    twin, messages = run(faults=[{"kind": "link-flap", "at": 0, "every_s": 2, "up_s": 0.5}])
    lost = [row["lost"] for row in rows(twin, messages) if row["there"] or row["back"]]
    assert "/" not in twin.faults[0].target
    assert np.mean(lost) == pytest.approx(0.25, abs=0.04)
