"""Silence from statements and from rows; directions; what is unknown stays unknown."""

import numpy as np
import pytest

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.liveness import SLACK_NS, SessionLiveness
from sdfstream.detect.presence import Presence
from sdfstream.detect.sessions import Sessions
from sdfstream.errors import ConfigError
from sdfstream.stats import Counters

S, MS = 1_000_000_000, 1_000_000
T0 = 1_800_000_000 * S
KEY = ("a/0", "b/0", "udp", 50000, 0)


class World:
    """One session a/0 > b/0 at 20 probes per second."""

    def __init__(self, **config: float) -> None:
        self.sessions = Sessions(100)
        self.presence = Presence(self.sessions)
        self.counters = Counters("detect")
        self.live = SessionLiveness(DetectConfig(**config), self.sessions, self.presence, self.counters)
        self.slot = self.sessions.of_names([KEY], T0)
        self.presence.ensure()
        self.live.table.ensure(1)
        self.seq = -1

    def row(self, ok: bool, at_s: float, seq: int | None = None) -> None:
        self.seq = self.seq + 1 if seq is None else seq
        at = T0 + round(at_s * S)
        self.presence.take_message("a", at, "")
        t1 = np.array([self.seq * 50 * MS])
        self.presence.take_report("a", at, at)
        self.live.take_rows(self.slot, np.array([self.seq]), t1, np.array([ok]), np.array([at]), np.array([at]))

    def rows(self, ok: bool, from_s: float, to_s: float) -> None:
        for i in range(round((to_s - from_s) / 0.05)):
            self.row(ok, from_s + i * 0.05)

    def says(
        self, role: str, state: str, at_s: float, age_s: float = 0.0, clock_s: float = -7200.0,
        limit_ns: object = None, **more: object,
    ) -> None:  # fmt: skip
        at = T0 + round(at_s * S)
        seen = at + round(clock_s * S)
        host = "a" if role == "sender" else "b"
        self.presence.take_message(host, at, "")
        change = {
            "role": role,
            "src": "a/0",
            "dst": "b/0",
            "transport": "udp",
            "path": 50000,
            "dscp": 0,
            "state": state,
        }
        change |= {"since_at_ns": seen - round(age_s * S), "interval_ns": 50 * MS, "missed": 0} | more
        self.presence.take_report(host, at, at, liveness=True)
        self.presence.take_limit(host, limit_ns)
        self.live.take_statement({"host": host, "seen_at_ns": seen, "changes": [change]}, at, at)

    def look(self, at_s: float):
        return self.live.look(T0 + round(at_s * S))

    def silent(self, at_s: float) -> bool:
        return bool(self.look(at_s).silent[0])


def test_rows_alone_silence_a_path_after_the_limit_and_not_before() -> None:
    w = World(liveness_ms=1000)
    w.rows(True, 0, 2)
    w.rows(False, 2.3, 3.5)
    assert not w.silent(2.9)
    assert w.silent(3.2)
    assert w.look(3.2).since_ns[0] == T0 + round(1.95 * S)
    w.row(True, 3.6)
    assert not w.silent(3.6)


def test_half_a_second_without_answers_is_no_silence() -> None:
    w = World()
    w.rows(True, 0, 2)
    w.rows(False, 2.3, 2.8)
    assert not any(w.silent(2 + i / 10) for i in range(6))


def test_rows_that_stop_are_unknown_not_silent() -> None:
    w = World()
    w.rows(True, 0, 2)
    assert not any(w.silent(2 + i) for i in range(60))
    w.rows(False, 2.3, 4)
    assert w.silent(4.1) and not w.silent(9)


def test_a_path_that_never_answered_gets_its_grace() -> None:
    w = World()
    w.rows(False, 0, 12)
    assert not w.silent(9.9) and w.silent(10.5)


def test_a_restarted_sender_begins_anew() -> None:
    w = World()
    w.seq = 10_000
    w.rows(True, 0, 2)
    w.live.restarted("a")
    w.seq = -1
    w.rows(False, 2, 4)
    assert w.silent(4)
    w = World()
    w.seq = 100_000
    w.rows(True, 0, 2)
    w.row(False, 2.1, seq=0)  # no boot id told us, but the numbers start again
    w.rows(False, 2.2, 4)
    assert w.silent(4)


@pytest.mark.parametrize("clock_s", [-1e4, 0.0, 1e4])
def test_ages_are_carried_over_whatever_the_agents_clock_says(clock_s: float) -> None:
    w = World()
    w.says("sender", "alive", 1, clock_s=clock_s)
    w.says("sender", "silent", 5, age_s=1.0, clock_s=clock_s)
    assert w.silent(5) and w.look(5).since_ns[0] == T0 + 4 * S
    w.says("sender", "silent", 5, age_s=0.0, missed=20, clock_s=clock_s)  # since names the verdict
    assert w.look(5).since_ns[0] == T0 + 4 * S


def test_statements_outrank_rows_while_they_are_fresh() -> None:
    w = World()
    w.rows(True, 0, 1)
    w.says("sender", "alive", 3)
    w.rows(False, 1.3, 3)
    assert not w.silent(3.2)
    w.rows(False, 3.1, 6.5)
    assert w.silent(6.5)  # heartbeats stopped: the rows decide


def test_the_two_witnesses_show_the_direction() -> None:
    w = World()
    w.says("sender", "alive", 1)
    w.says("reflector", "alive", 1)
    w.says("sender", "silent", 5, age_s=1)
    w.says("reflector", "alive", 5.2)
    seen = w.look(5.3)
    assert seen.silent[0] and not seen.reflector_silent[0]
    assert seen.good_fwd_ns[0] == T0 + round(5.2 * S) - S - SLACK_NS
    w.says("reflector", "silent", 5.4, age_s=1)
    assert w.look(5.4).reflector_silent[0]


def test_a_reflector_that_believes_in_a_long_interval_proves_little() -> None:
    w = World()
    w.says("sender", "silent", 5, age_s=1)
    for interval_ns in (0, 1 * S):  # 0: it has not seen two probes yet
        w.says("reflector", "alive", 5, interval_ns=interval_ns)
        assert w.look(5.5).good_fwd_ns[0] == T0 + 5 * S - 3 * S - SLACK_NS


@pytest.mark.parametrize(
    ("said", "goes_by_s"),
    [(300 * MS, 0.3), (2 * S, 2), (None, 1), (0, 1), (-S, 1), (2**63, 1), ("600", 1), (True, 1)],
)
def test_what_lives_proves_nothing_of_its_agents_own_limit(said: object, goes_by_s: float) -> None:
    """An agent that says none, or one that no agent can be set to, may go by a second, as those of former releases."""
    w = World()
    w.says("sender", "silent", 5, age_s=1)
    w.says("reflector", "alive", 5, limit_ns=said)
    assert w.look(5.5).good_fwd_ns[0] == T0 + 5 * S - round(goes_by_s * S) - SLACK_NS
    w.says("sender", "alive", 6, limit_ns=said)
    assert w.look(6.5).good_round_ns[0] == T0 + 6 * S - round(goes_by_s * S) - SLACK_NS


def test_an_agent_that_no_longer_says_its_limit_is_one_of_a_former_release() -> None:
    w = World()
    w.says("sender", "alive", 5, limit_ns=300 * MS)
    w.says("sender", "alive", 6)
    assert w.look(6.5).good_round_ns[0] == T0 + 5 * S - SLACK_NS


@pytest.mark.parametrize(("said", "age_s", "limit_s"), [(S, 1.02, 1), (S, 0.05, 0.15), (2 * S, 2.1, 2), (None, 4, 1)])
def test_a_silent_path_was_called_so_after_its_agents_limit(said: object, age_s: float, limit_s: float) -> None:
    w = World()
    w.says("sender", "silent", 5, age_s=age_s, limit_ns=said)
    assert w.look(5.1).limit_ns[0] == round(limit_s * S)


def test_unknown_is_neither_silent_nor_good() -> None:
    w = World()
    w.rows(True, 0, 1)
    w.says("sender", "unknown", 2)
    seen = w.look(2.1)
    assert seen.sender_unknown[0] and not seen.silent[0] and not seen.sender_alive[0]


def test_a_slow_session_has_three_intervals() -> None:
    w = World()
    w.says("sender", "alive", 1, interval_ns=1 * S)
    assert w.look(8).good_round_ns[0] < T0 + S - 3 * S + 1


def test_what_cannot_be_read_is_counted_and_the_rest_is_taken() -> None:
    w = World()
    good = {
        "role": "sender",
        "src": "a/0",
        "dst": "b/0",
        "transport": "udp",
        "path": 50000,
        "dscp": 0,
        "state": "alive",
    }
    odd = [{}, {"role": "sender"}, good | {"state": "fine"}, good | {"path": "x"}, good | {"role": "witness"}]
    w.presence.take_message("a", T0, "")
    w.presence.take_report("a", T0, T0, liveness=True)
    w.live.take_statement({"seen_at_ns": None, "changes": [*odd, good]}, T0, T0)
    assert w.counters.get("refused", "liveness-change") == 5
    assert w.look(0).sender_alive[0]


@pytest.mark.parametrize("bad", [{"liveness_ms": 10}, {"excess_release": 1}, {"loss_share": 0}])
def test_wrong_settings_are_refused_with_their_key(bad: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        DetectConfig(**bad)


def test_numbers_too_large_for_any_clock_are_an_age_without_end_not_the_end_of_the_stage() -> None:
    w = World()
    w.says("sender", "silent", 0, interval_ns=2**63 - 1, missed=2**63 - 1)
    w.says("reflector", "silent", 0, since_at_ns=-(2**63), interval_ns=2**63)
    w.says("sender", "alive", 1, path=2**63)
    assert w.counters.get("refused", "liveness-change") == 1
    assert w.look(2).limit_ns[0] > 0
