"""The resources of the API: what each lists, by which parameters, in which order. Pure.

`RESOURCES` is the one table from which requests are answered and OpenAPI is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.alerts.webhook import STATUSES
from sdfstream.board.finding_notes import STATES as SILENCE_STATES
from sdfstream.board.humanize import subject_of
from sdfstream.board.nic_grid import STATES
from sdfstream.board.path_cells import FIGURES
from sdfstream.board.path_list import PathFilter, page
from sdfstream.records.command import ACTIONS
from sdfstream.records.command import STATES as COMMAND_STATES
from sdfstream.records.fabric import host_of
from sdfstream.records.finding import FINDING_KINDS
from sdfstream.serve.api import cursor, derived
from sdfstream.serve.api.parameters import PAGED, USUAL_ITEMS, Parameter
from sdfstream.serve.api.picture import Picture

Asked = Mapping[str, Any]
Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """One list of the API, at ``/v1/<name>``."""

    name: str
    doc: str
    filters: tuple[Parameter, ...]
    items: Callable[[Picture, Asked], Sequence[Item]]
    """Those that pass the filters, in any order."""
    key: Callable[[Item], tuple[Any, ...]]
    """What the list is ordered by; different for every item."""
    like: tuple[type, ...]
    """Types of the key's values."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Filters, then those of every list."""
        return (*self.filters, *PAGED)

    def answer(self, picture: Picture, asked: Asked) -> dict[str, Any]:
        """One page; ProblemError 400 where the cursor is none of this question."""
        most = asked.get("limit", USUAL_ITEMS)
        after = cursor.decode(self.name, asked, asked["cursor"], self.like) if "cursor" in asked else None
        if self.name == "paths":
            shown, total = page(picture.board.paths.figures(), _late(picture), _path_filter(asked), after, most + 1)
        else:
            found = sorted(self.items(picture, asked), key=self.key)
            total = len(found)
            shown = [dict(item) for item in found if after is None or self.key(item) > after][: most + 1]
        has_more, shown = len(shown) > most, shown[:most]
        following = cursor.encode(self.name, asked, self.key(shown[-1])) if has_more else None
        return picture.head | {"total": total, "next": following, "items": shown}


def _late(picture: Picture) -> int:
    """The instant by which paths are judged: rows that came late are as old as what they say."""
    return picture.at_ns + picture.board.late_ns(picture.at_ns)


def _path_filter(asked: Asked) -> PathFilter:
    names = ("src", "dst", "transport", "dscp", "dir", "state", "min_loss", "min_excess_ns")
    return PathFilter(**{name: asked[name] for name in names if name in asked})


def _nics(picture: Picture, asked: Asked) -> list[dict[str, Any]]:
    only = dict.fromkeys(asked["nic"].split(",")) if "nic" in asked else None
    return [
        nic
        for nic in picture.board.nics(picture.at_ns, only)
        if asked.get("host", nic["host"]) == nic["host"]
        and asked.get("state", nic["state"]) == nic["state"]
        and ("rail" not in asked or asked["rail"] == nic["rail"])
    ]


def _links(picture: Picture, asked: Asked) -> list[dict[str, Any]]:
    board = picture.board
    nics = {str(nic["nic"]): nic for nic in board.nics(picture.at_ns)}
    links = board.fabric.links(_late(picture), board.paths, nics, board.findings(open_only=True))
    return [
        link
        for link in links
        if asked.get("state", link["state"]) == link["state"]
        and ("node" not in asked or asked["node"] in (link["a"], link["b"], host_of(link["a"]), host_of(link["b"])))
    ]


def _findings(picture: Picture, asked: Asked) -> list[dict[str, Any]]:
    def fits(finding: Item) -> bool:
        resolved = finding.get("status") == "resolved"
        return (
            asked.get("open", not resolved) == (not resolved)
            and asked.get("kind", finding.get("kind")) == finding.get("kind")
            and asked.get("id", finding["id"]) == finding["id"]
            and asked.get("severity", finding.get("severity")) == finding.get("severity")
            and ("job" not in asked or asked["job"] in (finding.get("jobs") or ()))
            and ("subject" not in asked or asked["subject"] in (subject_of(finding), _subject_id(finding)))
            and _whole(finding.get("since_at_ns")) >= asked.get("since", 0)
            and asked.get("silenced", is_silenced(finding)) == is_silenced(finding)
        )

    def is_silenced(finding: Item) -> bool:
        return finding["silence"] is not None

    return [finding for finding in picture.board.findings(now_ns=picture.at_ns) if fits(finding)]


def _silences(picture: Picture, asked: Asked) -> list[dict[str, Any]]:
    return [
        silence
        for silence in picture.board.notes.silences(picture.at_ns)
        if asked.get("state", silence["state"]) == silence["state"]
        and asked.get("id", silence["id"]) == silence["id"]
        and asked.get("subject", "") in ("", silence["subject"], f"{silence['type']} {silence['subject']}")
        and asked.get("maintenance", silence["maintenance"]) == silence["maintenance"]
    ]


def _commands(picture: Picture, asked: Asked) -> list[dict[str, Any]]:
    commands = picture.jobs.commands.views(picture.at_ns, asked.get("job"))
    return [
        command
        for command in commands
        if asked.get("action", command["action"]) == command["action"]
        and asked.get("id", command["id"]) == command["id"]
        and asked.get("in_force", command["in_force"]) == command["in_force"]
        and asked.get("state", command["state"]) == command["state"]
        and _whole(command["began_at_ns"]) >= asked.get("since", 0)
    ]


def _jobs(picture: Picture, asked: Asked) -> list[dict[str, Any]]:
    return [
        job
        for job in picture.jobs.view(picture.at_ns)
        if asked.get("state", job["state"]) == job["state"] and ("host" not in asked or asked["host"] in job["hosts"])
    ]


def _topology(picture: Picture, asked: Asked) -> list[dict[str, Any]]:
    return [item for item in picture.board.fabric.items() if asked.get("type", item["type"]) == item["type"]]


def _clocks(picture: Picture, asked: Asked) -> list[dict[str, Any]]:
    clocks = picture.board.clocks(picture.at_ns)
    return [clock for clock in clocks if asked.get("status", clock["status"]) == clock["status"]]


def _alerts(picture: Picture, asked: Asked) -> list[dict[str, Any]]:
    return [
        alert
        for alert in picture.received.items()
        if asked.get("status", alert["status"]) == alert["status"]
        and asked.get("receiver", alert["receiver"]) == alert["receiver"]
        and asked.get("finding", alert["finding"]) == alert["finding"]
    ]


def _mesh(picture: Picture, asked: Asked) -> list[dict[str, Any]]:
    hosts = picture.board.mesh.hosts()
    return [host for host in hosts if asked.get("state", host["state"]) == host["state"]]


def _whole(value: object) -> int:
    """What a finding says where a whole number should stand, 0 where none does."""
    return value if isinstance(value, int) else 0


def _subject_id(finding: Item) -> object:
    subject = finding.get("subject")
    return subject.get("id") if isinstance(subject, Mapping) else None


def _id(name: str) -> Callable[[Item], tuple[Any, ...]]:
    return lambda item: (str(item[name]),)


def _newest(name: str) -> Callable[[Item], tuple[Any, ...]]:
    return lambda item: (-_whole(item.get(name)), str(item["id"]))


def _path_key(item: Item) -> tuple[Any, ...]:
    return tuple(item[name] for name in ("src", "dst", "transport", "path", "dscp", "dir"))


def _choice(name: str, doc: str, *choices: str) -> Parameter:
    return Parameter(name, doc, "choice", choices)


_SINCE: Final = Parameter("since", "only those that began at this instant or later", "instant")

RESOURCES: Final[dict[str, Resource]] = {
    resource.name: resource
    for resource in (
        Resource(
            "nics",
            "NICs: health of sending and receiving, state of the port; unknown where nothing is heard.",
            (
                Parameter("nic", "only this one, or these: names with a comma between"),
                Parameter("host", "only this host's"),
                _choice("state", "only those in this state, the worse of sending and receiving", *STATES),
                Parameter("rail", "only those of this rail", "whole", most=1 << 31),
            ),
            _nics,
            _id("nic"),
            (str,),
        ),
        Resource(
            "paths",
            "Paths: one-way delay, excess over the floor, loss and CE marks over the last seconds; one that is not "
            "measured any more is unknown and has no figures. `total` counts all that pass the filters.",
            (
                Parameter("src", "only from this NIC, or this host"),
                Parameter("dst", "only to this NIC, or this host"),
                _choice("transport", "only this transport", "udp", "rocev2", "ib"),
                Parameter("dscp", "only this class", "whole", most=63),
                _choice("dir", "only this direction", "fwd", "rev"),
                _choice("state", "only those in this state", "measured", "lost", "unknown"),
                Parameter("min_loss", "only those that lose at least this share now", "number", most=1),
                Parameter("min_excess_ns", "only those so far over their floor now, in ns", "number"),
            ),
            lambda picture, asked: (),  # by the page: they may be very many
            _path_key,
            (str, str, str, int, int, str),
        ),
        Resource(
            "links",
            "Links as declared, with the state of each direction: unhealthy where a finding blames it, healthy where "
            "a measured path crosses it, else unknown.",
            (
                _choice("state", "only those in this state, the worse of both directions", *STATES),
                Parameter("node", "only those at this switch, host or NIC"),
            ),
            _links,
            _id("link"),
            (str,),
        ),
        Resource(
            "findings",
            "Findings as last stated, the newest first: what broke, where, why, with evidence, remedy and jobs.",
            (
                Parameter("id", "only this one"),
                Parameter("open", "only those that are open, or only those that are resolved", "truth"),
                _choice("kind", "only this kind", *FINDING_KINDS),
                _choice("severity", "only this severity", "info", "warning", "urgent"),
                Parameter("job", "only those that hurt this job"),
                Parameter("subject", "only about this: `nic h03/r1`, or `h03/r1`"),
                Parameter("silenced", "only those that a silence covers now, or only the others", "truth"),
                _SINCE,
            ),
            _findings,
            _newest("since_at_ns"),
            (int, str),
        ),
        Resource(
            "silences",
            "Silences that operators set and the controller took up, the newest first: planned, in force, and of "
            "those that are over what is remembered.",
            (
                Parameter("id", "only this one"),
                _choice("state", "only those in this state", *SILENCE_STATES),
                Parameter("subject", "only of this subject: `nic h03/r1`, or `h03/r1`"),
                Parameter("maintenance", "only those with which the loop pauses, or only the others", "truth"),
            ),
            _silences,
            _newest("said_at_ns"),
            (int, str),
        ),
        Resource(
            "commands",
            "Commands of the loop, the newest first: target, mode, state, reason, lease, effect.",
            (
                Parameter("id", "only this one"),
                Parameter("job", "only those that aim at this job"),
                _choice("action", "only this action", *ACTIONS),
                _choice("state", "only with this last outcome", *COMMAND_STATES),
                Parameter("in_force", "only those whose lease runs, or only the others", "truth"),
                _SINCE,
            ),
            _commands,
            _newest("began_at_ns"),
            (int, str),
        ),
        Resource(
            "alerts",
            "Alerts that an Alertmanager told of by its webhook, the newest first: others' beside our findings, and "
            "which receiver told of a finding. Of now only, since this process began.",
            (
                _choice("status", "only those with this status", *STATUSES),
                Parameter("receiver", "only those of this receiver"),
                Parameter("finding", "only those of this finding, by its id"),
            ),
            _alerts,
            _newest("received_at_ns"),
            (int, str),
        ),
        Resource(
            "jobs",
            "Jobs: hosts, ranks, throughput now and usually, the slowest queue pair, findings that hurt them.",
            (
                _choice("state", "only those in this state", "running", "ended"),
                Parameter("host", "only those on this host"),
            ),
            _jobs,
            _id("job"),
            (str,),
        ),
        Resource(
            "topology",
            "The fabric: nodes and NICs as declared, routes of paths as traced.",
            (_choice("type", "only these", "node", "nic", "route"),),
            _topology,
            _id("id"),
            (str,),
        ),
        Resource(
            "clocks",
            "Clocks: offset, skew and error bound against the reference; unknown where nothing is told any more.",
            (_choice("status", "only with this status", "synced", "holdover", "unsynced", "faulty", "unknown"),),
            _clocks,
            _id("clock"),
            (str,),
        ),
        Resource(
            "mesh",
            "Hosts of the mesh plan: sessions, packets per second, budget, and whether the agent obeys the plan.",
            (_choice("state", "only those in this state", "obeyed", "another", "waiting", "unknown"),),
            _mesh,
            _id("host"),
            (str,),
        ),
        Resource(
            "cells",
            "Paths summed up for a map: a row for each sending host (or leaf, where there are more than 64 hosts), in "
            "it a figure for each receiving one. At most 200 rows.",
            (
                _choice("by", "rows and columns (usual: host up to 64 of them, else leaf)", "host", "leaf"),
                _choice(
                    "figure", "delay, excess over the floor (both ns), loss or CE marks (shares); usual: owd", *FIGURES
                ),
                Parameter("percentile", "over the paths of a cell; usual: 50", "number", most=100),
            ),
            lambda picture, asked: derived.cells(picture, _late(picture), asked),
            _id("src"),
            (str,),
        ),
        Resource(
            "qps",
            "Queue pairs of running jobs over their newest 5 s: throughput, delay, marks, retransmissions, route.",
            (Parameter("job", "only this job's"), Parameter("node", "only with this NIC, host or switch on the route")),
            derived.qps,
            _id("id"),
            (str,),
        ),
        Resource(
            "why",
            "Whether the network holds a job up, sentence by sentence, with the findings and commands behind it.",
            (Parameter("job", "only this job, by its id, or its name where only one has it"),),
            derived.why,
            _id("job"),
            (str,),
        ),
        Resource(
            "loop",
            "The control loop as operators set it: the mode, and overrides that have not lapsed.",
            (_choice("type", "only these", "mode", "override"),),
            derived.loop,
            _id("id"),
            (str,),
        ),
        Resource(
            "pipeline",
            "The pipeline itself: rate of each topic, lag of each reader, counters of what was lost. Not of the past.",
            (_choice("type", "only these", "topic", "reader", "counter", "hosts"),),
            derived.pipeline,
            _id("id"),
            (str,),
        ),
    )
}
