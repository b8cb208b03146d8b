"""Silences and labels: what operators say of findings. Detection is not changed by them, only who is told, and how.

A *silence* covers the findings about a subject, and about what lies under it, for a time; with ``maintenance`` the
loop starts nothing new there meanwhile. A *label* says what a finding turned out to be. Both are overrides
(``records/command.py``) and count from the controller's outcome ``applied`` on, which repeats them whole:

=========  =======================================  ===================================================================
action     target of the outcome                    ``after`` of the outcome
=========  =======================================  ===================================================================
silence    {"type", "id", "override"}               {"kinds", "from_at_ns", "until_at_ns", "maintenance", "reason",
                                                    "operator"}
label      {"type": "finding", "id", "override"}    {"cause", "operator"}, and {"note"} where there is one
lift       {"type": "override", "id", "override"}   {"lifted": "silence" or "hold", "operator"}
=========  =======================================  ===================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.errors import FormatError
from sdfstream.records.command import Outcome, Override
from sdfstream.records.fabric import host_of, link_id
from sdfstream.records.finding import CAUSES, FINDING_KINDS

SILENCE, LABEL, LIFT = "silence", "label", "lift"
WORDS: Final = (SILENCE, LABEL, LIFT)
"""What an override may say of findings; also the actions of the outcomes that take them up."""
SUBJECTS: Final = ("finding", "nic", "link", "switch", "host", "job", "clock", "path", "all")
FALSE_ALARM: Final = "false-alarm"
LABELS: Final = (*CAUSES, FALSE_ALARM)
MOST_TEXT: Final = 500
"""Characters of a reason or note, and of a subject's name."""
EVERYTHING: Final = "*"
"""Name of the subject of type ``all``."""

Scope = tuple[str, str]
"""Type and name of something that findings are about."""


@dataclass(frozen=True, slots=True)
class FindingSilence:
    """One silence."""

    id: str
    """Of the override."""
    type: str
    """One of `SUBJECTS`."""
    name: str
    from_at_ns: int
    """Begins then, bus time."""
    until_at_ns: int
    """Over then, bus time."""
    operator: str
    reason: str = ""
    kinds: tuple[str, ...] = ()
    """Only these kinds of findings; none named: all."""
    maintenance: bool = False
    """Whether the loop starts nothing new at what it covers, of whatever kind."""

    @property
    def scope(self) -> Scope:
        """What it is about."""
        return self.type, self.name

    def in_force(self, now_ns: int) -> bool:
        """Whether it holds at `now_ns`, bus time."""
        return self.from_at_ns <= now_ns < self.until_at_ns

    def covers(self, finding: Mapping[str, Any]) -> bool:
        """Whether a finding is of its kinds, and about its subject or what lies under it."""
        return self.is_of(finding) and self.scope in scopes_of(finding)

    def is_of(self, finding: Mapping[str, Any]) -> bool:
        """Whether a finding is of its kinds."""
        return not self.kinds or finding.get("kind") in self.kinds

    def as_after(self) -> dict[str, Any]:
        """``after`` of the outcome that takes it up."""
        return {
            "kinds": list(self.kinds),
            "from_at_ns": self.from_at_ns,
            "until_at_ns": self.until_at_ns,
            "maintenance": self.maintenance,
            "reason": self.reason,
            "operator": self.operator,
        }


def named(kind: object, name: object) -> Scope:
    """The subject of a silence as findings name it: a link's two ends in order.

    Raises
    ------
    FormatError
        ``subject``: there is no such type, or no name.

    >>> named("link", "s1--l0"), named("all", "")
    (('link', 'l0--s1'), ('all', '*'))
    """
    if kind not in SUBJECTS:
        raise FormatError("subject", f"target.type is one of {', '.join(SUBJECTS)}, not {kind!r}")
    if kind == "all":
        return "all", EVERYTHING
    if not isinstance(name, str) or not 0 < len(name) <= MOST_TEXT:
        raise FormatError("subject", f"target.id names a {kind} in at most {MOST_TEXT} characters")
    a, joined, b = name.partition("--")
    return str(kind), link_id(a, b) if kind == "link" and joined else name


def silence_of(read: Override, now_ns: int) -> FindingSilence:
    """The silence that an override asks for; where it says no begin it is `now_ns`, bus time.

    Raises
    ------
    FormatError
        With a sentence: something of it cannot be read.
    """
    kind, name = named(read.target.get("type"), read.target.get("id"))
    kinds, from_at_ns = read.set.get("kinds") or (), read.set.get("from_at_ns")
    maintenance = read.set.get("maintenance", False)
    if not isinstance(kinds, list | tuple) or not all(isinstance(k, str) and k in FINDING_KINDS for k in kinds):
        raise FormatError("kinds", f"set.kinds is a list of kinds of findings: {', '.join(FINDING_KINDS)}")
    if not isinstance(maintenance, bool):
        raise FormatError("maintenance", "set.maintenance is true or false")
    from_at_ns = now_ns if from_at_ns is None else from_at_ns  # the operator's clock may be ahead
    if not isinstance(from_at_ns, int) or isinstance(from_at_ns, bool) or not from_at_ns < read.expires_at_ns:
        raise FormatError("from", "set.from_at_ns is an instant before expires_at_ns, ns since the Unix epoch")
    until_at_ns, reason = read.expires_at_ns, text_of(read.set, "reason")
    return FindingSilence(
        read.id, kind, name, from_at_ns, until_at_ns, read.operator, reason, tuple(kinds), maintenance
    )


def silence_from(outcome: Outcome) -> FindingSilence:
    """The silence that an outcome takes up; FormatError, KeyError, TypeError or ValueError where it is none."""
    kind, name = named(outcome.target.get("type"), outcome.target.get("id"))
    after = outcome.after
    return FindingSilence(
        str(outcome.target["override"]),
        kind,
        name,
        int(after["from_at_ns"]),
        int(after["until_at_ns"]),
        str(after["operator"]),
        str(after.get("reason") or ""),
        tuple(str(k) for k in after.get("kinds") or ()),
        bool(after.get("maintenance")),
    )


def text_of(given: Mapping[str, Any], name: str) -> str:
    """A reason or note; FormatError where it is no text, or too long."""
    text = given.get(name) or ""
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        raise FormatError(name, f"set.{name} is a text of at most {MOST_TEXT} characters")
    return text


def scopes_of(finding: Mapping[str, Any]) -> frozenset[Scope]:
    """Every subject by which a silence covers the finding: its own, and what that lies under.

    A queue pair's finding lies under its job only where it hurts no other.

    >>> sorted(scopes_of({"id": "f1", "subject": {"type": "link", "id": "h00/r0--l0"}}))[1:]
    [('finding', 'f1'), ('host', 'h00'), ('link', 'h00/r0--l0'), ('nic', 'h00/r0'), ('switch', 'l0')]
    """
    found: set[Scope] = {("all", EVERYTHING), ("finding", str(finding.get("id")))}
    subject = finding.get("subject")
    if isinstance(subject, Mapping):
        kind, name = str(subject.get("type")), str(subject.get("id"))
        found |= {(kind, name), *_over(kind, name)}
        jobs = list(finding.get("jobs") or ())
        if kind == "qp" and len(jobs) == 1:
            found.add(("job", str(jobs[0])))
    return frozenset(found)


def _over(kind: str, name: str) -> Iterable[Scope]:
    """What a subject lies under."""
    if kind == "nic":
        return _above(name)
    if kind == "port":
        return (*_above(name.partition(":")[0]), ("switch", host_of(name)))
    if kind == "qp":
        return _above(name.partition("#")[0])
    if kind == "link":
        return [above for end in name.split("--") for above in _of_end(end)]
    if kind == "clock":
        return _above(name) if "/" in name else [("host", name)]
    if kind == "path":  # ``src>dst transport:port class direction``
        pair = name.partition(" ")[0]
        return [("path", pair), *(above for nic in pair.split(">") for above in _above(nic))]
    return ()


def _of_end(end: str) -> list[Scope]:
    """What an end of a link lies under: a NIC, or a switch."""
    return _above(end) if "/" in end else [("switch", end)]


def _above(nic: str) -> list[Scope]:
    return [("nic", nic), ("host", host_of(nic))]


def scopes_of_queue_pair(
    src: str, dst: str, jobs: Iterable[str], reasons: Iterable[str], crossed: Iterable[tuple[str, str]]
) -> frozenset[Scope]:
    """Every subject by which a maintenance covers what is done to a queue pair.

    Parameters
    ----------
    src, dst : str
        NIC ids.
    jobs : iterable of str
        Id and name of its job.
    reasons : iterable of str
        Findings on which the action stands.
    crossed : iterable of (str, str)
        Ends of the link directions that its data cross, or would.
    """
    found: set[Scope] = {("all", EVERYTHING), ("path", f"{src}>{dst}"), *_above(src), *_above(dst)}
    found |= {("job", job) for job in jobs} | {("finding", reason) for reason in reasons}
    for a, b in crossed:
        found |= {("link", link_id(a, b)), *(("switch", end) for end in (a, b) if "/" not in end)}
    return frozenset(found)
