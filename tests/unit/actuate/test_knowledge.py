"""What the controller knows: ways, selectability, jobs, windows, queues, findings, keys, configuration."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sdfstream.actuate import keys_io
from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.jobs import RING, QpWindows, RunningJobs
from sdfstream.actuate.ledger import CommandLedger
from sdfstream.actuate.links import ActionableFindings
from sdfstream.actuate.paths import UNKNOWN_NS, ClockErrors, Probing
from sdfstream.actuate.refusals import Doubt, Refusals
from sdfstream.actuate.routes import Directed, ProbeKey, Routes, Selectable, hops_of
from sdfstream.errors import ConfigError, FormatError
from sdfstream.numeric import codec
from sdfstream.records import columns
from sdfstream.records.command import Outcome
from sdfstream.records.fabric import Flow, QueuePair
from sdfstream.records.job import JobShard
from sdfstream.records.signature import KeyRing, Signer
from sdfstream.records.topics import CLOCK, NAME, QP_WINDOW
from sdfstream.records.units import NS_PER_S, TICK_NS
from sdfstream.stats import Counters

S = NS_PER_S
FLOW = Flow("h0/r0", "h1/r0", "udp", 51_000, 4791, 0)
PATH = Directed(ProbeKey("h0/r0", "h1/r0", 50_000, 0), "fwd")
PAIR = QueuePair("h0/r0#1", 0, 1, "h0/r0", "h1/r0", "10.0.0.2", 51_000, 4791, steering="socket", alternates=(51_001,))


# --- routes --------------------------------------------------------------------------------------------------------


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


# --- selectable ----------------------------------------------------------------------------------------------------


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


# --- jobs ----------------------------------------------------------------------------------------------------------


def test_the_later_word_about_a_path_counts() -> None:
    jobs = RunningJobs()
    shard = JobShard("j", "h0", seen_at_ns=10, qps=(PAIR,))
    assert jobs.take(shard, S) == (["h0/r0#1"], [])
    assert jobs.moved("h0/r0#1", 51_001, 20)
    jobs.take(replace(shard, seen_at_ns=15), 2 * S)
    assert jobs.get("h0/r0#1").pair.path == 51_001, "written before the move"  # type: ignore[union-attr]
    changed, _ = jobs.take(replace(shard, seen_at_ns=25), 3 * S)
    assert changed and jobs.get("h0/r0#1").pair.path == 51_000  # type: ignore[union-attr]
    assert not jobs.moved("h0/r0#1", 51_001, 5), "an old outcome that comes late"


def test_the_job_map_does_not_know_the_path_of_a_kernel_flow() -> None:
    jobs = RunningJobs()
    shard = JobShard("j", "h0", seen_at_ns=10, qps=(replace(PAIR, steering="kernel"),))
    jobs.take(shard, S)
    jobs.moved("h0/r0#1", 51_001, 20)
    jobs.take(replace(shard, seen_at_ns=90), 3 * S)
    owned = jobs.get("h0/r0#1")
    assert owned is not None and owned.pair.path == 51_001 and owned.own == 51_000


def test_queue_pairs_are_found_by_flow_and_nic_and_go_with_their_job() -> None:
    jobs = RunningJobs()
    jobs.take(JobShard("j", "h0", qps=(PAIR,)), S)
    assert jobs.of_flow(PAIR.answers(51_001)) == ["h0/r0#1"] == jobs.of_nic("h0/r0")
    jobs.take(JobShard("k", "h0", qps=(PAIR,)), S)
    assert jobs.contested("h0/r0#1")
    assert jobs.take(JobShard("k", "h0", state="ended"), S) == ([], [])
    assert not jobs.contested("h0/r0#1") and jobs.get("h0/r0#1") is not None
    assert jobs.forget(2 * S) == ["h0/r0#1"]
    assert jobs.of_flow(PAIR.flow()) == [] == jobs.of_nic("h0/r0")


# --- windows and clocks --------------------------------------------------------------------------------------------


def qp_batch(rows: list[tuple[int, int, int]], qp: str = "q") -> object:
    """(window number, bytes, path)"""
    n = len(rows)
    needed = [f for f in QP_WINDOW.columns if not f.nullable]
    names = {f.name: ["x"] * n for f in needed if f.type == NAME}
    zeros = {f.name: np.zeros(n, f.type.to_pandas_dtype()) for f in needed if f.type != NAME}
    return columns.build(
        QP_WINDOW.columns,
        {
            **zeros,
            **names,
            "qp": [qp] * n,
            "at_ns": np.array([w * TICK_NS for w, _, _ in rows]),
            "window_ns": np.full(n, TICK_NS),
            "bytes": np.array([b for _, b, _ in rows], np.uint64),
            "path": np.array([p for _, _, p in rows], np.uint32),
        },
    )


def test_throughput_is_the_mean_over_windows_with_something_to_send() -> None:
    windows = QpWindows(Counters("t"))
    windows.take(qp_batch([(w, 1_000 if w < 10 else 3_000, 1 if w < 10 else 2) for w in (*range(5), *range(8, 14))]), S)  # type: ignore[arg-type]
    assert windows.between("q", 0, 9).bps == pytest.approx(80_000) and windows.between("q", 0, 9).n == 7
    assert windows.between("q", 0, 99, path=2).bps == pytest.approx(240_000)
    assert windows.first_on("q", 2, after=4) == 10 and windows.first_on("q", 2, after=13) is None
    assert windows.path("q", 2 * S) == 2 and windows.path("q", 9 * S) is None
    assert windows.rates(4, 2 * S) == {"q": pytest.approx(240_000)} and windows.rates(4, 9 * S) == {}
    windows.take(qp_batch([(RING + 2, 9, 2)]), S)  # type: ignore[arg-type]
    assert windows.between("q", 2, 2).n == 0, "overwritten by a later one"
    windows.take(qp_batch([(2, 9, 2)]), S)  # type: ignore[arg-type]
    assert windows.between("q", 2, 2).n == 0, "which an earlier one that comes late is not"
    windows.drop("q")
    assert windows.between("q", 0, 99).n == 0


def test_clocks_that_are_not_known_have_the_widest_bar() -> None:
    clocks = ClockErrors()
    row = {
        "at_ns": np.zeros(3, np.int64),
        "offset_ns": np.zeros(3),
        "skew_ppb": np.zeros(3),
        "n": np.ones(3, np.uint32),
    }
    clocks.take(
        columns.build(
            CLOCK.columns,
            {
                **row,
                "clock": ["h0", "h1", "h2"],
                "err_ns": np.array([5.0, 6.0, 7.0]),
                "status": ["synced", "unsynced", "holdover"],
                "kind": ["causal", "causal", "smoothed"],
            },
        ),
        S,
    )
    assert clocks.err_ns("h0/r0", 2 * S) == 5.0
    assert clocks.err_ns("h1/r0", 2 * S) == clocks.err_ns("h2/r0", 2 * S) == clocks.err_ns("h0/r0", 9 * S) == UNKNOWN_NS


# --- findings -------------------------------------------------------------------------------------------


def finding(**more: object) -> dict[str, object]:
    base = {
        "id": "f", "kind": "congestion", "status": "open", "confidence": 0.9, "detail": "queue l0->s0",
        "subject": {"type": "link", "id": "l0--s0"}, "suspects": [{"id": "s0->l0", "probability": 0.1}],
    }  # fmt: skip
    return base | more


def test_findings_point_at_link_directions() -> None:
    found = ActionableFindings(("congestion",))
    assert not found.take(finding(), S)
    assert [t.directions for t in found] == [("l0->s0",)]
    found.take(finding(detail=""), S)
    assert [t.directions for t in found] == [("l0->s0", "s0->l0")], "which of the two is not known"
    suspects = [{"id": "l0->s0", "probability": 0.5}, {"id": "l0->s1", "probability": 0.5}]
    found.take(finding(subject={"type": "switch", "id": "l0"}, suspects=suspects, detail="queue l0->s0 l0->s1"), S)
    assert [t.directions for t in found] == [("l0->s0", "l0->s1")]
    found.take(finding(status="resolved"), S)
    assert not list(found)
    assert found.take(finding(kind="link-down"), S) and not found.take(finding(kind="link-down", status="update"), S)


# --- what is said --------------------------------------------------------------------------------------------------


def test_a_renewal_is_later_and_signed_anew() -> None:
    signer = Signer(b"k" * 32)
    ledger = CommandLedger(ActuateConfig(lease_s=30.0), signer, epoch=7)
    lease = ledger.open("steer", {"id": "q", "host": "h0"}, {"path": 1}, {"path": 2}, {"path": 1}, ("f",), "enforce")
    first, second = (ledger.publish(lease, 5 * S).body.data for _ in range(2))  # type: ignore[union-attr]
    assert first["issued_at_ns"] < second["issued_at_ns"] and first["id"] == second["id"]
    assert second["expires_at_ns"] - second["issued_at_ns"] == 30 * S and second["epoch"] == 7
    ring = KeyRing([signer.public])
    assert not ring.refuses(first) and not ring.refuses(second) and ring.refuses(dict(second, epoch=8)) == "forged"


def test_only_the_commanded_host_can_answer_and_only_forwards() -> None:
    ledger = CommandLedger(ActuateConfig(), Signer(b"k" * 32), epoch=7)
    lease = ledger.open("steer", {"id": "q", "host": "h0"}, {}, {"path": 2}, {"path": 1}, (), "enforce")
    ledger.publish(lease, S)
    assert ledger.take(Outcome(lease.id, "applied", "", "h1", 5), S) is None
    assert ledger.take(Outcome("other", "applied", "", "h0", 5), S) is None
    assert ledger.take(Outcome(lease.id, "applied", "", "h0", 5), S) is lease and lease.state == "applied"
    assert ledger.take(Outcome(lease.id, "accepted", "", "h0", 4), S) is None and lease.state == "applied"
    ledger.forget(100 * S)
    assert not list(ledger)


def test_the_same_refusal_is_published_ever_more_seldom() -> None:
    refusals = Refusals(ActuateConfig())
    target, doubt = {"type": "qp", "id": "q"}, Doubt("dwell", "because")
    first = [second for second in range(300) if refusals.refuse("steer", target, doubt, (), second * S)]
    assert first == [0, 10, 30, 70, 150]
    assert refusals.refuse("steer", target, Doubt("hold", "because"), (), 300 * S), "another rule is news"
    assert refusals.refuse("steer", {"type": "qp", "id": "r"}, Doubt("dwell", "because"), (), 300 * S)


def test_paths_that_are_gone_from_a_complete_list_are_gone() -> None:
    probing = Probing()
    entry = {"role": "sender", "src": "a/0", "dst": "b/0", "path": 1, "dscp": 0, "state": "alive", "interval_ns": 5}
    assert probing.take({"host": "a", "complete": True, "changes": [entry]}) == ({"a/0"}, False)
    assert probing.take({"host": "a", "complete": False, "changes": [entry | {"state": "silent"}]}) == (set(), True)
    key = ProbeKey("a/0", "b/0", 1, 0)
    assert probing.interval_ns(key) == 5 and not probing.alive(key)
    assert probing.take({"host": "a", "complete": True, "changes": []}) == ({"a/0"}, False)
    assert probing.interval_ns(key) is None
    with pytest.raises(ValueError, match="no state"):
        probing.take({"host": "a", "complete": False, "changes": [entry | {"state": "odd"}]})


# --- keys and configuration ----------------------------------------------------------------------------------------


def test_keys_are_made_once_and_private(tmp_path: Path) -> None:
    keys = keys_io.load(tmp_path)
    private = tmp_path / "keys" / "controller.key"
    assert private.stat().st_mode & 0o777 == 0o600 and len(private.read_bytes()) == 32
    assert base64.b64decode(keys.public.read_text()) == keys.signer.public == keys_io.public_key(keys.public)
    assert keys_io.load(tmp_path).signer.key_id == keys.signer.key_id and len(keys.operators) == 0
    operators = tmp_path / "keys" / "operators"
    operators.mkdir()
    ann = keys_io.private_key(tmp_path / "ann.key")
    (operators / "ann.pub").write_bytes((tmp_path / "ann.pub").read_bytes())
    assert not keys_io.load(tmp_path).operators.refuses(ann.sign({"a": 1}))
    (operators / "bad.pub").write_text("AAAA")
    with pytest.raises(ConfigError, match="3 bytes"):
        keys_io.load(tmp_path)
    private.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        keys_io.private_key(private)


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"steer_on": ("odd",)}, "steer_on"),
        ({"lease_s": 1}, "lease_s"),
        ({"kept_gain": 0.5}, "kept_gain"),
        ({"most_alternates": 0}, "most_alternates"),
        ({"selectable_ports": 1}, "selectable_ports"),
        ({"excess_us": 0}, "excess_us"),
        ({"throttle_headroom": 2}, "throttle_headroom"),
    ],
)
def test_a_wrong_setting_is_named(wrong: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=f"actuate.{key}"):
        ActuateConfig(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [b"", b"{", b"[]", b'{"version":1}', b'{"version":9,"state":{}}'])
def test_a_foreign_snapshot_is_refused(bad: bytes) -> None:
    with pytest.raises(FormatError):
        codec.load(bad)
