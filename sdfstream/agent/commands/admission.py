"""Reading a command: which keys the agent trusts, the checks that a command must pass, and what it wants (`Terms`).

In this order, the cheap and the general first; the first that fails names the refusal:

============  =======================================================================================
malformed     cannot be read, or its times make no sense
wrong-host    came under this host's key but is meant for another
unknown-key   signed with a key that is not trusted here
forged        the signature does not match what was signed
not-enforced  its mode is not ``enforce``: observe, dry-run and approve change nothing
wrong-epoch   a later run of the controller has spoken already
expired       its lease is over, by the bound of bus time
replayed      not later than the last statement of this command, or of one that was undone by hand
============  =======================================================================================

Commands under other hosts' keys are passed over and counted.

An agent has no clock of the bus, and its own may be wrong. But a message entered the bus before it was received, so bus
time now is at least ``bus_at_ns`` plus the steady time since it was received (`BusTimeBound`): the largest such bound
counts. The steady clock may run fast against the bus's, and its readings are whole nanoseconds, rounded down; so that
the bound stays one, the time since is shortened by 100 ppm and 1 ns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from sdfstream.agent.commands.path_watch import Segment, read_watch
from sdfstream.errors import FormatError
from sdfstream.records.command import Command, Outcome, command
from sdfstream.records.message import Event, Message
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.stats import Counters

if TYPE_CHECKING:
    from sdfstream.records.signature import KeyRing

REASONS: Final = (
    "malformed",
    "wrong-host",
    "unknown-key",
    "forged",
    "not-enforced",
    "wrong-epoch",
    "expired",
    "replayed",
    "unknown-target",
    "unexpected-state",
)
"""Every reason of a refusal by an agent."""

LONGEST_LEASE_NS: Final = 3600 * NS_PER_S
"""A longer lease is no lease."""
_KEEP_NS: Final = 60 * NS_PER_S
"""A command's last statement is forgotten this long after its lease, by when it is refused as expired anyway."""
_MOST_REMEMBERED: Final = 100_000


_DRIFT: Final = 10_000
"""A steady clock is at most 1/10,000 faster than the bus's: crystals are within 100 ppm."""
_READING_NS: Final = 1
"""The difference of two readings that were rounded down may be so much too long."""


@dataclass(slots=True)
class BusTimeBound:
    """The best bound so far.

    Examples
    --------
    >>> time = BusTimeBound()
    >>> time.take(1_000_000, now_ns=5_000_000)
    >>> time.now(now_ns=5_020_000)
    1019997
    """

    _bus_at_ns: int = 0
    _received_at_ns: int = 0

    def take(self, bus_at_ns: int, now_ns: int) -> None:
        """A message that entered the bus at `bus_at_ns` was received at steady time `now_ns`."""
        if bus_at_ns > self.now(now_ns):
            self._bus_at_ns, self._received_at_ns = bus_at_ns, now_ns

    def now(self, now_ns: int) -> int:
        """Bus time is at least this; 0 before the first message."""
        if self._bus_at_ns == 0:
            return 0
        since_ns = max(0, now_ns - self._received_at_ns)
        return self._bus_at_ns + max(0, since_ns - since_ns // _DRIFT - _READING_NS)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Not done, and why."""

    reason: str
    """One of `REASONS`."""
    sentence: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Admitted:
    """A command that passed all checks."""

    command: Command
    data: Mapping[str, Any]
    """As it was signed."""


@dataclass(slots=True)
class LastStatement:
    """What is remembered of a command's statements."""

    issued_at_ns: int
    expires_at_ns: int
    revoked: bool = False
    """It was undone by command; nothing later of it counts."""


@dataclass(slots=True)
class Admission:
    """Checks command messages for some hosts; keeps the highest epoch and every command's last statement.

    Parameters
    ----------
    hosts : collection of str
        The agent's hosts.
    keys : KeyRing
        Keys that it trusts; with an empty ring every command is refused.
    """

    hosts: Collection[str]
    keys: KeyRing
    epoch: int = 0
    last_statements: dict[str, LastStatement] = field(default_factory=dict)
    bus: BusTimeBound = field(default_factory=BusTimeBound)
    counters: Counters = field(default_factory=lambda: Counters("control"))
    forgetful: bool = False
    """Statements of an earlier run are lost: one older than this run's first message may be a replay."""
    _first_at_ns: int = 0

    def read(self, message: Message, now_ns: int) -> Admitted | Refusal | None:
        """The command in `message`, or the first check that it does not pass; None: for other hosts."""
        self.bus.take(message.bus_at_ns, now_ns)
        self._first_at_ns = self._first_at_ns or message.bus_at_ns
        if message.key not in self.hosts:
            self.counters.add("passed-over", "other-host")
            return None
        if not isinstance(message.body, Event):
            return Refusal("malformed", "it is no event")
        data = message.body.data
        try:
            read = command(data)
        except FormatError as error:
            return Refusal("malformed", error.detail)
        return (
            self._misfit(read, message.key)
            or self._distrust(read, data)
            or self._out_of_time(read, now_ns)
            or self._remember(read, now_ns)
            or Admitted(read, data)
        )

    @staticmethod
    def _misfit(read: Command, host: str) -> Refusal | None:
        if not read.issued_at_ns < read.expires_at_ns <= read.issued_at_ns + LONGEST_LEASE_NS:
            return Refusal("malformed", "its lease ends before it begins, or lasts longer than an hour")
        if read.target.get("host") != host:
            return Refusal("wrong-host", f"it came to {host} but is meant for {read.target.get('host')!r}")
        return None

    def _distrust(self, read: Command, data: Mapping[str, Any]) -> Refusal | None:
        why = self.keys.refuses(data)
        if why == "unknown-key":
            return Refusal("unknown-key", f"key {read.key_id!r} is not trusted here")
        if why:
            return Refusal("forged", "the signature does not match the command")
        if read.mode != "enforce":
            return Refusal("not-enforced", f"its mode is {read.mode}")
        return None

    def _out_of_time(self, read: Command, now_ns: int) -> Refusal | None:
        if read.epoch < self.epoch:
            return Refusal("wrong-epoch", f"epoch {read.epoch} is over, {self.epoch} has begun")
        self.epoch = read.epoch
        if read.expires_at_ns <= self.bus.now(now_ns):
            return Refusal("expired", "its lease is over")
        known = self.last_statements.get(read.id)
        if known is not None and known.revoked:
            known.expires_at_ns = max(known.expires_at_ns, read.expires_at_ns)
            return Refusal("replayed", "it was undone by command, and nothing later of it counts")
        if known is None and self.forgetful and read.issued_at_ns < self._first_at_ns:
            return Refusal("replayed", "what was heard before is lost, and this was issued before")
        if known is not None and read.issued_at_ns <= known.issued_at_ns:
            return Refusal("replayed", "this or a later statement of it was heard before")
        return None

    def _remember(self, read: Command, now_ns: int) -> Refusal | None:
        if len(self.last_statements) >= _MOST_REMEMBERED:
            self.forget(now_ns)
            if len(self.last_statements) >= _MOST_REMEMBERED:
                return Refusal("unexpected-state", "too many commands are in force")
        self.last_statements[read.id] = LastStatement(read.issued_at_ns, read.expires_at_ns)
        return None

    def revoke(self, command_id: str) -> None:
        """Nothing later of this command counts."""
        if command_id in self.last_statements:
            self.last_statements[command_id].revoked = True

    def forget(self, now_ns: int) -> None:
        """Drop what is remembered of commands that anyway count as expired."""
        bus_ns = self.bus.now(now_ns)
        self.last_statements = {i: h for i, h in self.last_statements.items() if h.expires_at_ns + _KEEP_NS > bus_ns}


Kind = Literal["arm", "move", "limit", "peer"]
"""arm: move when the path dies; move: at once; limit: a rate; peer: the receiving end of a kernel flow's moves."""

PORTS: Final = range(1, 65_536)
DEFAULT_HOLD_DOWN_MS: Final = 2_000
_MOST_ALTERNATES: Final = 64
_MOST_HOLD_DOWN_MS: Final = 3_600_000
_MOST_TEXT: Final = 256


@dataclass(frozen=True, slots=True)
class Terms:
    """What a command wants done to one queue pair."""

    kind: Kind
    qp: str
    former: int | None = None
    """Source port that it leaves, and goes back to."""
    paths: tuple[int, ...] = ()
    """Source ports that it may be put on, best first (peer: that are translated back)."""
    watches: Mapping[int, tuple[Segment, ...]] | None = None
    """By source port; the former path's is among them where the command has it."""
    hold_down_ns: int = 0
    rate_bps: int | None = None
    expected_rate: tuple[int | None] | None = None
    """The limit that must be in force; None: any."""


def terms(command: Command) -> Terms:
    """Read what `command` wants.

    Raises
    ------
    FormatError
        ``command``: a field that its action needs is absent or of the wrong kind; the detail names it.
    """
    if command.target.get("type") != "qp" or not isinstance(command.target.get("id"), str):
        raise FormatError("command", "target must be a queue pair")
    qp = str(command.target["id"])
    if command.action == "throttle":
        expected = command.expected
        rate = (_rate_or_none(expected["rate_bps"]),) if "rate_bps" in expected else None
        path = _port(expected, "path") if "path" in expected else None
        return Terms("limit", qp, path, rate_bps=_rate(command.set), expected_rate=rate)
    if command.set.get("part") == "peer":
        return Terms("peer", qp, _port(command.expected, "path"), _ports(command.set))
    former = _port(command.expected, "path")
    if command.undo.get("path") != former:
        raise FormatError("command", "undo.path must be expected.path: a queue pair goes back to where it came from")
    if command.action == "steer":
        return _steer(command, qp, former)
    return _failover(command, qp, former)


def _steer(command: Command, qp: str, former: int) -> Terms:
    path = _port(command.set, "path")
    if path == former:
        raise FormatError("command", "set.path is where it is expected to be already")
    watches = {path: read_watch(command.set.get("watch")), former: read_watch(command.set.get("former_watch"))}
    return Terms("move", qp, former, (path,), watches, _hold_down_ns(command.set))


def _failover(command: Command, qp: str, former: int) -> Terms:
    raw = command.set.get("alternates")
    if not isinstance(raw, list) or len(raw) > _MOST_ALTERNATES or not all(isinstance(a, Mapping) for a in raw):
        raise FormatError("command", f"set.alternates must be a list of at most {_MOST_ALTERNATES} objects")
    watches = {_port(a, "path"): read_watch(a.get("watch")) for a in raw}
    paths = tuple(p for p in watches if p != former)
    watches[former] = read_watch(command.set.get("watch"))
    return Terms("arm", qp, former, paths, watches, _hold_down_ns(command.set))


def _port(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value not in PORTS:
        raise FormatError("command", f"{name} must be a port, not {value!r}")
    return value


def _ports(fields: Mapping[str, Any]) -> tuple[int, ...]:
    raw = fields.get("paths")
    if not isinstance(raw, list) or not 0 < len(raw) <= _MOST_ALTERNATES:
        raise FormatError("command", f"set.paths must be a list of 1 to {_MOST_ALTERNATES} ports")
    return tuple(_port({"paths": value}, "paths") for value in raw)


def _rate(fields: Mapping[str, Any]) -> int:
    value = _rate_or_none(fields.get("rate_bps"))
    if value is None:
        raise FormatError("command", "set.rate_bps must be a rate")
    return value


def _rate_or_none(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise FormatError("command", f"rate_bps must be a positive whole number, not {value!r}")
    return value


def _hold_down_ns(fields: Mapping[str, Any]) -> int:
    value = fields.get("hold_down_ms", DEFAULT_HOLD_DOWN_MS)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_HOLD_DOWN_MS:
        raise FormatError("command", f"hold_down_ms must lie within 0 and {_MOST_HOLD_DOWN_MS}, not {value!r}")
    return value * NS_PER_MS


def refused(message: Message, refusal: Refusal, at_ns: int) -> Outcome | None:
    """The outcome of a command that is refused; None: it has no id to answer to."""
    data: Any = getattr(message.body, "data", None)
    named = data.get("id") if isinstance(data, Mapping) else None
    if not isinstance(named, str):
        return None
    action, target = data.get("action"), data.get("target")
    return Outcome(
        command=named[:_MOST_TEXT],
        state="refused",
        why=str(refusal),
        host=message.key,
        at_ns=at_ns,
        action=action if isinstance(action, str) else "",
        target=dict(target) if isinstance(target, Mapping) else {},
    )
