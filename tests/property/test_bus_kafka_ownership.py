"""Members that freeze, are dropped by their group and come back, each with an `Ownership`, over one unit.

Two laws: a unit is opened only by a member that the coordinator held for its owner after that member's last run had
ended; and once everybody is awake again, one member runs the unit and nobody is fenced any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.bus.kafka.ownership import Ownership

MEMBERS = 2
UNIT = 0


@dataclass
class Process:
    """A member as it sees itself."""

    ownership: Ownership = field(default_factory=Ownership)
    generation: int = -1
    """Of the assignment that reached it last."""
    inbox: deque[Callable[[], None]] = field(default_factory=deque)
    """What is on its way to it: assignments and answers to heartbeats, in order."""
    running: bool = False
    dropped: bool = False
    """It has learned that the group does not know it any more."""
    ended_step: int = -1


class World:
    """A coordinator, the fence of one unit, and its members."""

    def __init__(self) -> None:
        self.step = 0
        self.processes = [Process() for _ in range(MEMBERS)]
        self.group: list[int] = []
        self.generation = 0
        self.owner: int | None = None
        """The member to which the newest generation gives the unit."""
        self.owned_step = [-1] * MEMBERS
        self.fence: int | None = None
        """The member that opened the unit last; None: the brokers gave its transaction up."""
        self.fences = 0

    def act(self, what: str, who: int, pick: int) -> None:
        self.step += 1
        getattr(self, what)(who, pick)
        if self.owner is not None:
            self.owned_step[self.owner] = self.step

    def join(self, who: int, pick: int) -> None:
        process = self.processes[who]
        if who in self.group and not process.dropped:
            return
        self.group = sorted({*self.group, who})
        process.dropped = False
        self._rebalance(pick)

    def drop(self, who: int, pick: int) -> None:
        """Its session lapses; nobody tells it."""
        if who in self.group:
            self.group.remove(who)
            self._rebalance(pick)

    def _rebalance(self, pick: int) -> None:
        self.generation += 1
        self.owner = self.group[pick % len(self.group)] if self.group else None
        for member in self.group:
            units = {UNIT} if member == self.owner else set()
            self.processes[member].inbox.append(self._assignment(self.processes[member], units, self.generation))

    @staticmethod
    def _assignment(process: Process, units: set[int], generation: int) -> Callable[[], None]:
        def arrive() -> None:
            process.generation = generation
            process.ownership.assigned(units, generation)
            process.running = process.running and bool(units)

        return arrive

    def deliver(self, who: int, _: int) -> None:
        if self.processes[who].inbox:
            self.processes[who].inbox.popleft()()

    def heartbeat(self, who: int, _: int) -> None:
        process = self.processes[who]
        question, generation = process.ownership.ask(), process.generation
        known = who in self.group and generation == self.generation

        def arrive() -> None:
            process.ownership.answered(question, generation if known else None)
            process.dropped = process.dropped or who not in self.group

        process.inbox.append(arrive)

    def open(self, who: int, _: int) -> None:
        process = self.processes[who]
        if not process.running and process.ownership.may_open(UNIT):
            assert self.owned_step[who] > process.ended_step, "it was opened on an assignment older than the fence"
            process.running, self.fence = True, who

    def commit(self, who: int, _: int) -> None:
        process = self.processes[who]
        if process.running and self.fence != who:
            self.fences += 1
            process.running = False
            process.ownership.ended(UNIT)
            process.ended_step = self.step

    def give_up(self, _: int, __: int) -> None:
        """The brokers' time for a transaction is up."""
        self.fence = None

    def settle(self) -> None:
        """A round in which everybody is awake and everything arrives."""
        for who, process in enumerate(self.processes):
            for what in ("join", "heartbeat"):
                self.act(what, who, 0)
            while process.inbox:
                self.act("deliver", who, 0)
        for what in ("open", "commit"):
            for who in range(MEMBERS):
                self.act(what, who, 0)


ACTS = ("join", "drop", "deliver", "deliver", "heartbeat", "open", "commit", "give_up")
Acts = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, MEMBERS - 1), st.integers(0, 2)), max_size=120)


@settings(max_examples=1500)
@given(Acts)
def test_a_unit_is_opened_by_its_owner_and_a_duel_ends(acts: list[tuple[Any, int, int]]) -> None:
    world = World()
    world.settle()
    world.settle()
    for what, who, pick in acts:
        world.act(what, who, pick)
    for _ in range(4):
        world.settle()
    before = world.fences
    for _ in range(4):
        world.settle()
    assert world.fences == before, "members still fence each other"
    assert [process.running for process in world.processes].count(True) == 1
    assert world.fence == world.owner


def test_a_run_that_the_brokers_gave_up_begins_again_with_the_next_heartbeat() -> None:
    ownership = Ownership()
    ownership.assigned({UNIT}, 3)
    ownership.answered(ownership.ask(), 3)
    assert ownership.may_open(UNIT)
    ownership.ended(UNIT)
    assert not ownership.may_open(UNIT)
    ownership.answered(ownership.ask(), 3)
    assert ownership.may_open(UNIT)


def test_another_generation_or_a_unit_that_is_gone_confirm_nothing() -> None:
    ownership = Ownership()
    ownership.assigned({UNIT, 1}, 3)
    ownership.answered(ownership.ask(), 4)
    ownership.answered(ownership.ask(), None)
    assert not ownership.may_open(UNIT)
    ownership.answered(ownership.ask(), 3)
    ownership.assigned({1}, 4)
    assert not ownership.may_open(UNIT)
    assert ownership.may_open(1), "a unit that stayed goes on"
    ownership.assigned({UNIT, 1}, 5)
    assert not ownership.may_open(UNIT), "it was another's meanwhile"
