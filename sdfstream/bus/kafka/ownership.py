"""Which of the units that the group assigned to a member may be opened.

Opening a unit fences its present owner (`commit_io`), so a member that opens one on a belief that is out of date takes
it from the true owner; that one opens it again, and so on. A member's belief may be out of date for long: it was
frozen, cut off, or its group client stood still. Therefore **a unit is opened only after the coordinator has answered,
to a heartbeat sent since the unit was assigned or its last run ended, that the generation of the assignment is its
newest**. Within one generation a unit has one owner, so of several members that hold themselves for the owner only one
is ever confirmed; it may be fenced once by each of the others, and they not a second time.

================================================  ================================================================
why a run ended                                   then
================================================  ================================================================
another member has the unit now                   heartbeats are refused, the member joins again, and has it no more
the brokers gave its transaction up (it was       the next heartbeat is accepted: the run begins again at once
frozen or starved), nobody else has it
brokers away                                      no answer; the run begins again with the first one
two processes have one member name                each joins in the other's place and takes the unit from it, for as
                                                  long as both run: names must differ
================================================  ================================================================

A heartbeat answered "the group rebalances" is a confirmation too: nobody has a newer assignment yet. Between the answer
and the opening a member may still be frozen; it then takes the unit from its new owner, once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """A heartbeat about to be sent; only what happened before it does its answer tell of."""

    number: int


class Ownership:
    """The units assigned to one member, and whether each may be opened.

    Examples
    --------
    >>> ownership = Ownership()
    >>> ownership.assigned({0}, generation=5)
    >>> asked = ownership.ask()
    >>> ownership.answered(asked, generation=5)
    >>> ownership.may_open(0)
    True
    >>> asked = ownership.ask()
    >>> ownership.ended(0)  # fenced, while the heartbeat was under way
    >>> ownership.answered(asked, generation=5)
    >>> ownership.may_open(0)
    False
    """

    def __init__(self) -> None:
        self.units: frozenset[int] = frozenset()
        """As assigned last."""
        self._generation = -1
        self._asked = 0
        self._unconfirmed: dict[int, int] = {}
        """Unit → number of the last question before it was assigned, or before its last run ended."""

    def assigned(self, units: Iterable[int], generation: int) -> None:
        """The group has assigned `units` to this member, and no others, in `generation`."""
        units = frozenset(units)
        self._unconfirmed |= dict.fromkeys(units - self.units, self._asked)
        self.units, self._generation = units, generation

    def ended(self, unit: int) -> None:
        """The run of `unit` ended, however it did."""
        self._unconfirmed[unit] = self._asked

    def ask(self) -> Question:
        """A heartbeat is sent now."""
        self._asked += 1
        return Question(self._asked)

    def answered(self, question: Question, generation: int | None) -> None:
        """The coordinator has accepted the heartbeat of a member of `generation`; None: it has not."""
        if generation != self._generation:
            return
        for unit in [unit for unit, before in self._unconfirmed.items() if question.number > before]:
            del self._unconfirmed[unit]

    def may_open(self, unit: int) -> bool:
        """Whether `unit` is assigned, and was confirmed since then and since its last run."""
        return unit in self.units and unit not in self._unconfirmed
