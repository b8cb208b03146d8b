"""Overrides by an operator: approve, refuse, undo, mode, hold, and what `silencing` takes; each signed with a key that
lies in ``keys/operators``.

Every one is answered by an outcome of the override's id whose target names it under ``override``: applied, or refused
with the reason, so that its operator sees what happens. What becomes of a command is in its own outcomes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sdfstream.actuate.context import Context
from sdfstream.actuate.guard import Hold
from sdfstream.actuate.ledger import IssuedCommand
from sdfstream.actuate.refusals import Doubt
from sdfstream.actuate.silencing import Silencing
from sdfstream.errors import FormatError
from sdfstream.records.command import MODES, Override, override
from sdfstream.records.message import Output
from sdfstream.records.signature import KeyRing
from sdfstream.records.silences import WORDS
from sdfstream.records.units import NS_PER_S

_AHEAD_NS: Final = 60 * NS_PER_S
"""An override from further in the future than this has a wrong clock, or waits to be used later."""
_LONGEST_NS: Final = 7 * 24 * 3600 * NS_PER_S
_MOST_SEEN: Final = 100_000
_UNTRUSTED: Final = ("malformed", "unknown-key", "forged", "replayed")
_TAKEN: Final = {
    "mode": "mode is {mode} from now on",
    "hold": "nothing is done to {id} while it is held",
    "undo": "command {command} is not renewed any more, and taken back where it is in force",
    "approve": "command {command} is looked at once more, then it goes out",
    "refuse": "command {command} is not sent",
}
_HOLDS: Final = ("qp", "job", "host", "all")


class Overrides:
    """Checks overrides and carries them out."""

    def __init__(self, context: Context, operators: KeyRing) -> None:
        self._context = context
        self._operators = operators
        self._silencing = Silencing(context.facts)
        self._seen: dict[str, int] = {}
        """Override id to its end."""

    def take(self, data: Mapping[str, Any], now_ns: int) -> list[Output]:
        """Take an override; what is to be published."""
        try:
            read = override(data)
        except (FormatError, TypeError, ValueError) as error:
            return self._refuse(str(data.get("id", "")), "", Doubt("malformed", str(error)), now_ns)
        doubt = self._distrust(read, data, now_ns)
        if doubt is None:
            self._seen[read.id] = read.expires_at_ns
            if read.what in WORDS:
                return self._take_word(read, now_ns)
            doubt, out = self._do(read, now_ns)
            if doubt is None:
                self._context.counters.add("overrides", read.what)
                return [self._taken(read, now_ns), *out]
        return self._refuse(read.id, read.command, doubt, now_ns)

    def _take_word(self, read: Override, now_ns: int) -> list[Output]:
        """A silence, label or lift: its outcome repeats it whole, so that readers need nothing else."""
        answer = self._silencing.take(read, now_ns)
        if isinstance(answer, Doubt):
            return self._refuse(read.id, "", answer, now_ns)
        self._context.counters.add("overrides", read.what)
        target, after, why = answer
        said = {**target, "override": read.id}
        taken = Doubt("taken", why)
        return [self._context.refusals.publish(read.id, "applied", taken, read.what, said, (), now_ns, after=after)]

    def _distrust(self, read: Override, data: Mapping[str, Any], now_ns: int) -> Doubt | None:
        why = self._operators.refuses(data)
        if why == "unknown-key":
            return Doubt("unknown-key", f"key {read.key_id!r} is no operator's")
        if why:
            return Doubt("forged", "the signature does not match the override")
        if read.expires_at_ns <= now_ns:
            return Doubt("expired", "it is over already")
        if read.issued_at_ns > now_ns + _AHEAD_NS or not 0 < read.expires_at_ns - read.issued_at_ns <= _LONGEST_NS:
            return Doubt("malformed", "it comes from the future, or lasts longer than a week")
        if read.id in self._seen:
            return Doubt("replayed", "it was heard before")
        if len(self._seen) >= _MOST_SEEN:
            return Doubt("budget", "too many overrides are in force")
        return None

    def _do(self, read: Override, now_ns: int) -> tuple[Doubt | None, list[Output]]:
        if read.what == "mode":
            return self._mode(read), []
        if read.what == "hold":
            return self._hold(read), []
        if read.what == "undo":
            return self._undo(read, now_ns)
        if read.what in ("approve", "refuse"):
            return self._decide(read, now_ns), []
        return Doubt("malformed", f"there is no override {read.what!r}"), []

    def _mode(self, read: Override) -> Doubt | None:
        mode = read.set.get("mode")
        if mode not in MODES:
            return Doubt("malformed", f"set.mode is one of {', '.join(MODES)}, not {mode!r}")
        if mode in ("approve", "enforce") and not self._context.trusted:
            return Doubt("no-key", "there is no key here that agents trust, so nothing can be enforced")
        self._context.facts.change_mode(mode)
        return None

    def _hold(self, read: Override) -> Doubt | None:
        kind, name = read.target.get("type"), read.target.get("id", "")
        if kind not in _HOLDS or not isinstance(name, str):
            return Doubt("malformed", f"target.type of a hold is one of {', '.join(_HOLDS)}, not {kind!r}")
        self._context.facts.add_hold(Hold(read.id, str(kind), name, read.expires_at_ns))
        return None

    def _undo(self, read: Override, now_ns: int) -> tuple[Doubt | None, list[Output]]:
        command = self._context.ledger.get(read.command)
        if command is None or command.state == "over":
            return Doubt("unknown-command", f"no command {read.command!r} is in force"), []
        self._context.commands.ban(command.qp, now_ns)
        return None, self._context.commands.undo(command, (read.id,), now_ns)

    def _decide(self, read: Override, now_ns: int) -> Doubt | None:
        waiting = [command for command in self._context.ledger if command.state == "waiting" and _names(read, command)]
        if not waiting:
            return Doubt("unknown-command", f"no command {read.command or read.target!r} waits for approval")
        for command in waiting:
            if read.what == "approve":
                command.state = "approved"
            else:
                self._context.ledger.end(command, now_ns)
                self._context.commands.ban(command.qp, now_ns)
        return None

    def _refuse(self, name: str, command_id: str, doubt: Doubt, now_ns: int) -> list[Output]:
        self._context.counters.add("refused", f"override-{doubt.rule}")
        target = {"type": "command", "id": command_id or name, "override": name}
        if doubt.rule in _UNTRUSTED:  # anyone may send those: not more often than any other refusal
            return self._context.refusals.refuse("override", target, doubt, (), now_ns)
        return [self._context.refusals.publish(name, "refused", doubt, "override", target, (), now_ns)]

    def _taken(self, read: Override, now_ns: int) -> Output:
        target = {"type": "command", "id": read.command or read.id, "override": read.id}
        sentence = _TAKEN[read.what].format(mode=read.set.get("mode"), id=read.target.get("id"), command=read.command)
        return self._context.refusals.publish(
            read.id, "applied", Doubt("taken", sentence), "override", target, (), now_ns
        )

    def forget(self, now_ns: int) -> None:
        """Drop what is over: it would be refused as expired."""
        self._seen = {name: until_ns for name, until_ns in self._seen.items() if until_ns > now_ns}

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [list(item) for item in self._seen.items()]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._seen = {name: until_ns for name, until_ns in state}


def _names(read: Override, command: IssuedCommand) -> bool:
    """Whether the override speaks of this command: by its id, or by the queue pair or job it is for."""
    if read.command:
        return read.command == command.id
    kind, name = read.target.get("type"), read.target.get("id")
    return (kind == "qp" and name == command.qp) or (kind == "job" and name == command.target.get("job"))
