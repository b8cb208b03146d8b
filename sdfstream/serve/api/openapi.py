"""The API's OpenAPI 3.1 document, written from the table of resources. Pure."""

from __future__ import annotations

from typing import Any, Final

from sdfstream import __version__
from sdfstream.serve.api import problem
from sdfstream.serve.api.histories_io import PARAMETERS
from sdfstream.serve.api.items import schema_of
from sdfstream.serve.api.parameters import Parameter
from sdfstream.serve.api.resources import RESOURCES, Resource
from sdfstream.serve.api.roles import ALERTS, ApiRole, needed
from sdfstream.serve.api.stream import GAP, TOPICS

STREAM: Final = (
    Parameter("topics", f"only these events, comma-separated, of {', '.join(TOPICS.values())}"),
    Parameter("last_event_id", "as the header Last-Event-ID, for readers that cannot set one"),
)
_INSTANT: Final = {"type": "integer", "description": "ns since the Unix epoch"}
_HEAD: Final[dict[str, Any]] = {
    "as_of_ns": {"type": "integer", "description": "bus time of the answer [ns since the Unix epoch]"},
    "known_at_ns": {"type": "integer", "description": "bus time of which findings speak [ns since the Unix epoch]"},
    "data_age_ns": {"type": ["integer", "null"], "description": "age, at as_of_ns, of the newest that a host reported"},
    "fresh": {"type": "boolean", "description": "whether what is said of now is of now"},
    "source": {"type": "object", "description": "pipeline, or archive with the instants it speaks of"},
}


def document() -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, Any] = {f"/v1/{name}": {"get": _list(resource)} for name, resource in RESOURCES.items()}
    paths[ALERTS]["post"] = _webhook()
    paths["/v1/history"] = {"get": _history()}
    paths["/v1/stream"] = {"get": _stream()}
    paths["/v1/overrides"] = {"post": _overrides()}
    paths["/healthz"] = {"get": _health()}
    paths["/metrics"] = {"get": _metrics()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sdfstream",
            "version": __version__,
            "summary": "What is true of a cluster's fabric, now and at any instant of the past.",
            "description": "Unknown is null or `unknown`, never healthy. Every answer says how old its data is.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {name: schema_of(name) for name in RESOURCES} | {"problem": _problem()},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "None is needed on loopback for the owner of the data folder. Roles: "
                    + ", ".join(role.word for role in ApiRole),
                }
            },
        },
        "security": [{"token": []}],
    }


def _list(resource: Resource) -> dict[str, Any]:
    items = {"type": "array", "items": {"$ref": f"#/components/schemas/{resource.name}"}}
    page = {
        "type": "object",
        "properties": _HEAD
        | {
            "total": {"type": "integer", "description": "items on all pages together"},
            "next": {"type": ["string", "null"], "description": "`cursor` of the next page; null: this is the last"},
            "items": items,
        },
        "required": [*_HEAD, "total", "next", "items"],
    }
    return {
        "operationId": resource.name,
        "summary": resource.doc,
        "parameters": [_parameter(p) for p in resource.parameters],
        "responses": {"200": _json("One page.", page)} | _refusals("GET", f"/v1/{resource.name}", 400, 429, 503),
    }


def _history() -> dict[str, Any]:
    more = {
        "ends_at_ns": _INSTANT,
        "step_ns": {"type": "integer", "description": "between instants [ns]"},
        "items": {
            "type": "array",
            "description": "of a pair: direction (out: a to b; back), n, lost, ce, owd_min_ns, owd_p50_ns, owd_p99_ns, "
            "err_ns; of a job: mean_bps, least_bps, least_qp; of a NIC: what, state, detail, the newest first; "
            "of cells: src, dst, value, floor_ns, paths, measured, lost",
            "items": {"type": "object", "properties": {"at_ns": _INSTANT}, "required": ["at_ns"]},
        },
    }
    said = {"type": "object", "properties": _HEAD | more, "required": [*_HEAD, *more]}
    return {
        "operationId": "history",
        "summary": "Figures over a stretch of time, from the archive: of a pair, a job or a NIC at most 600 instants; "
        "of the map of paths one figure a cell.",
        "parameters": [_parameter(p) for p in PARAMETERS],
        "responses": {"200": _json("The figures.", said)} | _refusals("GET", "/v1/history", 400, 429, 503),
    }


def _stream() -> dict[str, Any]:
    said = {
        "200": {"description": "Server-sent events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    }
    return {
        "operationId": "stream",
        "summary": "What changes, as it comes: server-sent events with ids; with Last-Event-ID those since. "
        f"`{GAP}` says that some are gone; `age`, every few seconds, how old the data is.",
        "parameters": [
            *(_parameter(p) for p in STREAM),
            {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string", "maxLength": 128}},
        ],
        "responses": said | _refusals("GET", "/v1/stream", 400, 429, 503),
    }


def _overrides() -> dict[str, Any]:
    taken = {"type": "object", "properties": {"taken": {"type": "string"}}, "required": ["taken"]}
    return {
        "operationId": "override",
        "summary": "Put a signed override (as `sdfstream approve`, `undo`, `policy`, `silence`, `label` make them) on "
        "the bus. The role must fit what it does; whether it is obeyed the controller decides by its signature.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
        "responses": {"202": _json("It is on its way to the bus.", taken)}
        | _refusals("POST", "/v1/overrides", 400, 413, 415, 429, 503),
    }


def _webhook() -> dict[str, Any]:
    taken = {"type": "object", "properties": {"taken": {"type": "integer"}}, "required": ["taken"]}
    return {
        "operationId": "webhook",
        "summary": "Take what an Alertmanager tells of: its webhook, version 4. With a token of role label.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
        "responses": {"202": _json("How many alerts were read.", taken)}
        | _refusals("POST", ALERTS, 400, 413, 415, 429, 503),
    }


def _health() -> dict[str, Any]:
    said = {
        "type": "object",
        "properties": {
            "fresh": {"type": "boolean"},
            "why": {"type": "string"},
            "data_age_ns": {"type": ["integer", "null"]},
            "as_of_ns": _INSTANT,
        },
        "required": ["fresh", "why", "data_age_ns", "as_of_ns"],
    }
    return {
        "operationId": "health",
        "summary": "Whether the data is fresh: 200 only while hosts report and findings speak of now.",
        "security": [],
        "responses": {"200": _json("It is.", said), "503": _json("It is not, and why.", said)} | _refusals("", "", 400),
    }


def _metrics() -> dict[str, Any]:
    said = {"200": {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}}}
    return {
        "operationId": "metrics",
        "summary": "The fabric's figures for Prometheus: NICs, paths, findings, clocks, jobs; no label per pair.",
        "responses": said | _refusals("GET", "/metrics", 400, 429, 503),
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {"name": parameter.name, "in": "query", "description": parameter.doc, "schema": parameter.schema}


def _refusals(method: str, path: str, *statuses: int) -> dict[str, Any]:
    asked = (401, 403) if path and needed(method, path) is not None else (403,)
    body = {problem.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/problem"}}}
    return {str(s): {"description": problem.TITLES[s], "content": body} for s in sorted({*statuses, *asked, 421})}


def _json(doc: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": doc, "content": {"application/json": {"schema": schema}}}


def _problem() -> dict[str, Any]:
    members = {"type": "string", "title": "string", "status": "integer", "detail": "string"}
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in members.items()},
        "required": list(members),
    }
