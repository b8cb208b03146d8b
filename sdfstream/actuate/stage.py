"""The controller as a stage: what is known of ways, jobs and trouble in; signed commands and refusals out.

Inside a call the stage walks the stream itself: every 100 ms boundary of bus time up to a message, then the message.
Messages only change what is known; commands are decided at the boundaries. What it says therefore depends on the stream
alone, not on how the driver cut it into calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.actuate.arming import Arming
from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.contention import Contention
from sdfstream.actuate.effect import Trials
from sdfstream.actuate.incast import Throttles
from sdfstream.actuate.intake import Intake
from sdfstream.actuate.ledger import Lease
from sdfstream.actuate.overrides import Overrides
from sdfstream.actuate.parts import Parts
from sdfstream.actuate.selectable import Verdict
from sdfstream.errors import FormatError
from sdfstream.numeric import frozen
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.signature import KeyRing, Signer
from sdfstream.records.topics import CLOCK, COMMAND, FINDING, JOB, LIVENESS, OUTCOME, OVERRIDE, OWD, QP_WINDOW, TOPOLOGY
from sdfstream.records.topology import Topology
from sdfstream.records.units import NS_PER_S, TICK_NS
from sdfstream.stats import Counters

REPLAY_EPOCH: Final = 1
REPLAY_KEY: Final = bytes(range(32))
"""Known to everybody and trusted by nobody: what a replay signs with."""
_FORGET_EVERY: Final = 600
_KEEP_NS: Final = 60 * NS_PER_S
_JOB_SILENT_NS: Final = 300 * NS_PER_S
"""A job part (repeated every 10 s) that did not come for this long is gone; its agent is."""


@dataclass(frozen=True, slots=True)
class Authority:
    """What a live controller acts by; without it nothing is ever enforced."""

    signer: Signer
    operators: KeyRing
    epoch: int
    """This run's number: its start, ns since the Unix epoch. Agents refuse any lower than the highest seen."""


class ActuateStage:
    """The controller: policies, guards, leases.

    Reads findings, jobs, topology, throughput windows, corrected delays, liveness, clock states, outcomes and
    overrides; says commands (``sdf.control.command.v1``) and, as host ``controller``, outcomes
    (``sdf.control.outcome.v1``): refusals and measured effects.

    Parameters
    ----------
    config : ActuateConfig
    authority : Authority, optional
        Without one (a replay, a look at a configuration) commands are signed by a key that nobody trusts, and modes
        ``approve`` and ``enforce`` become ``dry-run``.
    """

    name = "actuate"
    reads: tuple[str, ...] = (
        FINDING.name,
        JOB.name,
        TOPOLOGY.name,
        QP_WINDOW.name,
        OWD.name,
        LIVENESS.name,
        CLOCK.name,
        OUTCOME.name,
        OVERRIDE.name,
    )
    writes: tuple[str, ...] = (COMMAND.name, OUTCOME.name)

    def __init__(self, config: ActuateConfig | None = None, authority: Authority | None = None) -> None:
        self.config = config or ActuateConfig()
        self.counters = Counters(self.name)
        signer = authority.signer if authority is not None else Signer(REPLAY_KEY)
        epoch = authority.epoch if authority is not None else REPLAY_EPOCH
        self._parts = Parts.make(self.config, self.counters, signer, epoch)
        self._parts.trusted = authority is not None
        if authority is None and self.config.mode in ("approve", "enforce"):
            self._parts.facts.mode = "dry-run"
        self._arming = Arming(self._parts)
        self._trials = Trials(self._parts)
        self._contention = Contention(self._parts, self._arming, self._trials)
        self._throttles = Throttles(self._parts)
        self._overrides = Overrides(self._parts, authority.operators if authority is not None else KeyRing(()))
        self._intake = Intake(self._parts, self._arming)
        self._tick = -1
        """Number of the last 100 ms boundary that was stepped; −1: none yet."""

    @property
    def mode(self) -> str:
        """The mode in force."""
        return self._parts.facts.mode

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """Take `messages` in order, then go on to `now_ns`."""
        out: list[Output] = []
        for message in messages:
            out += self._until(message.bus_at_ns)
            out += self._take(message)
        out += self._until(now_ns)
        return out

    def finish(self, now_ns: int) -> list[Output]:
        """End of the input: leases are left to lapse, for whoever comes next knows nothing of them."""
        return self._until(now_ns)

    def selectable(self) -> list[Verdict]:
        """``path_selectable`` of every pair of NICs that was traced, with the counts it rests on."""
        return self._parts.selectable.all(max(0, self._tick) * TICK_NS)

    def leases(self) -> list[Lease]:
        """Commands that are not forgotten yet."""
        return list(self._parts.ledger)

    def _until(self, now_ns: int) -> list[Output]:
        last = now_ns // TICK_NS
        if self._tick < 0:
            self._tick = last - 1
        out: list[Output] = []
        while self._tick < last:
            self._tick += 1
            out += self._evaluate(self._tick * TICK_NS)
        return out

    def _take(self, message: Message) -> list[Output]:
        self.counters.add("received", message.topic)
        try:
            if message.topic == OVERRIDE.name and isinstance(message.body, Event):
                return self._overrides.take(message.body.data, message.bus_at_ns)
            return self._intake.take(message)
        except FormatError as error:
            self.counters.add("refused", error.reason)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            self.counters.add("refused", f"{message.topic.split('.')[2]}-{type(error).__name__}")
        return []

    def _evaluate(self, now_ns: int) -> list[Output]:
        """Everything that is decided at a 100 ms boundary."""
        parts = self._parts
        parts.facts.expire(now_ns)
        parts.selectable.settle(now_ns)
        out = self._arming.tick(now_ns)
        out += self._trials.tick(now_ns)
        out += self._contention.tick(self._tick, now_ns)
        out += self._throttles.tick(self._tick, now_ns)
        if self._tick % _FORGET_EVERY == 0:
            self._forget(now_ns)
        return out

    def _forget(self, now_ns: int) -> None:
        parts = self._parts
        parts.routes.forget(now_ns)
        parts.selectable.forget(now_ns)
        parts.ledger.forget(now_ns - _KEEP_NS)
        parts.refusals.forget(now_ns - 10 * _KEEP_NS)
        parts.probing.forget(now_ns - 2 * _JOB_SILENT_NS)
        parts.clocks.forget(now_ns - _KEEP_NS)
        parts.excess.forget(now_ns - _KEEP_NS)
        parts.findings.forget(now_ns - _KEEP_NS)
        self._overrides.forget(now_ns)
        self._intake.gone(parts.jobs.forget(now_ns - _JOB_SILENT_NS), now_ns)

    def snapshot(self) -> bytes:
        """The whole state, deterministic bytes."""
        engines = {name: engine.snapshot() for name, engine in self._engines().items()}
        rest = {
            "tick": self._tick,
            "declared": self._parts.topology.declared,
            "counters": [[*key, n] for key, n in sorted(self.counters.values.items())],
        }
        return frozen.dump({"engines": engines, "rest": rest})

    def restore(self, state: bytes) -> None:
        """Take up a state made by `snapshot`.

        Raises
        ------
        FormatError
            When the bytes are no snapshot of this version.
        """
        saved: Mapping[str, Any] = frozen.load(state)
        for name, engine in self._engines().items():
            engine.restore(saved["engines"][name])
        rest = saved["rest"]
        self._tick = int(rest["tick"])
        self._parts.declare(Topology(rest["declared"]))
        self.counters.values = {(what, reason): int(n) for what, reason, n in rest["counters"]}

    def _engines(self) -> dict[str, Any]:
        parts = self._parts
        return {
            "jobs": parts.jobs,
            "routes": parts.routes,
            "probing": parts.probing,
            "selectable": parts.selectable,
            "windows": parts.windows,
            "loads": parts.loads,
            "ledger": parts.ledger,
            "facts": parts.facts,
            "refusals": parts.refusals,
            "arming": self._arming,
            "trials": self._trials,
            "contention": self._contention,
            "throttles": self._throttles,
            "overrides": self._overrides,
            "excess": parts.excess,
            "clocks": parts.clocks,
            "findings": parts.findings,
        }
