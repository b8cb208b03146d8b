"""Sentences for what the brokers refuse: the name, and the roles that may."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sdfstream.bus.kafka import roles
from sdfstream.bus.kafka.config import NAMES

REMEDY = "`sdfstream topics apply --acls` gives roles their rights"


def of_topics(names: Iterable[str]) -> str:
    """`names` as the brokers call them.

    >>> of_topics(["a.sdf.control.override.v1"]).partition(";")[0]
    'topic a.sdf.control.override.v1 may not be used by this user (roles that write it: operator'
    """
    return "; ".join([*(_of_topic(name) for name in sorted(names)), REMEDY])


def of_group(name: str) -> str:
    """A consumer group, by its name on the brokers."""
    whose = _behind_prefix(name, roles.whose_group)
    return f"group {name} may not be used by this user (role {_or(whose)}); {REMEDY}"


def of_transactions(name: str) -> str:
    """A transactional id."""
    whose = _behind_prefix(name, roles.whose_transactions)
    return f"transactional id {name} may not be used by this user (role {_or(whose)}); {REMEDY}"


def of_cluster() -> str:
    """An operation on the cluster as a whole."""
    return f"this user may not do that on the cluster (role admin, or a superuser); {REMEDY}"


def _of_topic(name: str) -> str:
    topic = next((known for known in sorted(NAMES, key=len, reverse=True) if name.endswith(known)), "")
    readers, writers = roles.who(topic)
    by = f"roles that write it: {_and(writers)}; that read it: {_and(readers)}" if topic else "none of ours"
    return f"topic {name} may not be used by this user ({by})"


def _behind_prefix(name: str, whose: Callable[[str], list[str]]) -> list[str]:
    """Roles of `name`, whatever prefix it has: the shortest that leaves a name we know."""
    return next((found for i in range(len(name)) if (found := whose(name[i:]))), [])


def _and(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _or(names: list[str]) -> str:
    return " or ".join(names) or "none of ours"
