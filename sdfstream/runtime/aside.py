"""A stage that goes on behind a message at which its code raises: that is set aside, the state is as before it.

A message that raises in `Stage.step` may leave the state half changed. So the last snapshot is kept with the calls
since; after a failure the state is made again from both, without the call that raised. The message goes to its topic's
dead letters with the reason and the place in the code, and is counted by the stage (``set-aside``).

What comes of it depends on the calls alone, never on when snapshots were taken: to its callers this is a `Stage` like
any other. So a restart that repeats noted calls (`bus.journal`) sets the same message aside without a note of it, the
dead letter is committed with the positions once, and a replay sets aside the same message with the same bytes.

Every failure costs one `restore` and one `snapshot`. Three rules bound that:

- a key (as a rule a host) of which `MOST_OF_KEY` messages were set aside within a minute is given to the stage again
  only a minute later; meanwhile its messages of that topic are set aside unread (``key-banned``);
- a tick has no message to set aside: it is left out and counted (``tick-raised``). After `MOST_TICKS` of them in a row
  the state itself is bad, and the stage begins anew (``begun-anew``);
- so it does after `MOST_IN_A_ROW` messages in a row of which a fresh stage takes the last one.

An output that no bus takes is its message's fault, unless the stage makes one without the message as well, or at a
tick: then something earlier is in its state, and such outputs alone are dropped and counted (``output-dropped``), for
`FAULTY_NS` without asking again, since asking repeats calls.

Errors that are no message's fault pass: memory that is short, a lost bus, cancellation.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from sdfstream.bus import codec
from sdfstream.errors import FormatError
from sdfstream.numeric import codec as numeric_codec
from sdfstream.records.bounds import is_known
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime.driver import Stage, step_ns
from sdfstream.runtime.raised import dead_letter, detail, frames, is_of_message
from sdfstream.stats import Counters

log = logging.getLogger("sdfstream.pipeline")

MOST_OF_KEY: Final = 5
BAN_NS: Final = 60 * NS_PER_S
MOST_TICKS: Final = 10
MOST_IN_A_ROW: Final = 100
FAULTY_NS: Final = 10 * NS_PER_S
"""A state that made outputs that no bus takes, whoever spoke, is held to do so for as long."""
IDLE_NS: Final = 10 * NS_PER_S
"""So long behind its last message a stage is still stepped without any. Beyond, nothing can change but its age, and a
bus clock that jumps by an hour would cost an hour of ticks."""
_MOST_KEYS: Final = 256
_BASE_NS: Final = 10 * NS_PER_S
_BASE_BYTES: Final = 64 << 20
"""Of calls since the saved state; all stages share their messages. With half of it 64 hosts saved every 1.4 s, which
cost 8 % of all that stages do."""
_STATES: Final = 4
"""… or so many times the state's own size, if that is more: saving costs what the state is large."""
_ROW_BYTES: Final = 192
"""Of the widest topic (`sdf.derived.edge.v1`)."""
_CALL_BYTES: Final = 4096
_BANNED: Final = ("set-aside", "key-banned")
_FOREIGN: Final = ("ignored", "type-unknown")
_DROPPED: Final = "output-dropped"
_MAGIC: Final = b"sdf-aside-1 "


@dataclass(slots=True)
class Trouble:
    """What the next failure is judged by; part of the state."""

    given_at_ns: int = 0
    """Bus time of the last message."""
    ticks: int = 0
    """Ticks in a row at which the stage raised."""
    messages: int = 0
    """Messages in a row that were set aside."""
    keys: dict[str, list[int]] = field(default_factory=dict)
    """Topic and key to how many were set aside since when (bus time)."""
    faulty_ns: int = 0
    """Bus time at which the state last made, whoever spoke, outputs that no bus takes."""

    def is_faulty(self, now_ns: int) -> bool:
        """Whether outputs that no bus takes are the state's fault, without another look."""
        return bool(self.faulty_ns) and now_ns - self.faulty_ns <= FAULTY_NS

    def banned(self, key: str, now_ns: int) -> bool:
        """Whether messages of `key` are not to be tried now."""
        n, since_ns = self.keys.get(key, (0, 0))
        if n and now_ns - since_ns > BAN_NS:
            del self.keys[key]
            return False
        return n >= MOST_OF_KEY

    def of_any(self, messages: Sequence[Message]) -> bool:
        """Whether a message of one of these keys was set aside lately."""
        return bool(self.keys) and any(_key(message) in self.keys for message in messages)

    def note(self, key: str, now_ns: int) -> None:
        """A message of `key` was set aside; the minute of a ban begins with the last one tried."""
        entry = self.keys.setdefault(key, [0, now_ns])
        entry[0] += 1
        if entry[0] >= MOST_OF_KEY:
            entry[1] = now_ns
        while len(self.keys) > _MOST_KEYS:
            del self.keys[next(iter(self.keys))]


def _key(message: Message) -> str:
    return f"{message.topic} {message.key}"


@dataclass(slots=True)
class _Past:
    """A state, and the calls since."""

    state: bytes = b""
    at_ns: int = 0
    calls: list[tuple[Sequence[Message], int]] = field(default_factory=list)
    bytes: int = 0

    def add(self, messages: Sequence[Message], now_ns: int) -> None:
        self.at_ns = self.at_ns or now_ns
        self.calls.append((messages, now_ns))
        for message in messages:
            bulk = not isinstance(message.body, Event)
            self.bytes += _CALL_BYTES + (message.rows * _ROW_BYTES if bulk else 0)

    def due(self, now_ns: int) -> bool:
        """Whether a new state is to be taken: what is kept has become long."""
        most = max(_BASE_BYTES, _STATES * len(self.state))
        return self.bytes > most or (bool(self.at_ns) and now_ns - self.at_ns > _BASE_NS)


class AsideStage:
    """`stage`, made safe against messages that raise in it. The stage is fresh."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.name, self.reads, self.writes = stage.name, stage.reads, stage.writes
        self.step_ns = step_ns(stage)
        self.counters: Counters = stage.counters
        """The stage's; ``set-aside``, ``tick-raised``, ``finish-raised`` and ``begun-anew`` are among them."""
        self.trouble = Trouble()
        self._fresh = stage.snapshot()
        self._past = _Past(self._fresh)

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """As the stage's, but for messages that raise: one dead letter each instead of their outputs.

        Events of types that their topic does not know are not given to it (`is_known`); they are counted.
        """
        if not messages:
            return self._tick(now_ns)
        messages = self._known(messages)
        if len(messages) > 1 and not self.trouble.of_any(messages):
            together = self._take_together(messages, now_ns)
            if together is not None:
                return together
        out: list[Output] = []
        for message in messages:
            at_ns = min(now_ns, max(message.bus_at_ns, self.trouble.given_at_ns))
            out += self._take(message, at_ns)
        return out

    def _known(self, messages: Sequence[Message]) -> Sequence[Message]:
        known = [m for m in messages if not isinstance(m.body, Event) or is_known(m.topic, m.body.type)]
        self.counters.add(*_FOREIGN, n=len(messages) - len(known))
        return known

    def finish(self, now_ns: int) -> list[Output]:
        """As the stage's; nothing when it raises."""
        try:
            return self._drop(*_apart(self.stage.finish(now_ns)))
        except Exception as error:
            if not is_of_message(error):
                raise
            self._restore_past()
            self.counters.add("finish-raised", type(error).__name__)
            log.warning("%s raised at its end: %s", self.name, _reported(error))
            return []

    def snapshot(self) -> bytes:
        """The stage's state and the `Trouble`."""
        state = self.stage.snapshot()
        self._past = _Past(state)
        head = numeric_codec.dump(asdict(self.trouble))
        return _MAGIC + b"%d\n" % len(head) + head + state

    def restore(self, state: bytes) -> None:
        """Take up a state made by `snapshot`.

        Raises
        ------
        FormatError
            The bytes are no such state.
        """
        first, newline, rest = state.partition(b"\n")
        size = first.removeprefix(_MAGIC)
        if not first.startswith(_MAGIC) or not newline or not size.isdigit():
            raise FormatError("snapshot", "it is of no stage that sets messages aside")
        head, rest = rest[: int(size)], rest[int(size) :]
        try:
            self.trouble = Trouble(**numeric_codec.load(head))
        except (ValueError, TypeError, KeyError) as error:
            raise FormatError("snapshot", repr(error)) from error
        self.stage.restore(rest)
        self._past = _Past(rest)

    def _take_together(self, messages: Sequence[Message], now_ns: int) -> list[Output] | None:
        """Take messages of which none is expected to raise; None: one did, and the state is as before them."""
        self._keep(now_ns)
        try:
            out, refused = _apart(self.stage.step(messages, now_ns))
        except Exception as error:
            if not is_of_message(error):
                raise
            self._restore_past()
            return None
        if refused and not self.trouble.is_faulty(now_ns):
            self._restore_past()
            return None
        self._past.add(messages, now_ns)
        self.trouble.given_at_ns = max(self.trouble.given_at_ns, now_ns)
        self.trouble.messages = 0
        return self._drop(out, refused)

    def _take(self, message: Message, now_ns: int) -> list[Output]:
        trouble, key = self.trouble, _key(message)
        trouble.given_at_ns = max(trouble.given_at_ns, now_ns)
        if trouble.keys and trouble.banned(key, now_ns):
            self.counters.add(*_BANNED)
            return [dead_letter(self.name, message, now_ns, _BANNED[1], None)]
        self._keep(now_ns)
        try:
            out, refused = _apart(self.stage.step([message], now_ns))
        except Exception as error:
            if not is_of_message(error):
                raise
            return self._set_aside(message, key, now_ns, "step-raised", error)
        if refused and not trouble.is_faulty(now_ns):
            if not self._refused_without(now_ns):
                return self._set_aside(message, key, now_ns, "output", refused[0])
            trouble.faulty_ns = now_ns
            self.stage.step([message], now_ns)  # again: the same calls give the same outputs
        self._past.add([message], now_ns)
        trouble.messages = 0
        return self._drop(out, refused)

    def _tick(self, now_ns: int) -> list[Output]:
        trouble = self.trouble
        if trouble.given_at_ns and now_ns - trouble.given_at_ns > IDLE_NS:
            return []
        self._keep(now_ns)
        try:
            out, refused = _apart(self.stage.step([], now_ns))
        except Exception as error:
            if not is_of_message(error):
                raise
            self._restore_past()
            self.counters.add("tick-raised", type(error).__name__)
            trouble.ticks += 1
            if trouble.ticks >= MOST_TICKS:
                self._begin_anew(f"it raised at {trouble.ticks} ticks in a row, last {_reported(error)}")
            self._rebase()
            return []
        self._past.add([], now_ns)
        trouble.ticks = 0
        if refused:
            trouble.faulty_ns = now_ns
        return self._drop(out, refused)

    def _drop(self, good: list[Output], refused: list[Exception]) -> list[Output]:
        """The `good` outputs; the others, which are no message's fault, are counted."""
        for error in refused:
            self.counters.add(_DROPPED, type(error).__name__)
            n = self.counters.total(_DROPPED)
            if n & (n - 1) == 0:  # as in `_set_aside`
                log.warning("%s made an output that no bus takes (%d so far): %s", self.name, n, _reported(error))
        return good

    def _refused_without(self, now_ns: int) -> bool:
        """Whether the stage, as it was before the last call, makes outputs that no bus takes without any message too.

        It is afterwards as before that call.
        """
        self._restore_past()
        try:
            refused = _apart(self.stage.step([], now_ns))[1]
        except Exception as error:
            if not is_of_message(error):
                raise
            refused = []
        self._restore_past()
        return bool(refused)

    def _set_aside(self, message: Message, key: str, now_ns: int, reason: str, error: Exception) -> list[Output]:
        self._restore_past()
        self.counters.add("set-aside", type(error).__name__)
        n = self.counters.total("set-aside")
        if n & (n - 1) == 0:  # the 1st, 2nd, 4th, 8th …: a flood of them must not become one of lines
            log.warning(
                "%s set message %d of %s aside (%d so far): %s",
                self.name, message.bus_seq, message.topic, n, _reported(error),
            )  # fmt: skip
        self.trouble.messages += 1
        self.trouble.note(key, now_ns)
        if self.trouble.messages >= MOST_IN_A_ROW and self._fresh_takes(message, now_ns):
            self._begin_anew(f"{self.trouble.messages} messages in a row raised, and a fresh state takes the last")
        self._rebase()
        return [dead_letter(self.name, message, now_ns, reason, error)]

    def _keep(self, now_ns: int) -> None:
        if self._past.due(now_ns):
            self._rebase()

    def _rebase(self) -> None:
        self._past = _Past(self.stage.snapshot())

    def _restore_past(self) -> None:
        """The state before the call that raised."""
        # what is counted between calls, not in them
        between = {
            key: n for key, n in self.counters.values.items() if key in (_BANNED, _FOREIGN) or key[0] == _DROPPED
        }
        try:
            self.stage.restore(self._past.state)
            for messages, now_ns in self._past.calls:
                self.stage.step(messages, now_ns)
            for key, n in between.items():
                self.counters.add(*key, n=n - self.counters.get(*key))
        except Exception as error:
            if not is_of_message(error):
                raise
            self._begin_anew(f"its state could not be made again: {_reported(error)}")

    def _fresh_takes(self, message: Message, now_ns: int) -> bool:
        """Whether a fresh stage takes `message`; the state is afterwards as before."""
        state = self.stage.snapshot()
        try:
            self.stage.restore(self._fresh)
            self.stage.step([message], now_ns)
        except Exception as error:
            if not is_of_message(error):
                raise
            return False
        finally:
            self.stage.restore(state)
        return True

    def _begin_anew(self, why: str) -> None:
        counted = dict(self.counters.values)
        self.stage.restore(self._fresh)
        self.counters.values = counted
        self.counters.add("begun-anew")
        self.trouble.ticks = self.trouble.messages = 0
        log.error("%s begins with an empty state: %s", self.name, why)


def _apart(outputs: list[Output]) -> tuple[list[Output], list[Exception]]:
    """What every bus takes of `outputs`, and why the others are refused: at the commit they would end the stage."""
    codec.look_together(outputs)
    good: list[Output] = []
    refused: list[Exception] = []
    for output in outputs:
        try:
            body, _ = codec.check(output)
            if isinstance(body, Event):
                codec.encode_body(output.topic, body, output.key).decode()
        except (FormatError, ValueError, TypeError) as error:
            if not isinstance(error, FormatError) or error.reason != "topic-unknown":  # that one: a stage under test
                refused.append(error)
                continue
        good.append(output)
    return good, refused


def _reported(error: Exception) -> str:
    where = frames(error)
    return f"{type(error).__name__}: {detail(error)}" + (f" at {where[-1]}" if where else "")
