"""Scenario files: a fabric, its probes, load, jobs and faults in about ten lines of YAML, read strictly.

>>> parse({"seconds": 30, "faults": [{"kind": "link-down", "at": 10}]}, "s.yaml").faults[0].kind
'link-down'
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal

from sdfstream import yamlfile
from sdfstream.errors import ConfigError
from sdfstream.twin.fabric import FabricShape
from sdfstream.twin.fault_kinds import BENIGN, KINDS
from sdfstream.twin.faults import FaultSpec

_LIMITS: Final = {
    # key: least and greatest value
    "seconds": (1, 86_400 * 7), "hosts": (2, 20_000), "rails": (1, 16), "leaves": (1, 4096), "spines": (1, 1024),
    "pods": (1, 256), "aggregation": (1, 64), "gbps": (0.1, 1600), "peers": (1, 1000), "ports": (1, 64),
    "hz": (0.1, 1000), "utilisation": (0, 0.95), "flows_per_nic": (1, 64), "step_ms": (5, 10_000),
    "comm_share": (0, 1), "liveness_ms": (50, 60_000), "loss": (0, 0.5), "noise_us": (0, 1000), "ppm": (0, 200),
    "ms": (0, 1e6), "thermal_ppb": (0, 10_000), "share": (0, 1e6), "flush_ms": (5, 1000), "at": (0, 1e7),
    "retrace_s": (0, 3600), "octets": (68, 65_535), "large_hz": (0, 100), "large_bytes": (256, 16_384),
    "gbps_per_flow": (0, 1600), "ranks": (2, 20_000),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """Who probes whom, how often."""

    peers: int = 6
    ports: int = 2
    """Source ports of a session."""
    hz: float = 10.0
    dscp: int = 0
    liveness_ms: int = 600
    flush_ms: int = 100
    """An agent publishes its rows so often."""
    loss: float = 2e-4
    """Of a healthy round trip: 0.03-0.08 % on fabrics in use."""
    noise_us: float = 3.0
    """Typical jitter of a kernel stamp, log-normal."""
    large_hz: float = 0.0
    """Rate of one more session between the same NICs, of large packets; 0: none."""
    large_bytes: int = 4096
    """IP packet size of those."""


@dataclass(frozen=True, slots=True)
class ClockSpec:
    """The hosts' clocks, each drawn within these."""

    ms: float = 1000.0
    """Offsets, either sign."""
    ppm: float = 10.0
    thermal_ppb: float = 100.0
    """A host's frequency follows its load: it moves by this much and back over minutes."""


@dataclass(frozen=True, slots=True)
class KnownSpec:
    """What the pipeline is told of the fabric."""

    topology: bool = True
    """The topology file."""
    traces: bool = True
    counters: bool = True
    flows: bool = False
    """Every flow is told of and traced, as a queue pair is."""
    retrace_s: float = 4.0
    """A changed route is traced anew after so long."""


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """Rate-controlled background flows between random NICs."""

    utilisation: float = 0.2
    """Of the NICs' speed, mean."""
    flows_per_nic: int = 4


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job: ranks on the first hosts that are free, one NIC each, in steps of computing and communicating."""

    name: str = "job-1"
    pattern: Literal["ring", "tree", "all-to-all", "incast"] = "ring"
    ranks: int = 4
    at: float = 0.0
    until: float = 1e9
    step_ms: float = 500.0
    comm_share: float = 0.5
    """Of a step in which data move."""
    share: float = 0.5
    """Of a NIC's speed that its rank asks for while data move."""


@dataclass(frozen=True, slots=True)
class TwinScenario:
    """All that a twin needs beside a seed."""

    seconds: float = 60.0
    about: str = ""
    name: str = ""
    fabric: FabricShape = field(default_factory=FabricShape)
    probes: ProbeSpec = field(default_factory=ProbeSpec)
    clocks: ClockSpec = field(default_factory=ClockSpec)
    known: KnownSpec = field(default_factory=KnownSpec)
    load: LoadSpec = field(default_factory=LoadSpec)
    jobs: tuple[PlannedJob, ...] = ()
    faults: tuple[FaultSpec, ...] = ()


def read(path: Path) -> TwinScenario:
    """The scenario in the file at `path`.

    Raises
    ------
    ConfigError
        The file or a key of it cannot be: one line with the file and the path of the key.
    """
    return parse(yamlfile.read(path), str(path), path.stem)


def parse(data: Any, file: str, name: str = "") -> TwinScenario:
    """The scenario in plain data; ConfigError as `read`."""
    made: TwinScenario = _made(TwinScenario, data, file, "")
    if not made.name:
        made = _replace(made, name=name)
    _check(made, file)
    return made


def _replace(scenario: TwinScenario, **changes: Any) -> TwinScenario:
    return TwinScenario(**{**{f.name: getattr(scenario, f.name) for f in fields(scenario)}, **changes})


def _made(kind: Any, data: Any, file: str, path: str) -> Any:
    if not isinstance(data, Mapping):
        raise ConfigError(f"{file}: {path or 'the file'} must be a mapping of keys")
    hints = typing.get_type_hints(kind)
    values = {}
    for key, value in data.items():
        here = f"{path}.{key}" if path else str(key)
        if key not in hints:
            near = get_close_matches(str(key), list(hints), 1)
            raise ConfigError(
                f"{file}: {yamlfile.named(here)} is no key"
                + (f"; do you mean '{near[0]}'?" if near else f"; there are {', '.join(hints)}")
            )
        values[key] = _value(hints[key], value, file, here, str(key))
    return kind(**values)


def _value(hint: Any, value: Any, file: str, path: str, key: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if is_dataclass(hint):
        return _made(hint, value, file, path)
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{file}: {path} must be a list")
        return tuple(_value(args[0], v, file, f"{path}[{i}]", key) for i, v in enumerate(value))
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _value(args[0], value, file, path, key)
    if origin is Literal:
        if value not in args:
            raise ConfigError(f"{file}: {path} must be one of {', '.join(map(str, args))}")
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{file}: {path} must be {_WORDS[hint]}")
    low, high = _LIMITS.get(key, (None, None))
    if low is not None and high is not None and not low <= value <= high:
        raise ConfigError(f"{file}: {path} must lie between {low} and {high}")
    return value


_WORDS: Final = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}


def _check(scenario: TwinScenario, file: str) -> None:
    f = scenario.fabric
    if f.kind == "rail" and f.leaves % f.rails:
        raise ConfigError(f"{file}: fabric.leaves must be a multiple of fabric.rails, a leaf belongs to one rail")
    if f.kind == "three-tier" and (f.leaves < f.pods or f.spines < f.aggregation):
        raise ConfigError(f"{file}: a three-tier fabric needs a leaf per pod and a core per aggregation switch")
    if scenario.load.flows_per_nic * f.hosts * f.rails > 1_000_000:
        raise ConfigError(f"{file}: load.flows_per_nic makes more than a million flows")
    for i, fault in enumerate(scenario.faults):
        if fault.kind not in KINDS:
            near = get_close_matches(fault.kind, KINDS, 1)
            raise ConfigError(
                f"{file}: faults[{i}].kind: no kind '{fault.kind}'"
                + (f"; do you mean '{near[0]}'?" if near else f"; there are {', '.join(KINDS)}")
            )
        if fault.at >= scenario.seconds:
            raise ConfigError(f"{file}: faults[{i}].at lies behind the end of the scenario")
        if KINDS[fault.kind].on == "cables" and (fault.at or fault.lasts is not None):
            raise ConfigError(
                f"{file}: faults[{i}]: cables are swapped from the start to the end; say at: 0, not lasts"
            )
    for i, job in enumerate(scenario.jobs):
        if job.ranks > f.hosts:
            raise ConfigError(f"{file}: jobs[{i}].ranks: more ranks than hosts")


def is_benign(kind: str) -> bool:
    """Whether a kind of event is none that anybody should be woken for."""
    return kind in BENIGN
