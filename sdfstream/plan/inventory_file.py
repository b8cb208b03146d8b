"""An inventory that a person writes down, to see what a cluster would probe before there is one.

A mapping with one of

- ``fabric``: sizes of a leaf-spine fabric: ``hosts``, ``rails``, ``hosts_per_leaf``, ``spines``;
- ``nics``: a list as in a declared topology (``id``, ``host``, ``address``, ``rail``, ``plane``, ``link``), or with
  ``leaf`` instead of ``link``; ``nodes`` and ``links`` beside it as there. ``clock`` is the host unless given;

and, if wanted, ``budget_pps`` for every host, ``budgets`` by host, ``hardware_clocks`` (each NIC is a clock).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sdfstream.errors import ConfigError, FormatError
from sdfstream.plan.config import PlanConfig
from sdfstream.plan.inventory import DEFAULT_BUDGET_PPS, Inventory, Nic
from sdfstream.plan.known import Known
from sdfstream.records.fabric import host_of

_KEYS: Final = {"fabric", "nics", "nodes", "links", "budget_pps", "budgets", "hardware_clocks"}
_SIZES: Final = {"hosts": 1_000_000, "rails": 64, "hosts_per_leaf": 100_000, "spines": 4096}
MOST_NICS: Final = 1_000_000


def read(raw: Any) -> Inventory:
    """The inventory in `raw` (plain YAML or JSON data).

    Raises
    ------
    ConfigError
        A sentence with the path of the key.

    Examples
    --------
    >>> found = read({"fabric": {"hosts": 4, "rails": 2, "hosts_per_leaf": 2, "spines": 2}})
    >>> len(found.nics), found.crossings[("l0-0", "l1-0")]
    (8, 2)
    """
    if not isinstance(raw, Mapping):
        raise ConfigError("an inventory must be a mapping of keys to values")
    for key in raw:
        if key not in _KEYS:
            raise ConfigError(f"unknown key '{key}'; there are {', '.join(sorted(_KEYS))}")
    if ("fabric" in raw) == ("nics" in raw):
        raise ConfigError("an inventory has either 'fabric' or 'nics'")
    hardware = bool(raw.get("hardware_clocks", False))
    nics, crossings = _fabric(raw["fabric"], hardware) if "fabric" in raw else _listed(raw, hardware)
    usual = _pps(raw.get("budget_pps", DEFAULT_BUDGET_PPS), "budget_pps")
    own = raw.get("budgets", {})
    if not isinstance(own, Mapping):
        raise ConfigError("budgets must be a mapping of hosts to packets/s")
    budgets = {nic.host: usual for nic in nics}
    budgets |= {str(host): _pps(pps, f"budgets.{host}") for host, pps in own.items()}
    return Inventory(nics, budgets, (), crossings)


def _sizes(raw: Any) -> tuple[int, ...]:
    if not isinstance(raw, Mapping) or set(raw) != set(_SIZES):
        raise ConfigError(f"fabric must have the keys {', '.join(_SIZES)}, and no other")
    for key, most in _SIZES.items():
        if not isinstance(raw[key], int) or isinstance(raw[key], bool) or not 1 <= raw[key] <= most:
            raise ConfigError(f"fabric.{key} must be a whole number from 1 to {most}, not {raw[key]!r}")
    return tuple(int(raw[key]) for key in _SIZES)


def _fabric(raw: Any, hardware: bool) -> tuple[tuple[Nic, ...], dict[tuple[str, str], int]]:
    hosts, rails, per_leaf, spines = _sizes(raw)
    if hosts * rails > MOST_NICS:
        raise ConfigError(f"fabric: {hosts * rails} NICs, at most {MOST_NICS}")
    width = len(str(hosts - 1))
    nics = []
    for number in range(hosts):
        host = f"h{number:0{width}d}"
        for rail in range(rails):
            at = number * rails + rail
            address = f"10.{at >> 16 & 255}.{at >> 8 & 255}.{at & 255}"
            leaf = f"l{number // per_leaf}-{rail}"
            nic = f"{host}/r{rail}"
            clock = nic if hardware else host
            nics.append(Nic(nic, host, clock, address, plane="backend", rail=rail, leaf=leaf))
    pods = -(-hosts // per_leaf)
    pairs = ((f"l{a}-{r}", f"l{b}-{r}") for r in range(rails) for a in range(pods) for b in range(a + 1, pods))
    return tuple(nics), {(min(pair), max(pair)): spines for pair in pairs}


def _listed(raw: Mapping[str, Any], hardware: bool) -> tuple[tuple[Nic, ...], dict[tuple[str, str], int]]:
    listed = raw["nics"]
    if not isinstance(listed, list) or not all(isinstance(nic, Mapping) for nic in listed) or len(listed) > MOST_NICS:
        raise ConfigError(f"nics must be a list of at most {MOST_NICS} NICs")
    known = Known(PlanConfig())
    try:
        known.take_declared(raw)
    except FormatError as error:
        raise ConfigError(f"nics, nodes and links are not as in a declared topology: {error.detail}") from error
    leaf_map = known.leaf_map
    found: dict[str, Nic] = {}
    for i, nic in enumerate(listed):
        name = nic.get("id")
        if not isinstance(name, str) or not name.partition("/")[2]:
            raise ConfigError(f"nics.{i}.id must be host/nic, not {name!r}")
        if name in found:
            raise ConfigError(f"nics.{i}.id: {name} stands twice")
        leaf = nic.get("leaf", leaf_map.leaf.get(name))
        found[name] = Nic(
            name,
            str(nic.get("host", host_of(name))),
            str(nic.get("clock", name if hardware else nic.get("host", host_of(name)))),
            str(nic.get("address", "0.0.0.0")),
            plane=nic.get("plane"),
            rail=leaf_map.rail.get(name),
            leaf=None if leaf is None else str(leaf),
        )
    return tuple(found.values()), leaf_map.crossings


def _pps(value: Any, path: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1 <= value <= 1e9:
        raise ConfigError(f"{path} must be a number from 1 to 1e9, not {value!r}")
    return float(value)
