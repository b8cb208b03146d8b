"""The agent side of commands, put together: executor, actuators, journal. What waits for nothing is done in the call.

From a reading of liveness to the bytes on a control socket there is no await, no queue and no flush: `on_liveness`
assesses the watches, lets the executor decide, and hands its requests to the actuators before it returns. The journal
is written behind that, in a thread: a crash in between leaves a queue pair moved without a note of it, which the job
map shows after the restart.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from sdfstream.agent.commands import journal
from sdfstream.agent.commands.actuator import Actuator, ActuatorAnswer, ActuatorRequest
from sdfstream.agent.commands.executor import Executor, ExecutorConfig
from sdfstream.agent.commands.journal_io import JournalFile, machine_run
from sdfstream.agent.commands.orders import HostOrders
from sdfstream.agent.commands.path_watch import ProbeStates, WatchedRoutes
from sdfstream.agent.downlink import Downlink
from sdfstream.errors import BusError, FormatError
from sdfstream.records.command import Outcome
from sdfstream.records.job import JobShard
from sdfstream.records.message import MOST_KEY, Event, Message, Output
from sdfstream.records.signature import KeyRing
from sdfstream.records.topics import OUTCOME

_log = logging.getLogger("sdfstream.control")

JOURNAL_S: Final = 0.02
"""How soon a change is written down; a writing takes milliseconds, in which more changes gather for the next."""
_PATIENCE_S: Final = 1.0
_AT_ONCE: Final = 4
"""Commands read in one go: each costs half a millisecond, and probing waits meanwhile."""


class AgentControl:
    """Obeys commands on the hosts of one agent process.

    Parameters
    ----------
    hosts : collection of str
    keys : KeyRing
        Keys that it trusts.
    actuators : mapping of str to Actuator
        By a queue pair's ``steering``.
    file : JournalFile or None
        None: nothing outlives the process.
    boot_id : str
        Names this run in the outcomes' ids.
    """

    def __init__(
        self,
        hosts: Collection[str],
        keys: KeyRing,
        actuators: Mapping[str, Actuator],
        file: JournalFile | None,
        boot_id: str,
        config: ExecutorConfig | None = None,
    ) -> None:
        self.executor = Executor(hosts, keys, config)
        self.counters = self.executor.counters
        self._actuators = actuators
        self._orders: dict[str, HostOrders] = {}
        self._file = file
        self._boot_id = boot_id
        self._machine = machine_run()
        self._outputs: list[Output] = []
        self._said = 0
        self._failing = False
        self._changed = asyncio.Event()
        """Something may be there for the journal."""
        self._offset()

    def resume(self) -> None:
        """Go on where an earlier run of this agent stopped; UnavailableError when the journal's folder cannot be used.

        A journal that cannot be read is set aside: its statements are lost, so commands are only admitted when they
        were issued after the first message from the bus.
        """
        if self._file is None:
            return
        try:
            data = self._file.read()
            left_out = journal.resume(self.executor, data, time.monotonic_ns(), self._machine) if data else []
        except FormatError as error:
            self._file.set_aside()
            self.executor.admission.forgetful = True
            _log.error("%s; commands issued before now are not obeyed", error)
            return
        for sentence in left_out:
            _log.warning("not resumed: %s", sentence)
        for host in self.executor.host_states:
            for lease in self.executor.leases(host):
                _log.info("resumed: %s %s of %s: %s", lease.command.action, lease.command.id, host, lease.state)

    def attach(self, host: str, slots: ProbeStates, orders: HostOrders | None = None) -> None:
        """The liveness of one host, and what gives orders by it without asking."""
        self.executor.attach(host, slots)
        if orders is not None:
            self._orders[host] = orders

    def on_liveness(self, host: str, now_ns: int) -> list[Output]:
        """Decide and act by the newest liveness of `host`; what is to be published."""
        orders = self._orders.get(host)
        if orders is not None:
            orders.given(lambda given: self.executor.ordered(host, given, now_ns), now_ns)
        self.executor.on_liveness(host, now_ns)
        self._act(now_ns)
        for actuator in self._actuators.values():
            self._take_answers(actuator.answers(now_ns), now_ns)
        if orders is not None:
            self._take_answers(orders.answers(now_ns), now_ns)
            state = self.executor.host_states[host]
            state.handed_over = orders.offer(state.watches.layout, self.executor.orders(host, now_ns))
        outputs, self._outputs = self._outputs, []
        return outputs

    def _take_answers(self, answers: Sequence[ActuatorAnswer], now_ns: int) -> None:
        if answers:
            self.executor.take_answers(answers, now_ns)
            self._act(now_ns)

    def take_commands(self, messages: Sequence[Message]) -> None:
        """Obey messages from the bus; outcomes are returned by the next `on_liveness`."""
        self._offset()
        now_ns = time.monotonic_ns()
        self.executor.take_commands(messages, now_ns)
        self._act(now_ns)

    def take_jobs(self, shards: Mapping[str, Iterable[JobShard]]) -> None:
        """The job map, by host; a host that is not named has no jobs."""
        now_ns = time.monotonic_ns()
        for host in self.executor.host_states:
            self.executor.take_jobs(host, shards.get(host, ()), now_ns)
        self._act(now_ns)

    def watched(self, host: str) -> WatchedRoutes | None:
        """The routes that commands watch on `host`; None: they are those of the last call."""
        return self.executor.watched(host)

    def kernel_paths(self) -> dict[str, int]:
        """Queue pair to the source port that its rewritten packets leave with, of all hosts."""
        states = self.executor.host_states.values()
        return {qp: path for state in states for qp, path in state.inventory.kernel_paths.items()}

    async def listen(self, downlink: Downlink) -> None:
        """Obey what comes down, for ever."""
        while True:
            try:
                messages = await downlink.read(_PATIENCE_S)
            except BusError as error:  # leases lapse meanwhile, as they are meant to
                self.counters.add("downlink-failed")
                _log.warning("no commands can come: %s", error)
                await asyncio.sleep(_PATIENCE_S)
                continue
            for at in range(0, len(messages), _AT_ONCE):
                self.take_commands(messages[at : at + _AT_ONCE])
                await asyncio.sleep(0)

    async def keep_journal(self) -> None:
        """Write the journal whenever something has changed, for ever."""
        if self._file is None:
            return
        while True:
            await self._changed.wait()
            self._changed.clear()
            await asyncio.sleep(JOURNAL_S)
            if self.executor.dirty:
                await asyncio.to_thread(self._write, self._record())
            if self.executor.dirty:  # it could not be written, or more has changed
                self._changed.set()

    def save(self) -> None:
        """Write the journal now."""
        if self._file is not None:
            self._write(self._record())

    def _record(self) -> dict[str, object]:
        self.executor.dirty = False
        self._offset()
        return journal.record(self.executor, time.monotonic_ns(), self._machine)

    def _write(self, data: Mapping[str, object]) -> None:
        assert self._file is not None
        try:
            self._file.write(data)
            self._failing = False
            self.counters.troubles.end("journal")
        except OSError as error:
            self.executor.dirty = True
            self.counters.add("journal-failed")
            why = error.strerror or type(error).__name__
            self.counters.troubles.begin(
                "journal", f"it cannot be written, a restart would forget leases in force: {why}"
            )
            if not self._failing:
                self._failing = True
                _log.error("the journal cannot be written, a restart would forget what is in force: %s", error)

    def _act(self, now_ns: int) -> None:
        """Hand requests to the actuators until nothing follows from their answers; turn outcomes into events."""
        while True:
            requests, outcomes = self.executor.drain()
            answers = [answer for request in requests if (answer := self._apply(request, now_ns)) is not None]
            self._outputs += [self._event(outcome) for outcome in outcomes]
            if self.executor.dirty:
                self._changed.set()
            if not requests:
                return
            self.executor.take_answers(answers, now_ns)

    def _apply(self, request: ActuatorRequest, now_ns: int) -> ActuatorAnswer | None:
        actuator = self._actuators.get(request.qp.steering)
        if actuator is None:
            return ActuatorAnswer(request.id, False, f"this agent has no {request.qp.steering} actuator")
        return actuator.apply(request, now_ns)

    def _event(self, outcome: Outcome) -> Output:
        self._said += 1
        number = f"{self._boot_id}-outcome-{self._said}"
        _log.info("%s %s %s: %s %s", outcome.host, outcome.action, outcome.command, outcome.state, outcome.why)
        event = Event(OUTCOME.name, outcome.host, number, outcome.at_ns, outcome.as_data())
        return Output(OUTCOME.name, outcome.command[:MOST_KEY], event)

    def _offset(self) -> None:
        self.executor.realtime_offset_ns = time.time_ns() - time.monotonic_ns()
