"""Retention and partitions of topics, by patterns of their names.

Rules cascade: of all rules whose pattern fits a topic, the last one that names a value decides it. `DEFAULT_RULES`
stand before a user's own, so that a rule need only name what it changes. Dead letters go by rules of their own, whose
pattern ends in ``.dlq``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from sdfstream.errors import ConfigError

FOR_EVER: Final = -1
GIB: Final = 1 << 30
DAY_H: Final = 24.0
_DEAD: Final = ".dlq"


@dataclass(frozen=True, slots=True)
class TopicRule:
    """Values for topics whose name fits `match`; None: as other rules say."""

    match: str
    """Pattern of topic names without the prefix: ``sdf.raw.*``, ``*.dlq``; of several that fit the last one counts."""
    partitions: int | None = None
    retention_h: float | None = None
    """Hours that messages stay; −1: for ever. Compacted topics retain the last message of every key for ever."""
    retention_bytes: int | None = None
    """Size of one partition on one broker beyond which the oldest messages go; −1: no limit."""

    def fits(self, name: str) -> bool:
        """Whether the rule applies to the topic `name`."""
        return fnmatchcase(name, self.match) and name.endswith(_DEAD) == self.match.endswith(_DEAD)


DEFAULT_RULES: Final = (
    # the shorter of time and size decides; sizes bound the disk, times are what topics are meant to hold
    TopicRule("sdf.raw.*", retention_h=6, retention_bytes=16 * GIB),
    TopicRule("sdf.derived.*", retention_h=6, retention_bytes=16 * GIB),
    TopicRule("sdf.derived.edge.*", retention_h=2, retention_bytes=2 * GIB),
    TopicRule("sdf.derived.estimate.*", retention_h=2, retention_bytes=2 * GIB),
    TopicRule("sdf.state.*", retention_h=DAY_H, retention_bytes=4 * GIB),
    TopicRule("sdf.event.*", retention_h=30 * DAY_H, retention_bytes=GIB),
    TopicRule("sdf.control.*", retention_h=30 * DAY_H, retention_bytes=GIB),
    TopicRule("*.dlq", retention_h=7 * DAY_H, retention_bytes=GIB),
)


def ruled(name: str, rules: Iterable[TopicRule]) -> TopicRule:
    """The values of all `rules` for the topic `name`, as one rule.

    >>> ruled("sdf.raw.port.v1", (TopicRule("*", 1, 6.0), TopicRule("sdf.raw.*", retention_h=2.0)))
    TopicRule(match='sdf.raw.port.v1', partitions=1, retention_h=2.0, retention_bytes=None)
    """
    partitions = retention_h = retention_bytes = None
    for rule in rules:
        if rule.fits(name):
            partitions = rule.partitions if rule.partitions is not None else partitions
            retention_h = rule.retention_h if rule.retention_h is not None else retention_h
            retention_bytes = rule.retention_bytes if rule.retention_bytes is not None else retention_bytes
    return TopicRule(name, partitions, retention_h, retention_bytes)


def check_rules(rules: Iterable[TopicRule], names: Iterable[str], path: str) -> None:
    """Raise `ConfigError` with the path of the key for a rule that cannot work or fits none of the topics `names`."""
    known = tuple(names)
    for i, rule in enumerate(rules):
        where = f"{path}.{i}"
        if not any(rule.fits(name) for name in known):
            raise ConfigError(f"{where}.match: no topic is called like {rule.match!r}")
        if rule.partitions is not None and rule.partitions < 1:
            raise ConfigError(f"{where}.partitions must be at least 1, not {rule.partitions}")
        if rule.retention_h is not None and rule.retention_h != FOR_EVER and not 0.1 <= rule.retention_h <= 1e6:
            raise ConfigError(
                f"{where}.retention_h must be 0.1 to 1e6 hours, or -1 (for ever), not {rule.retention_h:g}"
            )
        if rule.retention_bytes is not None and rule.retention_bytes != FOR_EVER and rule.retention_bytes < 1 << 20:
            raise ConfigError(
                f"{where}.retention_bytes must be at least 1048576 (1 MiB) or -1 (no limit), not {rule.retention_bytes}"
            )
