"""From plain YAML data to an `AgentConfig`, strictly: an unknown key, a wrong type or a value that cannot work is
refused with the path of the key.

`settings` reads the same files for the pipeline's process, by pydantic; the agent's process does without that, since
it costs memory on every host.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sdfstream import secret
from sdfstream.errors import ConfigError
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.probes.load import check_load
from sdfstream.records.fabric import host_of
from sdfstream.records.hostclock import RESERVED
from sdfstream.yamlfile import named

T = TypeVar("T")

_MOST_ROCE_PORTS: Final = 64
_MOST_ROCE_BYTES: Final = 1_024
"""A path MTU of RoCEv2 is never less."""
_NAMES: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "text", bytes: "text"}


def read_agent(raw: Any) -> AgentConfig:
    """The agent's configuration: `raw` holds its keys, or a key ``agent`` that does.

    Beside its own keys a key ``kafka`` may stand, which is the bus's.

    Raises
    ------
    ConfigError
        A sentence with the path of the key.
    """
    if (at := secret.hidden_at(raw)) is not None:
        raise ConfigError(f"key '{at}' holds {secret.HIDDEN}, as config show prints a secret: put the secret there")
    if isinstance(raw, Mapping) and "agent" in raw:
        config = read(AgentConfig, raw["agent"], "agent")
    else:
        own = {k: v for k, v in raw.items() if k != "kafka"} if isinstance(raw, Mapping) else raw
        config = read(AgentConfig, own, "")
    check(config)
    return config


def read(kind: type[T], raw: Any, path: str) -> T:
    """`raw` as a `kind` (a dataclass), key by key."""
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{path or 'the file'} must be a mapping of keys to values")
    hints, fields = _layout(kind)  # type: ignore[arg-type]
    for key in raw:
        if key not in fields:
            raise ConfigError(f"unknown key {named(_join(path, str(key)))}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in raw:
            raise ConfigError(f"key '{_join(path, name)}' is missing")
    return kind(**{key: _value(hints[key], value, _join(path, key)) for key, value in raw.items()})


@cache
def _layout(kind: type[Any]) -> tuple[dict[str, Any], dict[str, dataclasses.Field[Any]]]:
    """Types and fields of a dataclass; the same for each of ten thousand sessions."""
    return get_type_hints(kind), {f.name: f for f in dataclasses.fields(kind)}


def _value(hint: Any, raw: Any, path: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if raw is None and type(None) in arguments:
            return None
        return _value(next(a for a in arguments if a is not type(None)), raw, path)
    if origin is tuple:
        if not isinstance(raw, Sequence) or isinstance(raw, str | bytes):
            raise ConfigError(f"{path} must be a list")
        return tuple(_value(arguments[0], item, f"{path}.{i}") for i, item in enumerate(raw))
    if origin is Literal:
        if raw not in arguments:
            raise ConfigError(f"{path} must be {', '.join(map(str, arguments[:-1]))} or {arguments[-1]}")
        return raw
    if dataclasses.is_dataclass(hint):
        return read(hint, raw, path)  # type: ignore[arg-type]
    return _scalar(hint, raw, path)


def _scalar(hint: type, raw: Any, path: str) -> Any:
    if hint is bytes and isinstance(raw, str):
        return raw.encode()
    if hint is float and isinstance(raw, int) and not isinstance(raw, bool):
        return float(raw)
    if not isinstance(raw, hint) or (isinstance(raw, bool) and hint is not bool):
        raise ConfigError(f"{path} must be {_NAMES[hint]}, not {secret.quoted(path, raw)}")
    return raw


def check(config: AgentConfig) -> None:
    """Refuse what cannot work; raises ConfigError with the path of the key."""
    _within("reflector_port", config.reflector_port, 1, 65_535)
    _within("flush_ms", config.flush_ms, 1, 10_000)
    _within("liveness_ms", config.liveness_ms, 50, 3_600_000)
    _within("port_interval_ms", config.port_interval_ms, 50, 3_600_000)
    _within("turnaround_ms", config.turnaround_ms, 0, 1_000)
    _within("tick_ms", config.tick_ms, 0, 1_000)
    _within("trace_interval_s", config.trace_interval_s, 0, 1e9)
    _within("trace_rate_hz", config.trace_rate_hz, 0, 1e6)
    _within("phc_rate_hz", config.phc_rate_hz, 0, 10)
    _check_reflector(config)
    _check_transports(config)
    _within("watch_rate_hz", config.watch_rate_hz, 1, 1_000)
    _within("watch_candidate_hz", config.watch_candidate_hz, 0.1, config.watch_rate_hz)
    _within("watch_nic_pps", config.watch_nic_pps, config.watch_rate_hz, 1e9)
    _within("watch_target_pps", config.watch_target_pps, 1, 1e9)
    _within("watch_liveness_ms", config.watch_liveness_ms, 10, 3_600_000)
    _within("watch_ports", config.watch_ports, 1, 256)
    _within("watch_spare_ports", config.watch_spare_ports, 0, 256)
    _within("watch_first_port", config.watch_first_port, 1, 65_536 - config.watch_ports - config.watch_spare_ports)
    if config.reflector_port in _watching(config):
        raise ConfigError(f"watch_first_port: port {config.reflector_port} is the reflector's own")
    _check_mesh(config)
    _check_large(config)
    if config.compression not in ("zstd", "none"):
        raise ConfigError(f"compression must be zstd or none, not {config.compression!r}")
    if config.packet_engine not in ("auto", "c", "numpy"):
        raise ConfigError(f"packet_engine must be auto, c or numpy, not {config.packet_engine!r}")
    _within("buffer_bytes", config.buffer_bytes, 64 << 10, 1 << 34)
    _within("spill_bytes", config.spill_bytes, 0, 1 << 40)
    _within("catch_up_bytes_s", config.catch_up_bytes_s, 1 << 10, 1 << 40)
    if not config.spill_dir:
        raise ConfigError("spill_dir must be a folder or auto, not empty; spill_bytes: 0 switches the spill off")
    if config.control and not config.trusted_keys:
        raise ConfigError("control is on, but trusted_keys is empty: nobody could be obeyed")
    if not config.clock_pages:
        raise ConfigError("clock_pages must be a folder, auto or off, not empty")
    if not config.hosts:
        raise ConfigError("hosts is empty: there is nothing to probe or answer from")
    check_load(config)
    names: set[str] = set()
    for i, host in enumerate(config.hosts):
        if host.host in names:
            raise ConfigError(f"hosts.{i}.host: {host.host} stands twice")
        names.add(host.host)
        if host.host in RESERVED:
            raise ConfigError(f"hosts.{i}.host: {host.host} is no host's name: the time line calls something else so")
        _check_host(host, f"hosts.{i}", config)


def _watching(config: AgentConfig) -> range:
    """Watch ports and spare ones."""
    first = config.watch_first_port
    return range(first, first + config.watch_ports + config.watch_spare_ports)


def _check_reflector(config: AgentConfig) -> None:
    _within("reflector_max_pps", config.reflector_max_pps, 1, 1 << 31)
    _within("reflector_source_pps", config.reflector_source_pps, 1, 1 << 31)
    _within("reflector_stranger_pps", config.reflector_stranger_pps, 1, 1 << 31)
    _check_networks("reflector_allow", config.reflector_allow)


def _check_transports(config: AgentConfig) -> None:
    for name in config.transports:
        if name not in ("udp", "rocev2"):
            raise ConfigError(f"transports may name udp and rocev2, not {name!r}")
    if "udp" not in config.transports:
        raise ConfigError("transports must name udp: every agent answers by it")
    _within("rdma_meeting_port", config.rdma_meeting_port, 1, 65_535)


def _check_networks(path: str, networks: Sequence[str]) -> None:
    for i, network in enumerate(networks):
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise ConfigError(f"{path}.{i}: {error}") from None


def _check_mesh(config: AgentConfig) -> None:
    if config.mesh not in ("configured", "auto"):
        raise ConfigError(f"mesh must be configured or auto, not {config.mesh!r}")
    _within("mesh_budget_pps", config.mesh_budget_pps, 1, 1e9)
    _within("mesh_target_pps", config.mesh_target_pps, 0.01, 1e9)
    _within("mesh_ports", config.mesh_ports, 1, 1024)
    _within("mesh_first_port", config.mesh_first_port, 1, 65_536 - config.mesh_ports)
    _check_networks("mesh_allow", config.mesh_allow)
    if config.mesh == "configured":
        return
    last = config.mesh_first_port + config.mesh_ports
    if config.mesh_first_port <= config.reflector_port < last:
        raise ConfigError(f"mesh_first_port: port {config.reflector_port} is the reflector's own")
    if config.mesh_first_port < _watching(config).stop and config.watch_first_port < last:
        raise ConfigError("mesh_first_port: some of these ports are watch ports (see watch_first_port)")


def _check_large(config: AgentConfig) -> None:
    _within("large_hz", config.large_hz, 0, 10)
    _within("large_port", config.large_port, 1_024, 65_535)
    if not config.large_hz:
        return
    port, meshed = config.large_port, config.mesh_first_port
    if port == config.reflector_port:
        raise ConfigError(f"large_port: port {port} is the reflector's own")
    if port in _watching(config):
        raise ConfigError(f"large_port: {port} is one of the watch ports (see watch_first_port)")
    if config.mesh == "auto" and meshed <= port < meshed + config.mesh_ports:
        raise ConfigError(f"large_port: {port} is one of the mesh plan's ports (see mesh_first_port)")


def _check_host(host: HostConfig, path: str, config: AgentConfig) -> None:
    known: set[str] = set()
    for i, nic in enumerate(host.nics):
        _check_nic(nic, host.host, f"{path}.nics.{i}")
        if nic.nic in known:
            raise ConfigError(f"{path}.nics.{i}.nic: {nic.nic} stands twice")
        known.add(nic.nic)
    away = {nic.nic for nic in host.nics if nic.netns is not None}
    for i, session in enumerate(host.sessions):
        if session.src not in known:
            raise ConfigError(f"{path}.sessions.{i}.src: {session.src} is not one of the host's NICs")
        if session.transport == "rocev2" and session.src in away:
            raise ConfigError(f"{path}.sessions.{i}.transport: rocev2 needs a NIC without netns: {session.src} has one")
        _check_session(session, f"{path}.sessions.{i}", config)


def _check_nic(nic: NicConfig, host: str, path: str) -> None:
    if host_of(nic.nic) != host or not nic.nic.partition("/")[2]:
        raise ConfigError(f"{path}.nic: {nic.nic} must be {host}/ and the NIC's name")
    if not 0 < len(nic.device.encode()) <= 15:
        raise ConfigError(f"{path}.device: {nic.device!r} is not the name of an interface")
    _check_address(nic.address, f"{path}.address")


def _check_session(session: SessionConfig, path: str, config: AgentConfig) -> None:
    if session.transport not in ("udp", "rocev2"):
        raise ConfigError(f"{path}.transport must be udp or rocev2, not {session.transport!r}")
    _check_address(session.dst_address, f"{path}.dst_address")
    _within(f"{path}.dst_port", session.dst_port, 1, 65_535)
    _within(f"{path}.dscp", session.dscp, 0, 63)
    _within(f"{path}.ecn", session.ecn, 0, 3)
    _within(f"{path}.size_bytes", session.size_bytes, 72, 65_535)
    _within(f"{path}.rate_hz", session.rate_hz, 0.001, 1e5)
    if not session.source_ports or len(set(session.source_ports)) < len(session.source_ports):
        raise ConfigError(f"{path}.source_ports must name at least one port, and none twice")
    if session.transport == "rocev2":
        _check_rocev2(session, path)
        return
    for i, port in enumerate(session.source_ports):
        _within(f"{path}.source_ports.{i}", port, 1, 65_535)
        if port == config.reflector_port:
            raise ConfigError(f"{path}.source_ports.{i} is the reflector's own port {port}")
        if port in _watching(config):
            raise ConfigError(f"{path}.source_ports.{i}: {port} is one of the watch ports (see watch_first_port)")
        if config.large_hz and port == config.large_port:
            raise ConfigError(f"{path}.source_ports.{i}: {port} is the port of the largest packets (see large_port)")


def _check_rocev2(session: SessionConfig, path: str) -> None:
    """What only packets of queue pairs ask for; their source ports are no sockets."""
    for i, port in enumerate(session.source_ports):
        _within(f"{path}.source_ports.{i} (RoCEv2)", port, 0xC000, 0xFFFF)
    if len(session.source_ports) > _MOST_ROCE_PORTS:
        raise ConfigError(f"{path}.source_ports: rocev2 takes at most {_MOST_ROCE_PORTS}")
    _within(f"{path}.size_bytes (RoCEv2)", session.size_bytes, 72, _MOST_ROCE_BYTES)


def _check_address(address: str, path: str) -> None:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise ConfigError(f"{path}: {address!r} is not an IP address") from None


def _within(path: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{path} must lie within {low:g} and {high:g}, not {value:g}")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
