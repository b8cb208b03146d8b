"""Which commands on a queue pair's control socket are obeyed: every rule in one module, without I/O.

A command must be signed by a key that *this* process trusts; the agent that hands it over is not trusted. The checks,
in this order, and the reason given where one fails:

==================  ===================================================================================
``malformed``       not a command of a known form
``unknown-key``     signed with a key that is not on our ring; ``forged``: the signature does not fit
``not-enforced``    its mode is not ``enforce``
``wrong-epoch``     an epoch lower than the highest seen
``wrong-host``      meant for another host than this socket's
``unknown-target``  no queue pair of ours
``replayed``        issued no later than the last statement of that command; the choice of an armed failover may come
                    again under the same statement, since the agent decides when
``expired``         its lease is over, by this host's clock, by the newest time at which any command was issued, or by
                    the time since this statement first came; also when it was issued in the future
``unexpected-state``  the queue pair is not on the path that the command expects
``not-possible``, ``failed``, ``busy``  a real queue pair's device cannot do it, refused it, or does the last one still
==================  ===================================================================================

An *undo* takes back only the effect of the same command, where still in force, even when its lease is over or its
epoch is old. A path never changes by itself. A limit ends by itself after its ``ttl_ms``, at the latest with the
lease.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sdfstream.errors import FormatError, SdfError
from sdfstream.records.command import Command
from sdfstream.records.command import command as parse_command
from sdfstream.records.fabric import host_of
from sdfstream.records.signature import KeyRing
from sdfstream.records.units import NS_PER_MS, NS_PER_S

_FUTURE_NS: Final = 60 * NS_PER_S
"""A command issued this far ahead of the host's clock: one of the two clocks is wrong, so nothing is done."""
_LONGEST_NS: Final = 3_600 * NS_PER_S
"""No lease and no limit is longer."""
_MOST_STATEMENTS: Final = 4_096
"""Commands remembered; those whose lease is over by every clock go first."""
_LEAST_BPS: Final = 10_000
"""No limit below this: it would be an outage."""


class Steerable(Protocol):
    """A queue pair's sending end."""

    rate_bps: int | None

    @property
    def path(self) -> int:
        """Source port now."""

    def steer(self, path: int, now_ns: int) -> None:
        """Send by source port `path` from now on."""


@dataclass(slots=True)
class QpTarget:
    """A queue pair that commands may concern."""

    qp: str
    ports: tuple[int, ...]
    """Every source port that it may use."""
    own_rate_bps: int | None
    """The job's own limit, which no command lifts."""
    sender: Steerable
    limited_by: str = ""
    """Command whose limit is in force."""
    limit_ends_ns: int = 0
    """Steady clock."""
    moved_by: str = ""
    """Command that made the last move."""

    def state(self) -> dict[str, Any]:
        """The part of an answer that is given before and after the command."""
        return {"path": self.sender.path, "rate_bps": self.sender.rate_bps}


@dataclass(slots=True)
class _SeenStatement:
    issued_at_ns: int
    expires_at_ns: int
    seen_ns: int
    """Steady clock: when this statement was first seen."""


class RefusedError(SdfError):
    """Why a command is not obeyed; the text is ``reason: sentence``."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(f"{reason}: {sentence}")
        self.reason = reason


class QpControl:
    """Checks commands and carries them out.

    Parameters
    ----------
    keys : KeyRing
        The public keys that this process trusts.
    job : str
    targets : mapping of QP id to QpTarget
    limited : callable
        Called after a limit has been set: `next_end_ns` may be another.
    """

    def __init__(
        self, keys: KeyRing, job: str, targets: Mapping[str, QpTarget], limited: Callable[[], None] = lambda: None
    ) -> None:
        self.targets = targets
        self._limited = limited
        self._keys = keys
        self._job = job
        self._epoch = -1
        self._known: OrderedDict[str, _SeenStatement] = OrderedDict()
        self._newest_issued_at_ns = 0
        self._newest_issued_ns = 0

    def set(self, request: Mapping[str, Any], host: str, at_ns: int, now_ns: int) -> dict[str, Any]:
        """Carry out ``{"do": "set", …}`` that came by the socket of `host`; the answer.

        Parameters
        ----------
        at_ns : int
            The host's clock.
        now_ns : int
            A steady clock.

        Raises
        ------
        RefusedError
        """
        command = self._signed(request)
        if command.epoch < self._epoch:
            raise RefusedError("wrong-epoch", f"epoch {command.epoch}, but {self._epoch} has been seen")
        self._epoch = command.epoch
        target = self._target(command, host)
        choice = _choice(request, command)
        self._check_fresh(command, at_ns, now_ns, again=choice is not None)
        before = target.state()
        if command.action == "throttle":
            self._limit(target, command, _ttl_ns(request, command), now_ns)
        else:
            self._move(target, command, choice, now_ns)
        self._remember(command, at_ns, now_ns)
        return {"ok": True, "before": before, "after": target.state()}

    def undo(self, request: Mapping[str, Any], host: str, now_ns: int) -> dict[str, Any]:
        """Carry out ``{"do": "undo", …}``: take back the signed command's effect here; RefusedError as `set`."""
        command = self._signed(request)
        target = self._target(command, host)
        done_by = str(command.set.get("command", "")) if command.action == "undo" else command.id
        before = target.state()
        if done_by and done_by == target.limited_by:
            self._lift(target)
        elif done_by and done_by == target.moved_by and isinstance(command.undo.get("path"), int):
            self._send_by(target, command.undo["path"], "", now_ns)
        elif command.undo.get("path", target.sender.path) != target.sender.path:
            raise RefusedError("unexpected-state", f"nothing that command {done_by!r} did is in force here")
        return {"ok": True, "before": before, "after": target.state()}

    def expire(self, now_ns: int) -> list[str]:
        """Lift the limits whose time is over; the queue pairs concerned."""
        over = [t for t in self.targets.values() if t.limited_by and now_ns >= t.limit_ends_ns]
        for target in over:
            self._lift(target)
        return [target.qp for target in over]

    @property
    def next_end_ns(self) -> int | None:
        """Steady clock: when the next limit ends; None where none is in force."""
        return min((t.limit_ends_ns for t in self.targets.values() if t.limited_by), default=None)

    def _signed(self, request: Mapping[str, Any]) -> Command:
        data = request.get("command")
        try:
            command = parse_command(data if isinstance(data, Mapping) else {})
        except FormatError as error:
            raise RefusedError("malformed", error.detail) from error
        assert isinstance(data, Mapping)
        refused = self._keys.refuses(data)
        if refused:
            reason = refused if refused in ("unknown-key", "forged") else "malformed"
            raise RefusedError(reason, f"the signature by key {command.key_id!r} is not one we trust")
        if command.mode != "enforce":
            raise RefusedError("not-enforced", f"mode {command.mode} changes nothing")
        return command

    def _target(self, command: Command, host: str) -> QpTarget:
        qp = command.target.get("id")
        if command.target.get("type") != "qp" or not isinstance(qp, str):
            raise RefusedError("unknown-target", "not a queue pair")
        if command.target.get("host", host) != host or host_of(qp) != host:
            raise RefusedError("wrong-host", f"this is {host}")
        if qp not in self.targets or command.target.get("job", self._job) != self._job:
            raise RefusedError("unknown-target", f"no queue pair {qp} in job {self._job}")
        return self.targets[qp]

    def _check_fresh(self, command: Command, at_ns: int, now_ns: int, *, again: bool) -> None:
        lease_ns = command.expires_at_ns - command.issued_at_ns
        if not 0 < lease_ns <= _LONGEST_NS:
            raise RefusedError("expired", f"a lease of {lease_ns / NS_PER_S:g} s")
        known = self._known.get(command.id)
        if known is not None and command.issued_at_ns <= known.issued_at_ns:
            if command.issued_at_ns < known.issued_at_ns or not again:
                raise RefusedError("replayed", "this statement of the command, or a later one, was obeyed before")
            if now_ns - known.seen_ns >= lease_ns:
                raise RefusedError("expired", "its lease has run out since it came")
        least_now_at_ns = self._newest_issued_at_ns + (now_ns - self._newest_issued_ns)
        if command.expires_at_ns <= max(at_ns, least_now_at_ns):
            raise RefusedError("expired", "its lease is over")
        if command.issued_at_ns > at_ns + _FUTURE_NS:
            raise RefusedError("expired", "it was issued in the future of this host's clock: one of the two is wrong")

    def _limit(self, target: QpTarget, command: Command, ttl_ns: int, now_ns: int) -> None:
        rate_bps = command.set.get("rate_bps")
        if not isinstance(rate_bps, int) or isinstance(rate_bps, bool) or rate_bps < _LEAST_BPS:
            raise RefusedError("malformed", f"rate_bps must be a whole number from {_LEAST_BPS}, not {rate_bps!r}")
        self._check_path(command, target)
        own = target.own_rate_bps
        target.sender.rate_bps = rate_bps if own is None else min(rate_bps, own)
        target.limited_by = command.id
        target.limit_ends_ns = now_ns + ttl_ns
        self._limited()

    def _move(self, target: QpTarget, command: Command, choice: int | None, now_ns: int) -> None:
        present = target.sender.path
        if choice is not None:
            known = [command.expected.get("path"), command.undo.get("path"), *_alternates(command)]
            if present not in known:
                raise RefusedError("unexpected-state", f"on path {present}, which this failover does not know")
            self._send_by(target, choice, command.id, now_ns)
            return
        path = command.set.get("path")
        if command.action not in ("steer", "failback") or not isinstance(path, int):
            raise RefusedError("malformed", f"a {command.action} without a choice sets no path")
        if present != path:
            self._check_path(command, target)
        self._send_by(target, path, command.id, now_ns)

    def _check_path(self, command: Command, target: QpTarget) -> None:
        if command.expected.get("path") != target.sender.path:
            raise RefusedError("unexpected-state", f"on path {target.sender.path}, not {command.expected.get('path')}")

    def _send_by(self, target: QpTarget, path: int, by: str, now_ns: int) -> None:
        if path not in target.ports:
            raise RefusedError("malformed", f"{path} is no source port of {target.qp}")
        target.sender.steer(path, now_ns)
        target.moved_by = by

    def _lift(self, target: QpTarget) -> None:
        target.sender.rate_bps = target.own_rate_bps
        target.limited_by = ""

    def _remember(self, command: Command, at_ns: int, now_ns: int) -> None:
        known = self._known.pop(command.id, None)
        seen_ns = known.seen_ns if known and known.issued_at_ns == command.issued_at_ns else now_ns
        self._known[command.id] = _SeenStatement(command.issued_at_ns, command.expires_at_ns, seen_ns)
        if command.issued_at_ns > self._newest_issued_at_ns + (now_ns - self._newest_issued_ns):
            self._newest_issued_at_ns, self._newest_issued_ns = command.issued_at_ns, now_ns
        while len(self._known) > _MOST_STATEMENTS:
            over = next((i for i, k in self._known.items() if k.expires_at_ns <= at_ns), next(iter(self._known)))
            del self._known[over]


def _choice(request: Mapping[str, Any], command: Command) -> int | None:
    """The path that the agent chose for an armed failover: one of its alternates, or back."""
    choice = request.get("choice")
    if (command.action == "failover") is (choice is None):
        raise RefusedError("malformed", "a choice is for a failover, and a failover needs one")
    if choice is None:
        return None
    path = choice.get("path") if isinstance(choice, Mapping) else None
    if (
        not isinstance(path, int)
        or isinstance(path, bool)
        or path not in [*_alternates(command), command.undo.get("path")]
    ):
        raise RefusedError("malformed", f"path {path!r} is not among the choices of this failover")
    return path


def _alternates(command: Command) -> list[Any]:
    alternates = command.set.get("alternates")
    if not isinstance(alternates, list) or not all(isinstance(a, Mapping) for a in alternates):
        return []
    return [a.get("path") for a in alternates if isinstance(a.get("path"), int)]


def _ttl_ns(request: Mapping[str, Any], command: Command) -> int:
    """How long a limit holds: as asked, at the latest until the lease ends."""
    lease_ns = command.expires_at_ns - command.issued_at_ns
    ttl_ms = request.get("ttl_ms", lease_ns // NS_PER_MS)
    if not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool) or ttl_ms <= 0:
        raise RefusedError("malformed", f"ttl_ms must be a whole number above 0, not {ttl_ms!r}")
    return min(ttl_ms * NS_PER_MS, lease_ns)
