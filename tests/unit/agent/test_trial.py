"""Two hosts without a configuration: the same names at both ends; the closing report."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.agent import trial
from sdfstream.agent.config_file import check
from sdfstream.agent.report import SAMPLES, PathReport, table
from sdfstream.agent.trial import Peer, PeerRoute, TrialConfig, parse_peer
from sdfstream.errors import ConfigError
from sdfstream.records import columns
from sdfstream.records.topics import PROBE
from sdfstream.records.units import ABSENT_NS, NS_PER_S


@pytest.mark.parametrize(
    ("text", "peer"),
    [
        ("10.0.0.2", Peer(None, "10.0.0.2", None)),
        ("gpu-2", Peer(None, "gpu-2", None)),
        ("gpu-2:9000", Peer(None, "gpu-2", 9000)),
        ("b=10.0.0.2:9000", Peer("b", "10.0.0.2", 9000)),
        ("fd00::2", Peer(None, "fd00::2", None)),
        ("b=[fd00::2]:9000", Peer("b", "fd00::2", 9000)),
        ("[fd00::2]", Peer(None, "fd00::2", None)),
    ],
)
def test_peers_are_read(text: str, peer: Peer) -> None:
    assert parse_peer(text) == peer


@pytest.mark.parametrize("text", ["", "=1.2.3.4", "a=", "a/b=1.2.3.4", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:70000", "x:0"])
def test_what_is_no_peer_is_refused(text: str) -> None:
    if text == "1.2.3.4:":
        assert parse_peer(text) == Peer(None, "1.2.3.4", None)
        return
    with pytest.raises(ConfigError, match="must be HOST"):
        parse_peer(text)


@pytest.mark.parametrize(
    ("a_name", "b_name", "a_peer", "b_peer"),
    [(None, None, None, None), ("a", "b", "b", "a"), ("a", None, None, "a")],
)
def test_both_ends_call_both_nics_the_same(
    a_name: str | None, b_name: str | None, a_peer: str | None, b_peer: str | None
) -> None:
    a = trial.build(a_name, [PeerRoute(Peer(a_peer, "x", None), "10.0.0.2", "10.0.0.1", "eth0")], TrialConfig())
    b = trial.build(b_name, [PeerRoute(Peer(b_peer, "y", None), "10.0.0.1", "10.0.0.2", "eth1")], TrialConfig())
    check(a)
    check(b)
    assert a.hosts[0].sessions[0].dst == b.hosts[0].nics[0].nic
    assert b.hosts[0].sessions[0].dst == a.hosts[0].nics[0].nic
    assert a.hosts[0].host != b.hosts[0].host


def test_one_nic_serves_several_peers_and_v6_names_have_no_colon() -> None:
    routes = [PeerRoute(Peer(None, "x", port), f"fd00::{i}", "fd00::1", "eth0") for i, port in ((2, None), (3, 9))]
    config = trial.build(None, routes, TrialConfig(paths=2))
    check(config)
    assert [n.nic for n in config.hosts[0].nics] == ["fd00__1/fd00__1"]
    assert [(s.dst, s.dst_port) for s in config.hosts[0].sessions] == [
        ("fd00__2/fd00__2", 8620),
        ("fd00__3/fd00__3", 9),
    ]
    assert trial.build("h", routes, TrialConfig(), reflect_only=True).hosts[0].sessions == ()


def test_whoever_only_answers_answers_the_peers_it_names_and_strangers_only_where_it_names_none() -> None:
    named = [PeerRoute(Peer(None, "x", None), "10.0.0.2", "10.0.0.1", "eth0")]
    anybody = [PeerRoute(Peer(None, "", None), "-0", "10.0.0.1", "eth0")]
    found = {
        key: trial.build("h", routes, TrialConfig(), reflect_only=only)
        for key, routes, only in (("probes", named, False), ("answers", named, True), ("anybody", anybody, True))
    }
    for config in found.values():
        check(config)
    assert {k: (c.reflector_allow, c.reflector_strangers) for k, c in found.items()} == {
        "probes": ((), False),
        "answers": (("10.0.0.2",), False),
        "anybody": ((), True),
    }


def test_impossible_trials_are_refused() -> None:
    with pytest.raises(ConfigError, match="no peer"):
        trial.build(None, [], TrialConfig())
    twice = [PeerRoute(Peer(None, "x", None), "10.0.0.2", "10.0.0.1", "eth0")] * 2
    with pytest.raises(ConfigError, match="same address"):
        trial.build(None, twice, TrialConfig())


def exchanges(n: int, lost: int = 0, drift_ppm: float = 0.0, spread_ns: int = 1000, offset_ns: int = 10**9) -> object:
    """n exchanges of one path, 100 a second, forward delays 5 000 ns + 0…spread_ns."""
    rng = np.random.default_rng(7)
    t1 = np.arange(n, dtype=np.int64) * 10_000_000 + 1_800_000_000 * NS_PER_S
    forward = 5_000 + rng.integers(0, spread_ns, n)
    t2 = t1 + forward + offset_ns + (np.arange(n) * 10 * drift_ppm).astype(np.int64)
    t3 = t2 + 100_000
    t4 = t1 + forward + 100_000 + 4_000
    gone = np.arange(n) < lost
    some = {name: np.where(gone, ABSENT_NS, v) for name, v in (("t2_ns", t2), ("t3_ns", t3), ("t4_ns", t4))}
    one = np.ones(n, np.uint8)
    return columns.build(
        PROBE.columns,
        {
            "src": ["a/0"] * n, "dst": ["b/0"] * n, "clock_src": ["a"] * n, "clock_dst": ["b"] * n,
            "transport": ["udp"] * n, "path": np.full(n, 50000, np.uint32), "seq": np.arange(n, dtype=np.uint32),
            "t1_ns": t1, **some, **{f"t{i}_kind": one for i in (1, 2, 3, 4)}, "dscp_sent": one * 46,
            "ecn_sent": one * 2, "ecn_fwd": np.where(np.arange(n) % 10 == 9, 3, 2).astype(np.uint8),
            "ecn_rev": one * 2, "size_bytes": np.full(n, 128, np.uint16), "ttl_fwd": one * 252, "ttl_rev": one * 251,
        },
    )  # fmt: skip


def test_the_report_counts_and_measures() -> None:
    report = PathReport(np.random.default_rng(1))
    batch = exchanges(1000, lost=50)
    for start in range(0, 1000, 130):
        report.add(batch.slice(start, 130))  # type: ignore[attr-defined]
    (path,) = report.paths()
    assert (path["src"], path["dst"], path["path"], path["dscp"]) == ("a/0", "b/0", 50000, 46)
    assert (path["n"], path["lost"], path["ce_fwd"], path["ce_rev"]) == (1000, 50, 95, 0)
    assert (path["ttl_fwd"], path["ttl_rev"]) == ([252], [251])
    assert 9_000 <= path["rtt_min_ns"] <= path["rtt_p50_ns"] <= path["rtt_p99_ns"] <= 10_000
    assert 900 <= path["fwd_spread_ns"] <= 1_000
    assert report.totals() == (950, 50)
    text = table(report.paths())
    assert "a/0 > b/0" in text
    assert "5.00 %" in text


def test_a_drift_of_the_clocks_is_no_spread() -> None:
    report = PathReport(np.random.default_rng(1))
    report.add(exchanges(5000, drift_ppm=50.0))  # 2.5 ms over the run
    assert report.paths()[0]["fwd_spread_ns"] < 1_500


def test_long_runs_keep_a_bounded_sample_of_everything() -> None:
    report = PathReport(np.random.default_rng(1))
    report.add(exchanges(3 * SAMPLES))
    (path,) = report.paths()
    assert path["n"] == 3 * SAMPLES
    assert 9_450 <= path["rtt_p50_ns"] <= 9_550


def test_a_path_without_an_answer_has_no_times() -> None:
    report = PathReport(np.random.default_rng(1))
    report.add(exchanges(10, lost=10))
    (path,) = report.paths()
    assert "rtt_min_ns" not in path
    assert "100.00 %" in table([path])
