"""The agent's executor: one story a test, over the twin actuator."""

from __future__ import annotations

from typing import Any

import pytest

from sdfstream.agent.commands.actuator import ActuatorAnswer, MemoryActuator
from sdfstream.agent.commands.admission import Admission
from sdfstream.agent.commands.executor import Executor
from sdfstream.agent.commands.inventory import GONE_NS
from sdfstream.records.command import Outcome
from tests.fixtures.control import (
    ALIVE,
    BUS_NS,
    KEYS,
    MS,
    PATHS,
    SILENT,
    SRC,
    STRANGER,
    UNKNOWN,
    Controller,
    FakeSlots,
    S,
    queue_pair,
    shard,
    watch_of,
)  # fmt: skip

QP = f"{SRC}#1"


class Bench:
    """An executor with one host, its liveness, and the twin behind it."""

    def __init__(self) -> None:
        self.now_ns = 10 * S
        self.executor = Executor(["h0"], KEYS)
        self.slots = FakeSlots()
        self.twin = MemoryActuator()
        self.controller = Controller()
        self.said: list[Outcome] = []
        for path in PATHS:
            self.slots.set(path + 100, ALIVE)
        self.executor.attach("h0", self.slots)
        self.executor.take_jobs("h0", [shard(queue_pair())], self.now_ns)
        self.wait(5)

    def probe(self, path: int, state: int) -> None:
        self.slots.set(path + 100, state)

    def wait(self, ms: float, step_ms: float = 5) -> list[str]:
        """Let time go on in judgements; what was said."""
        before = len(self.said)
        for _ in range(max(1, round(ms / step_ms))):
            self.now_ns += round(step_ms * MS)
            self.executor.on_liveness("h0", self.now_ns)
            self.act()
        return [o.state for o in self.said[before:]]

    def say(self, *messages: Any) -> list[str]:
        before = len(self.said)
        self.executor.take_commands(messages, self.now_ns)
        self.act()
        return [o.state for o in self.said[before:]]

    def act(self) -> None:
        while True:
            requests, outcomes = self.executor.drain()
            self.said += outcomes
            if not requests:
                return
            answers = [self.twin.apply(r, self.now_ns) for r in requests]
            self.executor.take_answers([a for a in answers if a is not None], self.now_ns)

    @property
    def path(self) -> int:
        return self.twin.paths.get(QP, PATHS[0])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_armed_queue_pair_leaves_a_dead_path_and_comes_back_after_the_hold_down(bench: Bench) -> None:
    assert bench.say(bench.controller.failover("f", bench.now_ns)) == ["accepted"]
    bench.probe(PATHS[0], SILENT)
    assert bench.wait(5) == ["applied"]
    assert bench.path == PATHS[1]
    assert bench.said[-1].before["path"] == PATHS[0]
    assert bench.said[-1].after["path"] == PATHS[1]
    assert bench.wait(2_000) == []  # renewals are not due yet, the former path is dead
    bench.say(bench.controller.failover("f", bench.now_ns))
    bench.probe(PATHS[0], ALIVE)
    assert bench.wait(450) == []
    bench.probe(PATHS[0], SILENT)  # it flaps: the hold-down begins anew
    bench.wait(5)
    bench.probe(PATHS[0], ALIVE)
    assert bench.wait(480) == []
    assert bench.wait(60) == ["undone"]
    assert bench.path == PATHS[0]
    assert bench.executor.leases("h0") == []


def test_a_command_at_which_the_code_raises_is_left_and_the_next_one_obeyed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = bench.controller.failover("bad", bench.now_ns), bench.controller.failover("f", bench.now_ns)
    read = Admission.read

    def raising(admission: Admission, message: Any, now_ns: int) -> Any:
        if message is bad:
            raise RecursionError("600 lists")
        return read(admission, message, now_ns)

    monkeypatch.setattr(Admission, "read", raising)
    assert bench.say(bad, good) == ["accepted"]
    assert bench.executor.counters.get("set-aside", "RecursionError") == 1


def test_the_first_clean_alternate_is_taken(bench: Bench) -> None:
    bench.say(bench.controller.failover("f", bench.now_ns))
    bench.probe(PATHS[1], UNKNOWN)
    bench.probe(PATHS[0], SILENT)
    assert bench.wait(5) == ["applied"]
    assert bench.path == PATHS[2]


def test_without_a_clean_alternate_it_is_held_once_and_moved_when_there_is_one(bench: Bench) -> None:
    bench.say(bench.controller.failover("f", bench.now_ns))
    for path in PATHS:
        bench.probe(path, SILENT)
    assert bench.wait(500) == ["held"]
    assert bench.path == PATHS[0]
    bench.probe(PATHS[2], ALIVE)
    assert bench.wait(5) == ["applied"]
    assert bench.path == PATHS[2]


def test_a_second_failure_moves_on_and_failback_is_to_the_first_path(bench: Bench) -> None:
    bench.say(bench.controller.failover("f", bench.now_ns))
    bench.probe(PATHS[0], SILENT)
    bench.wait(5)
    bench.probe(PATHS[1], SILENT)
    assert bench.wait(5) == ["applied"]
    assert bench.path == PATHS[2]
    bench.probe(PATHS[0], ALIVE)
    assert bench.wait(1_600) == ["undone"]
    assert bench.path == PATHS[0]


def test_a_lapsed_failover_stays_where_it_is_until_its_former_path_is_clean(bench: Bench) -> None:
    bench.say(bench.controller.failover("f", bench.now_ns))
    bench.probe(PATHS[0], SILENT)
    bench.wait(5)
    assert bench.wait(4_000) == ["held"]
    assert bench.path == PATHS[1]
    bench.probe(PATHS[0], UNKNOWN)
    assert bench.wait(2_000) == []
    bench.probe(PATHS[0], ALIVE)
    assert bench.wait(600) == ["undone"]
    assert bench.path == PATHS[0]


def test_an_armed_failover_that_lapses_leaves_nothing(bench: Bench) -> None:
    bench.say(bench.controller.failover("f", bench.now_ns))
    assert bench.wait(3_050) == ["expired"]
    bench.probe(PATHS[0], SILENT)
    assert bench.wait(100) == []
    assert bench.path == PATHS[0]


def test_renewals_are_quiet_and_keep_the_lease(bench: Bench) -> None:
    bench.say(bench.controller.failover("f", bench.now_ns))
    for _ in range(5):
        assert bench.wait(2_000) == []
        assert bench.say(bench.controller.failover("f", bench.now_ns)) == []
    bench.probe(PATHS[0], SILENT)
    assert bench.wait(5) == ["applied"]


def test_bus_time_ends_a_lease_that_was_received_late(bench: Bench) -> None:
    """The message waited for two of the lease's three seconds; another message tells bus time."""
    early = bench.now_ns
    message = bench.controller.failover("f", early)
    bench.wait(2_000)
    bench.say(message)
    other = bench.controller.message({}, bench.now_ns, key="elsewhere", signed=False)
    bench.say(other)
    assert bench.wait(1_100) == ["expired"]


def test_steer_needs_a_clean_path_and_goes_back_when_undone(bench: Bench) -> None:
    bench.probe(PATHS[1], UNKNOWN)
    bench.wait(5)
    assert bench.say(bench.controller.steer("s", bench.now_ns)) == ["refused"]
    assert bench.said[-1].why == f"unexpected-state: path {PATHS[1]} is unknown by this host's own probes"
    bench.probe(PATHS[1], ALIVE)
    assert bench.say(bench.controller.steer("s", bench.now_ns + 1)) == ["accepted", "applied"]
    assert bench.path == PATHS[1]
    assert bench.wait(1_500) == []
    assert bench.say(bench.controller.undo("u", "s", bench.now_ns)) == ["accepted", "undone"]
    assert bench.path == PATHS[0]
    assert bench.say(bench.controller.steer("s", bench.now_ns + 5)) == ["refused"]  # nothing later of it counts
    assert "replayed" in bench.said[-1].why


def test_one_move_per_dwell(bench: Bench) -> None:
    bench.say(bench.controller.steer("s", bench.now_ns))
    second = bench.controller.steer("t", bench.now_ns, PATHS[2], PATHS[1])
    assert bench.say(second) == ["refused"]
    assert "moved too short a time ago" in bench.said[-1].why
    bench.wait(1_000)
    assert bench.say(bench.controller.steer("t", bench.now_ns, PATHS[2], PATHS[1])) == ["accepted", "applied"]
    # the first one lapses under the second: nothing is left of it
    bench.say(bench.controller.steer("t", bench.now_ns + 1, PATHS[2], PATHS[1]))
    assert "expired" in bench.wait(2_200)
    assert bench.path == PATHS[2]


def test_a_failover_off_a_dead_path_need_not_wait_for_the_dwell(bench: Bench) -> None:
    bench.say(bench.controller.steer("s", bench.now_ns))
    alternates = [{"path": PATHS[2], "watch": watch_of(PATHS[2])}]
    data = bench.controller.data(
        "g", bench.now_ns, expected={"path": PATHS[1]}, undo={"path": PATHS[1]},
        set={"watch": watch_of(PATHS[1]), "alternates": alternates},
    )  # fmt: skip
    assert bench.say(bench.controller.message(data, bench.now_ns)) == ["accepted"]
    bench.probe(PATHS[1], SILENT)
    assert bench.wait(5) == ["applied"]
    assert bench.path == PATHS[2]


def test_a_limit_ends_with_its_lease_and_is_renewed_until_then(bench: Bench) -> None:
    assert bench.say(bench.controller.throttle("t", bench.now_ns)) == ["accepted", "applied"]
    assert bench.twin.rates[QP] == 10_000_000
    for _ in range(3):
        bench.wait(2_000)
        assert bench.say(bench.controller.throttle("t", bench.now_ns)) == []
    bench.wait(2_000)
    bench.twin.expire(bench.now_ns)
    assert bench.twin.rates[QP] == 10_000_000
    assert bench.wait(1_050) == ["undone"]
    assert bench.twin.rates[QP] is None


def test_a_limit_whose_actuator_is_deaf_is_lifted_again_and_again_until_its_own_time_is_over(bench: Bench) -> None:
    bench.say(bench.controller.throttle("t", bench.now_ns))
    bench.twin.deaf.add(QP)
    assert bench.say(bench.controller.undo("u", "t", bench.now_ns)) == ["accepted"]
    assert bench.wait(1_000) == []
    assert sum(r.do == "undo" for r in bench.twin.asked) > 2
    assert bench.wait(2_100) == ["undone"]


def test_a_refused_failover_is_tried_again_with_pauses(bench: Bench) -> None:
    bench.say(bench.controller.failover("f", bench.now_ns))
    bench.twin.deaf.add(QP)
    bench.probe(PATHS[0], SILENT)
    said = bench.wait(1_000)
    assert 3 <= said.count("failed") <= 6
    bench.twin.deaf.clear()
    assert bench.wait(1_700) == ["applied"]


def test_a_move_without_an_answer_is_found_in_the_job_map(bench: Bench) -> None:
    bench.executor.take_commands([bench.controller.steer("s", bench.now_ns)], bench.now_ns)
    [request], _ = bench.executor.drain()
    bench.executor.take_answers([ActuatorAnswer(request.id, False, "no answer", sure=False)], bench.now_ns)
    assert bench.wait(100) == ["failed"]
    bench.executor.take_jobs("h0", [shard(queue_pair(path=PATHS[1]))], bench.now_ns)
    assert bench.wait(5) == ["applied"]


def test_a_new_epoch_disarms_what_an_old_one_armed(bench: Bench) -> None:
    bench.say(bench.controller.failover("f", bench.now_ns))
    bench.say(Controller(epoch=2).throttle("t", bench.now_ns))
    bench.probe(PATHS[0], SILENT)
    assert bench.wait(100) == []
    assert bench.path == PATHS[0]
    assert bench.say(bench.controller.failover("f", bench.now_ns)) == ["refused"]
    assert bench.said[-1].why.startswith("wrong-epoch")


def test_a_queue_pair_that_is_gone_ends_its_leases(bench: Bench) -> None:
    bench.say(bench.controller.failover("f", bench.now_ns, expires_at_ns=BUS_NS + bench.now_ns + 60 * S))
    bench.executor.take_jobs("h0", [], bench.now_ns)
    assert bench.wait(1_000) == []  # perhaps its process was only slow to answer
    bench.now_ns += GONE_NS  # the job map says nothing more: nothing changes in it
    assert bench.wait(30) == ["expired"]


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("not-enforced", {"mode": "dry-run"}),
        ("wrong-host", {"target": {"type": "qp", "id": QP, "host": "h9"}}),
        ("unknown-target", {"target": {"type": "qp", "id": "h0/r0#99", "host": "h0"}}),
        ("unknown-target", {"target": {"type": "qp", "id": QP, "host": "h0", "job": "another"}}),
        ("unexpected-state", {"expected": {"path": PATHS[2]}, "undo": {"path": PATHS[2]}}),
        ("malformed", {"undo": {"path": PATHS[2]}}),
        ("malformed", {"expected": {}}),
        ("malformed", {"expires_at_ns": 1}),
        ("malformed", {"target": {"type": "job", "id": "job1", "host": "h0"}}),
        ("unexpected-state", {"action": "slice"}),
    ],
)
def test_refusals_say_why(bench: Bench, reason: str, changes: dict[str, Any]) -> None:
    assert bench.say(bench.controller.failover("f", bench.now_ns, **changes)) == ["refused"]
    assert bench.said[-1].why.startswith(f"{reason}: ")
    assert bench.executor.counters.get("refused", reason) == 1
    assert bench.executor.leases("h0") == []


def test_strangers_and_forgers_are_refused(bench: Bench) -> None:
    assert bench.say(Controller(signer=STRANGER).failover("f", bench.now_ns)) == ["refused"]
    assert bench.said[-1].why.startswith("unknown-key")
    message = bench.controller.failover("f", bench.now_ns)
    forged = {**message.body.data, "expires_at_ns": message.body.data["expires_at_ns"] + 1}
    assert bench.say(bench.controller.message(forged, bench.now_ns, signed=False)) == ["refused"]
    assert bench.said[-1].why.startswith("forged")


def test_replays_and_expired_commands_are_refused(bench: Bench) -> None:
    message = bench.controller.failover("f", bench.now_ns)
    bench.say(message)
    assert bench.say(message) == ["refused"]
    assert bench.said[-1].why.startswith("replayed")
    old = bench.controller.failover("g", bench.now_ns - 4 * S)
    assert bench.say(old) == ["refused"]
    assert bench.said[-1].why.startswith("expired")


def test_commands_for_other_hosts_are_passed_over(bench: Bench) -> None:
    message = bench.controller.failover("f", bench.now_ns)
    other = bench.controller.message(message.body.data, bench.now_ns, key="h7", signed=False)
    assert bench.say(other) == []
    assert bench.executor.counters.get("passed-over", "other-host") == 1
