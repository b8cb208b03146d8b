"""Topics, their policy and their rights, as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from sdfstream import visible

if TYPE_CHECKING:
    from sdfstream.bus.kafka.acl_io import AclState
    from sdfstream.bus.kafka.roles import Grant
    from sdfstream.bus.kafka.topic_policy import Difference, Policy

_HEAD: Final = ("topic", "partitions", "replicas", "kept", "per partition", "segments", "at most")
_STEPS: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_KINDS: Final = {"transactional_id": "transactional id"}


def policies(wanted: Sequence[Policy]) -> str:
    """A table of what topics must be like, and what disk they can come to need."""
    rows = [_HEAD, *(_row(p) for p in wanted)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    limited = [p.most_bytes for p in wanted if p.most_bytes is not None]
    unlimited = len(wanted) - len(limited)
    total = f"at most {size(sum(limited))} on all brokers together"
    return visible.lines(
        [*lines, "", f"{total}, and {unlimited} topics without a limit (compacted ones keep one message a key)"]
    )


def difference(d: Difference) -> str:
    """One difference as a line."""
    if d.what == "absent":
        return f"{d.name}: absent, to be made with {d.want}"
    return f"{d.name}: {d.key} is {d.have or 'not set'}, must be {d.want}{_note(d)}"


def done(d: Difference) -> str:
    """One difference that is no more, as a line."""
    if d.what == "absent":
        return f"made: {d.name}, with {d.want}"
    return f"changed: {d.name}: {d.key} was {d.have or 'not set'}, is {d.want}{_note(d)}"


def _note(d: Difference) -> str:
    return f" ({d.note})" if d.note else ""


def grant(g: Grant) -> str:
    """One access rule as a line."""
    named = f"{g.name}*" if g.pattern == "prefixed" else g.name
    return f"{g.principal} may {g.operation} {_KINDS.get(g.resource, g.resource)} {named}"


def acls(state: AclState) -> Iterator[str]:
    """Differences from the policy, line by line."""
    yield from (f"missing: {grant(g)}" for g in state.missing)
    yield from (f"more than a role needs: {grant(g)} (apply --acls --prune takes it away)" for g in state.extra)
    yield from (f"not ours, left alone: {words}" for words in state.odd)


def size(n: int | None) -> str:
    """Bytes as people read them.

    >>> [size(n) for n in (None, 1 << 20, 16 << 30, 1536 << 20)]
    ['no limit', '1 MiB', '16 GiB', '1.5 GiB']
    """
    if n is None or n < 0:
        return "no limit"
    unit, step = next(((u, s) for u, s in _STEPS if n >= s), ("B", 1))
    return f"{n / step:.1f}".removesuffix(".0") + f" {unit}"


def _row(p: Policy) -> tuple[str, ...]:
    s = p.settings
    retention = "last of a key" if s["cleanup.policy"] == "compact" else _hours(int(s["retention.ms"]))
    return (
        p.name,
        str(p.partitions),
        str(p.replication),
        retention,
        size(int(s["retention.bytes"])) if "retention.bytes" in s else "–",
        f"{size(int(s['segment.bytes']))}, {_hours(int(s['segment.ms']))}",
        size(p.most_bytes) if p.most_bytes is not None else "–",
    )


def _hours(ms: int) -> str:
    """
    >>> [_hours(ms) for ms in (-1, 600_000, 6 * 3_600_000, 30 * 24 * 3_600_000)]
    ['for ever', '10 min', '6 h', '30 d']
    """
    if ms < 0:
        return "for ever"
    if ms < 3_600_000:
        return f"{ms / 60_000:g} min"
    return f"{ms / 3_600_000:g} h" if ms < 48 * 3_600_000 else f"{ms / 86_400_000:g} d"
