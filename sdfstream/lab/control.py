"""Requests to the owner of a running lab: one request, one answer, both plain JSON objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from sdfstream.errors import ConfigError, SdfError

if TYPE_CHECKING:
    from sdfstream.lab.fabric_io import Fabric

Args = Mapping[str, Any]


def answer(fabric: Fabric, request: object) -> dict[str, Any]:
    """Do what `request` asks; ``{"error": sentence}`` when it cannot be done.

    A request is ``{"do": name, …arguments}``; names and arguments are those of `Fabric`'s methods.
    """
    try:
        if not isinstance(request, dict):
            raise ConfigError("a request is a JSON object")
        name = request.pop("do", None)
        if name not in ACTIONS:
            raise ConfigError(f"no such request: {name!r}")
        return ACTIONS[name](fabric, request)
    except SdfError as error:
        return {"error": str(error)}
    except (TypeError, KeyError, ValueError) as error:
        return {"error": f"the request lacks something or has the wrong type: {error}"}


def status(fabric: Fabric) -> dict[str, Any]:
    """The state of a running lab: spec, features, active faults, namespace paths, queues with a backlog."""
    waiting = {}
    for direction, (port, far) in fabric.plan.by_direction.items():
        if port.end == port.node and far.end == far.node and (backlog := fabric.backlog_bytes(direction)):
            waiting[direction] = backlog
    return {
        "spec": asdict(fabric.spec),
        "features": asdict(fabric.features),
        "faults": [fault.truth() for fault in fabric.faults.active],
        "netns": {node: fabric.netns_path(node) for node in fabric.plan.kinds},
        "backlog_bytes": waiting,
    }


def _status(fabric: Fabric, args: Args) -> dict[str, Any]:
    return status(fabric)


def _inject(fabric: Fabric, args: Args) -> dict[str, Any]:
    return {"fault": fabric.inject(**args).truth()}


def _flap(fabric: Fabric, args: Args) -> dict[str, Any]:
    return {"fault": fabric.flap(**args).truth()}


def _congest(fabric: Fabric, args: Args) -> dict[str, Any]:
    return {"fault": fabric.congest(**args).truth()}


def _heal(fabric: Fabric, args: Args) -> dict[str, Any]:
    return {"faults": [fault.truth() for fault in fabric.heal(**args)]}


def _path(fabric: Fabric, args: Args) -> dict[str, Any]:
    return {"path": fabric.path(**args)}


def _topology(fabric: Fabric, args: Args) -> dict[str, Any]:
    return fabric.topology()


ACTIONS: Final[dict[str, Callable[[Fabric, Args], dict[str, Any]]]] = {
    "status": _status,
    "inject": _inject,
    "flap": _flap,
    "congest": _congest,
    "heal": _heal,
    "path": _path,
    "topology": _topology,
}
