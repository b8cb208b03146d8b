"""Cabling that a person declares: nodes, links and NICs, as ``sdf.state.topology.v1`` has them (`DECLARED_SHAPE`).

A mapping of the three lists, or a whole CloudEvent of that type as other tools publish it. Beyond the shape, names must
fit each other: a link to a node that is nowhere would be a cable that no finding ever names. Nodes may be left out
altogether, an empty list: those at which links end are all that there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sdfstream.errors import ConfigError, FormatError
from sdfstream.records import bounds
from sdfstream.records.fabric import DECLARED_TYPE, host_of
from sdfstream.records.topics import TOPOLOGY

_LISTS: Final = ("nodes", "links", "nics")


def read(raw: Any) -> dict[str, Any]:
    """The declared cabling in `raw` (plain YAML or JSON data).

    Raises
    ------
    ConfigError
        A sentence with the path of the key.

    Examples
    --------
    >>> ends = [{"node": "h0/r0", "port": "1"}, {"node": "l0", "port": "7"}]
    >>> link = {"id": "h0/r0--l0", "a": ends[0], "b": ends[1], "speed_mbps": 400_000}
    >>> nic = {"id": "h0/r0", "host": "h0", "address": "10.0.0.2", "link": "h0/r0--l0", "rail": 0, "plane": "backend"}
    >>> sorted(read({"nodes": [{"id": "l0", "kind": "leaf"}], "links": [link], "nics": [nic]}))
    ['links', 'nics', 'nodes']
    """
    data = _data(raw)
    unknown = sorted(str(key) for key in data if key not in _LISTS)
    if unknown:
        raise ConfigError(f"unknown key '{unknown[0]}'; there are {', '.join(_LISTS)}")
    try:
        bounds.check_data(TOPOLOGY.name, DECLARED_TYPE, data)
    except FormatError as error:
        raise ConfigError(error.detail or error.reason) from error
    _check_names(data)
    return data


def _data(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise ConfigError("cabling must be a mapping of nodes, links and nics")
    if "specversion" not in raw:
        return dict(raw)
    if raw.get("type") != DECLARED_TYPE:
        raise ConfigError(f"type is {raw.get('type')!r}, not {DECLARED_TYPE}")
    data = raw.get("data")
    if not isinstance(data, Mapping):
        raise ConfigError("data must be a mapping of nodes, links and nics")
    return dict(data)


def _check_names(data: Mapping[str, Any]) -> None:
    for name in _LISTS:
        _check_once(f"{name}", (one["id"] for one in data[name]))
    nodes = {one["id"] for one in data["nodes"]} | {one["id"] for one in data["nics"]}
    links: dict[str, set[str]] = {}
    ports: dict[tuple[str, str], str] = {}
    for at, link in enumerate(data["links"]):
        ends = [(link[end]["node"], link[end]["port"]) for end in ("a", "b")]
        links[link["id"]] = {node for node, _ in ends}
        for end, (node, port) in zip("ab", ends, strict=True):
            if data["nodes"] and node not in nodes:
                raise ConfigError(f"links[{at}].{end}.node is {node!r}, which is no node and no NIC")
            if (node, port) in ports:
                raise ConfigError(
                    f"links[{at}].{end} is port {port!r} of {node!r}, where {ports[node, port]!r} hangs too"
                )
            ports[node, port] = link["id"]
    for at, nic in enumerate(data["nics"]):
        if host_of(nic["id"]) != nic["host"]:
            raise ConfigError(
                f"nics[{at}].id is {nic['id']!r}; it must begin with its host, {nic['host']!r}, and a slash"
            )
        if nic["link"] not in links:
            raise ConfigError(f"nics[{at}].link is {nic['link']!r}, which is no link")
        if not {nic["id"], nic["host"]} & links[nic["link"]]:
            raise ConfigError(f"nics[{at}].link is {nic['link']!r}, which has no end at {nic['id']!r}")


def _check_once(where: str, names: Iterable[str]) -> None:
    known: set[str] = set()
    for at, name in enumerate(names):
        if name in known:
            raise ConfigError(f"{where}[{at}].id is {name!r}, which stands there twice")
        known.add(name)
