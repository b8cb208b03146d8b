"""Lists that are worked out from the boards for whoever draws them: map cells, queue pairs, why, the pipeline. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from sdfstream.board import path_cells
from sdfstream.board.why import explain
from sdfstream.records.fabric import host_of
from sdfstream.serve.api.picture import Picture

Asked = Mapping[str, Any]
MOST_HOST_ROWS: Final = 64
"""More hosts than this are shown by leaf, unless they are asked for."""
_NOTHING: Final[Mapping[str, None]] = dict.fromkeys(("messages_per_s", "rows_per_s", "age_ns", "lag", "count", "stale"))


def cells(picture: Picture, late_ns: int, asked: Asked) -> list[dict[str, Any]]:
    """Rows of the map of paths; `late_ns` is the instant by which paths are judged."""
    figures = picture.board.paths.figures()
    leaf_of = picture.board.fabric.topology.leaf_of
    by = rows_by(picture, asked)

    def group(nic: str) -> str:
        return host_of(nic) if by == "host" else str(leaf_of.get(nic) or "no leaf")

    percentile = float(asked.get("percentile", 50))
    found, left_out = path_cells.rows(figures, late_ns, group, asked.get("figure", "owd"), percentile)
    return [
        {
            "src": row.origin, "by": by, "left_out": left_out, "dst": row.dst, "values": row.values,
            "floor_ns": row.floor_ns, "paths": row.paths, "measured": row.measured, "lost": row.lost,
        }
        for row in found
    ]  # fmt: skip


def rows_by(picture: Picture, asked: Asked) -> str:
    """What a row of the map stands for: ``host`` or ``leaf``."""
    leaf_of = picture.board.fabric.topology.leaf_of
    hosts = {host_of(nic) for nic in picture.board.paths.figures().nics}
    return str(asked.get("by") or ("host" if len(hosts) <= MOST_HOST_ROWS or not leaf_of else "leaf"))


def qps(picture: Picture, asked: Asked) -> list[dict[str, Any]]:
    """Queue pairs of running jobs."""
    names = [asked["job"]] if "job" in asked else picture.jobs.names()
    made = []
    for name in names:
        facts = picture.jobs.facts(name, picture.at_ns, picture.known_at_ns)
        for qp in facts.qps:
            item = {"id": f"{facts.job} {qp.qp}", "job": facts.job, **asdict(qp), "elements": sorted(qp.elements)}
            if "node" not in asked or _is_at(qp.src, qp.dst, qp.elements, asked["node"]):
                made.append(item)
    return made


def why(picture: Picture, asked: Asked) -> list[dict[str, Any]]:
    """What `sdfstream why` says of each running job, or of one."""
    jobs = picture.jobs
    names = (
        [asked["job"]] if "job" in asked else [j["job"] for j in jobs.view(picture.at_ns) if j["state"] == "running"]
    )
    said = [explain(jobs.facts(name, picture.at_ns, picture.known_at_ns)).as_data() for name in names]
    shown = (
        "job", "network", "case", "sentences", "advice", "where", "since_at_ns", "findings", "commands", "jobs",
    )  # fmt: skip
    return [{name: one[name] for name in shown} for one in said]


def loop(picture: Picture, asked: Asked) -> list[dict[str, Any]]:
    """Mode and overrides; whether an override is trusted is the controller's to say."""
    commands = picture.jobs.commands
    mode = commands.mode or {}
    made = [
        {
            "id": "mode", "type": "mode", "mode": mode.get("mode"), "operator": mode.get("operator"),
            "said_at_ns": mode.get("at_ns"), "waiting": commands.waiting(),
        }
    ]  # fmt: skip
    for given in commands.overrides(picture.at_ns):
        who = {"operator": given.get("operator"), "said_at_ns": given.get("said_at_ns")}
        about = {name: given.get(name) for name in ("what", "target", "set", "expires_at_ns")}
        made.append(
            {"id": f"override {given['id']}", "type": "override", "mode": None, "waiting": None, **who, **about}
        )
    return [item for item in made if asked.get("type", item["type"]) == item["type"]]


def pipeline(picture: Picture, asked: Asked) -> list[dict[str, Any]]:
    """Topics, readers, counters and hosts of the process; none of the past, which no archive has."""
    if picture.source.get("kind") != "pipeline":
        return []
    view = picture.board.pipeline(picture.at_ns, picture.lag)
    made = [_item("topic", name, **rate) for name, rate in view["rates"].items()]
    made += [_item("reader", name, lag=lag) for name, lag in view["lag"].items()]
    made += [_item("counter", name, count=n) for name, n in {**view["lost"], **view["aside"]}.items()]
    made.append(_item("hosts", "all", count=view["hosts"], stale=view["hosts_stale"], age_ns=view["age_ns"]))
    return [item for item in made if asked.get("type", item["type"]) == item["type"]]


def _item(kind: str, name: str, **said: Any) -> dict[str, Any]:
    return {"id": f"{kind} {name}", "type": kind, "name": name, **_NOTHING, **said}


def _is_at(src: str, dst: str, elements: frozenset[str], node: str) -> bool:
    if node in (src, dst, host_of(src), host_of(dst)):
        return True
    return any(node in element.split("->") or element == f"node {node}" for element in elements)
