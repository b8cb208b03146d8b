"""The agent's side of commands under everything at once: two queue pairs, links that come and go, an actuator that
refuses or says nothing, controllers of several epochs, restarts of the agent. What must hold, always:

- no limit outlives its lease;
- no queue pair is put, or put back, on a path that was not clean at the last judgement;
- nothing is started for an epoch that is over;
- what was applied ends, once, as undone or expired; held when its former path is not clean.
"""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sdfstream.agent.commands import journal
from sdfstream.agent.commands.actuator import ActuatorAnswer, ActuatorRequest, MemoryActuator
from sdfstream.agent.commands.executor import LOOK_NS, Executor
from sdfstream.agent.commands.lease import ENDS, TABLE, LeaseEvent, LeaseState
from sdfstream.records.fabric import QueuePair
from tests.fixtures.control import (
    ALIVE,
    BUS_NS,
    KEYS,
    MS,
    PATHS,
    SILENT,
    SRC,
    UNKNOWN,
    Controller,
    FakeSlots,
    S,
    queue_pair,
    shard,
    watch_of,
)

NUMBERS = (1, 2)
IDS = st.sampled_from(("a", "b", "c", "d"))
STATE_INITIALS = {"accepted": "A", "applied": "P", "held": "H", "failed": "F", "undone": "U", "expired": "E"}
LIFE = re.compile(r"(A[PHF]*([UE]|(?<=[AF])))*(A[PHF]*)?")
"""Accepted; then what it did; then one end at most, after which it may be accepted anew."""


class Agent(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 10 * S
        self.slots = FakeSlots()
        for path in PATHS:
            self.slots.set(path + 100, ALIVE)
        self.twin = MemoryActuator()
        self.qps: dict[str, QueuePair] = {f"{SRC}#{n}": queue_pair(n) for n in NUMBERS}
        self.said: dict[str, str] = {}
        self.open: list[ActuatorRequest] = []
        self.written: dict[str, Any] = {}
        self.limit_until: dict[str, int] = {}
        self.epochs_seen = 0
        self.mood = "ok"
        self.stale: dict[str, Any] | None = None
        """The journal as it was before the last requests, if no command came since: killed before it was written."""
        self.executor = Executor(["h0"], KEYS)
        self.begin()

    def begin(self) -> None:
        self.executor.attach("h0", self.slots)
        self.list_jobs()
        self.assess()

    # --- the world -----------------------------------------------------------------------------------------------

    def assess(self) -> None:
        self.written = journal.record(self.executor, self.now_ns, "boot")
        self.executor.on_liveness("h0", self.now_ns)
        self.act()

    def act(self) -> None:
        while True:
            requests, outcomes = self.executor.drain()
            for outcome in outcomes:
                if outcome.state != "refused" and outcome.action != "undo":
                    self.said[outcome.command] = self.said.get(outcome.command, "") + STATE_INITIALS[outcome.state]
            if not requests:
                return
            self.stale = self.written
            for request in requests:
                self.check(request)
                self.answer(request)

    def check(self, request: ActuatorRequest) -> None:
        if request.path is not None:
            slot = self.slots.slot(SRC, request.qp.dst, request.path + 100, 0)
            assert self.slots.states()[slot] == ALIVE, f"put on {request.path}, which is not clean"
        if request.do == "set":
            assert request.command["epoch"] == self.epochs_seen, "an epoch that is over acts"

    def answer(self, request: ActuatorRequest) -> None:
        if self.mood == "refuses":
            self.executor.take_answers([ActuatorAnswer(request.id, False, "refused: told to")], self.now_ns)
            return
        if self.mood in ("ok", "slow", "deaf-but-does"):
            done = self.twin.apply(request, self.now_ns)
            assert done is not None
            if self.mood == "ok":
                self.executor.take_answers([done], self.now_ns)
                return
        self.open.append(request)

    def list_jobs(self) -> None:
        self.twin.expire(self.now_ns)
        now = [
            queue_pair(
                n,
                path=self.twin.paths.get(f"{SRC}#{n}", PATHS[0]),
                alternates=PATHS,
                rate_bps=self.twin.rates.get(f"{SRC}#{n}"),
            )
            for n in NUMBERS
        ]
        self.executor.take_jobs("h0", [shard(*now)], self.now_ns)
        self.act()

    def path(self, number: int) -> int:
        return self.twin.paths.get(f"{SRC}#{number}", PATHS[0])

    # --- what can happen -----------------------------------------------------------------------------------------

    @rule(path=st.sampled_from(PATHS), state=st.sampled_from((ALIVE, ALIVE, SILENT, SILENT, UNKNOWN)))
    def link_changes(self, path: int, state: int) -> None:
        self.slots.set(path + 100, state)
        self.now_ns += 5 * MS
        self.assess()

    @rule(ms=st.sampled_from((5, 30, 200, 700, 1_200)))
    def time_passes(self, ms: int) -> None:
        for _ in range(max(1, ms // 20)):
            self.now_ns += min(ms, 20) * MS
            self.assess()

    @rule(mood=st.sampled_from(("ok", "ok", "refuses", "deaf", "deaf-but-does")))
    def actuator_changes(self, mood: str) -> None:
        self.mood = mood

    @precondition(lambda self: bool(self.open))
    @rule()
    def answers_time_out(self) -> None:
        late, self.open = self.open, []
        self.executor.take_answers([ActuatorAnswer(r.id, False, "no answer", sure=False) for r in late], self.now_ns)
        self.act()

    @rule()
    def job_map_is_read(self) -> None:
        self.now_ns += 2_000 * MS
        self.assess()
        self.list_jobs()

    @rule(name=IDS, number=st.sampled_from(NUMBERS), epoch=st.integers(1, 3), lease_ms=st.sampled_from((300, 1_500)))
    def arm(self, name: str, number: int, epoch: int, lease_ms: int) -> None:
        here = self.path(number)
        others = [{"path": p, "watch": watch_of(p)} for p in PATHS if p != here]
        wanted = {"watch": watch_of(here), "alternates": others, "hold_down_ms": 100}
        self.say(
            name, number, epoch, lease_ms, action="failover", set=wanted, expected={"path": here}, undo={"path": here}
        )

    @rule(name=IDS, number=st.sampled_from(NUMBERS), epoch=st.integers(1, 3), to=st.sampled_from(PATHS))
    def steer(self, name: str, number: int, epoch: int, to: int) -> None:
        here = self.path(number)
        wanted = {"path": to, "watch": watch_of(to), "former_watch": watch_of(here), "hold_down_ms": 100}
        self.say(name, number, epoch, 800, action="steer", set=wanted, expected={"path": here}, undo={"path": here})

    @rule(name=IDS, number=st.sampled_from(NUMBERS), epoch=st.integers(1, 3), lease_ms=st.sampled_from((300, 1_500)))
    def throttle(self, name: str, number: int, epoch: int, lease_ms: int) -> None:
        wanted = {"rate_bps": 1_000_000}
        self.say(name, number, epoch, lease_ms, action="throttle", set=wanted, expected={}, undo={"rate_bps": None})

    @rule(name=IDS, epoch=st.integers(1, 3))
    def undo(self, name: str, epoch: int) -> None:
        self.say(f"u-{name}", 1, epoch, 500, action="undo", set={"command": name}, expected={}, undo={})

    def say(self, name: str, number: int, epoch: int, lease_ms: int, **fields: object) -> None:
        self.now_ns += MS
        controller = Controller(epoch=epoch, lease_ns=lease_ms * MS)
        target = {"type": "qp", "id": f"{SRC}#{number}", "host": "h0", "job": "job1"}
        message = controller.message(controller.data(name, self.now_ns, target=target, **fields), self.now_ns)
        self.epochs_seen = max(self.epochs_seen, epoch)
        before = {x.command.id: x.command.issued_at_ns for x in self.executor.leases("h0")}
        self.executor.take_commands([message], self.now_ns)
        self.act()
        self.stale = None
        for lease in self.executor.leases("h0"):
            if lease.terms.kind == "limit" and before.get(lease.command.id) != lease.command.issued_at_ns:
                qp = lease.terms.qp
                self.limit_until[qp] = max(self.limit_until.get(qp, 0), lease.command.expires_at_ns - BUS_NS)

    @rule(keeps=st.booleans())
    def agent_is_killed_and_starts_again(self, keeps: bool) -> None:
        written = journal.record(self.executor, self.now_ns, "boot") if keeps or self.stale is None else self.stale
        data = json.loads(json.dumps(written))
        self.open.clear()
        self.executor = Executor(["h0"], KEYS)
        assert journal.resume(self.executor, data, self.now_ns, "boot") == []
        if written is self.stale:  # what was said after it was written is said again
            self.said = {x.command.id: "A" + "P" * (x.path is not None) for x in self.executor.leases("h0")}
        self.stale = None
        self.begin()

    # --- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def no_limit_outlives_its_lease(self) -> None:
        self.twin.expire(self.now_ns)
        for qp, rate in self.twin.rates.items():
            if rate is not None and self.mood == "ok" and not self.open:
                assert self.now_ns <= self.limit_until[qp] + LOOK_NS, "a limit is in force without a lease"

    @invariant()
    def commands_live_as_they_should(self) -> None:
        for name, life in self.said.items():
            assert LIFE.fullmatch(life), f"{name}: {life}"

    def teardown(self) -> None:
        """The controller has gone; everything heals: everything ends."""
        self.mood = "ok"
        for path in PATHS:
            self.slots.set(path + 100, ALIVE)
        self.answers_time_out()
        for _ in range(8):
            self.time_passes(1_200)
            self.job_map_is_read()
        self.now_ns += 20 * S
        self.assess()
        assert [(x.state, x.terms.kind) for x in self.executor.leases("h0")] == []
        for name, life in self.said.items():
            last = life.rpartition("A")[2]
            assert "P" not in last or last[-1] in "UE", f"{name} was applied and did not end: {life}"
        assert all(rate is None for rate in self.twin.rates.values())


Agent.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestAgent = Agent.TestCase


# --- the table itself -------------------------------------------------------------------------------------------------


def test_every_state_is_reached_and_every_state_that_is_no_end_is_left() -> None:
    reached = {LeaseState.NEW} | {after for after, _ in TABLE.values()}
    assert reached == set(LeaseState)
    assert {state for state, _ in TABLE} >= set(LeaseState) - ENDS


def test_every_event_means_something_somewhere() -> None:
    assert {event for _, event in TABLE} == set(LeaseEvent)


def test_whatever_has_changed_something_can_be_ended() -> None:
    """From every state an end can be reached without the controller."""
    own = set(LeaseEvent) - {
        LeaseEvent.ARM,
        LeaseEvent.MOVE,
        LeaseEvent.LIMIT,
        LeaseEvent.RENEW,
        LeaseEvent.UNDO,
        LeaseEvent.FIRE,
    }
    ends = set(ENDS)
    while True:
        more = {s for (s, e), (n, _) in TABLE.items() if e in own and n in ends} | ends
        if more == ends:
            break
        ends = more
    assert ends >= set(LeaseState) - {LeaseState.NEW}
