"""Overrides of an operator: make one, sign it, publish it, and wait for its outcome.

An override goes through the socket of the running pipeline, or with ``--bus kafka://…`` straight to Kafka. The
controller decides by the public keys that it trusts whether to obey, and answers by an outcome of the override's id (or
one whose target names it). Agents report what happened to the command concerned by outcomes of that command.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sdfstream.errors import BusError, ConfigError, UnavailableError
from sdfstream.records.command import Override
from sdfstream.records.message import Event, Output
from sdfstream.records.signature import Signer
from sdfstream.records.topics import OUTCOME, OVERRIDE
from sdfstream.records.units import NS_PER_S

if TYPE_CHECKING:
    from sdfstream.bus.kafka.config import KafkaConfig

WAIT_S: Final = 10.0
SHORT_S: Final = 60.0
"""Validity of an override that is to work at once: it must not take effect after an outage of the bus."""
ENDED: Final = ("undone", "expired", "held", "refused", "failed")
"""Final states of a command that is undone."""
POLL_S: Final = 0.1
GRACE_S: Final = 2.0
"""How long to wait for the outcome of the command after the override was accepted."""


@dataclass(frozen=True, slots=True)
class OperatorSession:
    """An operator with the signing key, the pipeline, and how long to wait for outcomes."""

    data: Path
    signer: Signer
    operator: str
    bus: str | None = None
    wait_s: float = WAIT_S
    kafka: KafkaConfig | None = None
    """How the brokers of `bus` are reached."""


def signed(
    session: OperatorSession,
    what: str,
    now_ns: int,
    lasts_s: float,
    *,
    command: str = "",
    target: Mapping[str, Any] | None = None,
    set_: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The data of a signed override that has force for `lasts_s`."""
    made = Override(
        id=f"o-{secrets.token_hex(8)}",
        issued_at_ns=now_ns,
        expires_at_ns=now_ns + round(lasts_s * NS_PER_S),
        what=what,
        operator=session.operator,
        command=command,
        target=target or {},
        set=set_ or {},
    )
    return session.signer.sign(made.as_data())


def output_of(data: Mapping[str, Any]) -> Output:
    """The override as a message of its topic."""
    event = Event(OVERRIDE.name, str(data["operator"]), str(data["id"]), int(data["issued_at_ns"]), data)
    return Output(OVERRIDE.name, str(data["operator"]), event)


def send(session: OperatorSession, overrides: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Publish `overrides`; {override id: its outcome}, without those that had no answer.

    Raises
    ------
    UnavailableError
        No pipeline runs there, or the overrides were not accepted.
    """
    if session.bus is not None:
        from sdfstream.runtime import loop_io

        return loop_io.run(_send_kafka(session, session.bus, overrides))
    return _send_live(session, overrides)


def report(overrides: Sequence[Mapping[str, Any]], answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The overrides with their outcomes, as plain JSON."""
    return {
        "overrides": [
            {"id": o["id"], "what": o["what"], "command": o["command"] or None, "outcome": answers.get(str(o["id"]))}
            for o in overrides
        ]
    }


class OverrideOutcomes:
    """Assigns outcomes to the overrides that they answer."""

    def __init__(self, overrides: Sequence[Mapping[str, Any]]) -> None:
        self.found: dict[str, dict[str, Any]] = {}
        self._by_id = {str(o["id"]): o for o in overrides}
        self._by_command = {str(o["command"]): str(o["id"]) for o in overrides if o["command"]}
        self._final: set[str] = set()

    @property
    def ids(self) -> list[str]:
        """Overrides and commands whose outcomes are awaited."""
        return [*self._by_id, *self._by_command]

    def take(self, outcome: Mapping[str, Any]) -> None:
        """Take one outcome, in bus order. An outcome of the command replaces one that only accepts the override."""
        about = str((outcome.get("target") or {}).get("override") or outcome.get("command"))
        if about in self._by_command:
            self._of_command(self._by_command[about], outcome)
        elif about in self._by_id:
            self.found.setdefault(about, dict(outcome))
            if outcome.get("state") in ("refused", "failed") or not self._waits(about):
                self._final.add(about)

    def _of_command(self, name: str, outcome: Mapping[str, Any]) -> None:
        state, what = outcome.get("state"), self._by_id[name]["what"]
        if what == "undo" and state not in ENDED:
            return  # a renewal that crossed it
        self.found[name] = dict(outcome)
        if state != "accepted":
            self._final.add(name)

    def _waits(self, name: str) -> bool:
        """Whether an outcome of the command may follow once the override was accepted."""
        return self._by_id[name]["what"] in ("undo", "approve")

    def done(self, waited_s: float) -> bool:
        """Whether all outcomes are final, or all are there and `GRACE_S` are over."""
        if len(self._final) == len(self._by_id):
            return True
        return len(self.found) == len(self._by_id) and waited_s >= GRACE_S


def _send_live(session: OperatorSession, overrides: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    from sdfstream.serve.query_io import fetch

    answers = OverrideOutcomes(overrides)
    since_ns = None
    for override in overrides:
        taken = fetch(session.data, {"want": "override", "override": override})
        since_ns = int(taken["at_ns"]) if since_ns is None else since_ns
    began_s = time.monotonic()
    while not answers.done(waited := time.monotonic() - began_s) and waited < session.wait_s:
        time.sleep(POLL_S)
        for i in range(0, len(answers.ids), 64):
            answered = fetch(session.data, {"want": "outcomes", "ids": answers.ids[i : i + 64], "since_ns": since_ns})
            for outcome in answered["outcomes"]:
                answers.take(outcome)
    return answers.found


async def _send_kafka(
    session: OperatorSession, name: str, overrides: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    import asyncio

    from sdfstream.bus.open_io import KAFKA, open_bus
    from sdfstream.bus.tail_io import Tail

    if not name.startswith(KAFKA):
        raise ConfigError("--bus is kafka://HOST:PORT[,HOST:PORT]; leave it out for the pipeline on the data folder")
    boot_id = secrets.token_hex(8)
    bus = await open_bus(name, time.time_ns, boot_id=boot_id, kafka=session.kafka)
    try:
        tail = await Tail.open(bus, f"operator-{boot_id}", [OUTCOME.name])
        await bus.publish([output_of(o) for o in overrides])
        answers, clock = OverrideOutcomes(overrides), asyncio.get_running_loop()
        began_s = clock.time()
        while not answers.done(waited := clock.time() - began_s) and waited < session.wait_s:
            for message in await tail.read(POLL_S):
                if isinstance(message.body, Event):
                    answers.take(message.body.data)
        return answers.found
    except BusError as error:
        raise UnavailableError(f"{name} did not take it: {error}") from error
    finally:
        await bus.close()
