"""The agent's configuration from plain data: strict, and the same as the pipeline reads it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from sdfstream.agent.config_file import read_agent
from sdfstream.errors import ConfigError
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig, VirtualClock

FULL = """
hosts:
- host: h1
  nics: [{nic: h1/eth0, device: eth0, address: 10.0.0.1, plane: backend}]
  sessions:
  - {src: h1/eth0, dst: h2/eth0, dst_address: "fd00::2", source_ports: [50000, 50001], rate_hz: 20}
  virtual_clock: {offset_ns: 5, skew_ppb: 1.5}
reflector_port: 8620
hmac_key: secret
realtime: false
"""


def test_everything_is_read() -> None:
    session = SessionConfig("h1/eth0", "h2/eth0", "fd00::2", source_ports=(50000, 50001), rate_hz=20.0)
    nic = NicConfig("h1/eth0", "eth0", "10.0.0.1", plane="backend")
    host = HostConfig("h1", (nic,), (session,), VirtualClock(5.0, 1.5))
    expected = AgentConfig((host,), reflector_port=8620, hmac_key=b"secret", realtime=False)
    assert read_agent(yaml.safe_load(FULL)) == expected
    assert read_agent({"agent": yaml.safe_load(FULL), "data": "elsewhere"}) == expected


def test_what_the_pipeline_writes_the_agent_reads() -> None:
    from sdfstream import settings

    config = read_agent(yaml.safe_load(FULL))
    assert read_agent(yaml.safe_load(settings.dump(config, with_secrets=True))) == config


def changed(path: str, value: Any) -> Any:
    raw = yaml.safe_load(FULL)
    parent = raw
    *keys, last = path.split(".")
    for key in keys:
        parent = parent[int(key) if key.isdigit() else key]
    parent[last] = value
    return raw


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("hots", 1, "unknown key 'hots'"),
        ("hosts.0.nics.0.devise", "x", "unknown key 'hosts.0.nics.0.devise'"),
        ("reflector_port", 0, "reflector_port must lie within 1 and 65535"),
        ("reflector_port", "862", "reflector_port must be a whole number"),
        ("reflector_port", True, "reflector_port must be a whole number"),
        ("realtime", 1, "realtime must be true or false"),
        ("liveness_ms", 10, "liveness_ms must lie within 50"),
        ("hosts", [], "hosts is empty"),
        ("hosts.0.host", "h2", "hosts.0.nics.0.nic: h1/eth0 must be h2/"),
        ("hosts.0.nics.0.address", "10.0.0.256", "hosts.0.nics.0.address: '10.0.0.256' is not an IP address"),
        ("hosts.0.nics.0.device", "a-name-far-too-long", "hosts.0.nics.0.device"),
        ("hosts.0.sessions.0.src", "h1/eth9", "hosts.0.sessions.0.src: h1/eth9 is not one of the host's NICs"),
        ("hosts.0.sessions.0.dscp", 64, "hosts.0.sessions.0.dscp"),
        ("hosts.0.sessions.0.source_ports", [], "source_ports must name at least one"),
        ("hosts.0.sessions.0.source_ports", [1, 1], "none twice"),
        ("hosts.0.sessions.0.source_ports", [8620], "the reflector's own port"),
        ("hosts.0.sessions.0.source_ports", [1.5], "hosts.0.sessions.0.source_ports.0 must be a whole number"),
        ("hosts.0.sessions.0.source_ports", "50000", "source_ports must be a list"),
        ("hosts.0.sessions.0.rate_hz", 0, "rate_hz"),
        ("hosts.0.virtual_clock", 5, "hosts.0.virtual_clock must be a mapping"),
        ("hosts.0.sessions.0", {"src": "h1/eth0"}, "key 'hosts.0.sessions.0.dst' is missing"),
    ],
)
def test_what_cannot_work_is_refused_with_its_path(path: str, value: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_agent(changed(path, value) if path != "hosts.0.sessions.0" else _session(value))


def _session(value: Any) -> Any:
    raw = yaml.safe_load(FULL)
    raw["hosts"][0]["sessions"][0] = value
    return raw


def test_doubles_are_refused() -> None:
    raw = yaml.safe_load(FULL)
    raw["hosts"].append(raw["hosts"][0])
    with pytest.raises(ConfigError, match=r"hosts\.1\.host: h1 stands twice"):
        read_agent(raw)
    raw = yaml.safe_load(FULL)
    raw["hosts"][0]["nics"].append(raw["hosts"][0]["nics"][0])
    with pytest.raises(ConfigError, match="stands twice"):
        read_agent(raw)


@pytest.mark.parametrize("raw", [None, [], "text", 5])
def test_no_mapping_no_agent(raw: Any) -> None:
    with pytest.raises(ConfigError, match="mapping"):
        read_agent(raw)


ROCE = """
hosts:
- host: h1
  nics: [{nic: h1/r0, device: eth0, address: 10.0.0.1, rdma_device: mlx5_0}]
  sessions:
  - {src: h1/r0, dst: h2/r0, dst_address: 10.0.0.2, source_ports: [49600, 49620], transport: rocev2}
transports: [udp, rocev2]
rdma_meeting_port: 18517
"""


def test_rocev2_sessions_are_read_and_their_ports_are_no_sockets() -> None:
    from sdfstream import settings

    config = read_agent(yaml.safe_load(ROCE))
    assert config.hosts[0].sessions[0].transport == "rocev2", "49600 is a watch port, of UDP sockets"
    assert config.hosts[0].nics[0].rdma_device == "mlx5_0"
    assert (config.transports, config.rdma_meeting_port) == (("udp", "rocev2"), 18517)
    assert read_agent(yaml.safe_load(settings.dump(config, with_secrets=True))) == config


@pytest.mark.parametrize(
    ("session", "agent", "sentence"),
    [
        ({"transport": "ib"}, {}, "hosts.0.sessions.0.transport must be udp or rocev2, not 'ib'"),
        ({"source_ports": [862]}, {}, r"source_ports.0 \(RoCEv2\) must lie within 49152 and 65535"),
        ({"source_ports": list(range(49152, 49217))}, {}, "rocev2 takes at most 64"),
        ({"size_bytes": 1500}, {}, r"size_bytes \(RoCEv2\) must lie within 72 and 1024"),
        ({}, {"transports": ["rocev2"]}, "transports must name udp"),
        ({}, {"transports": ["udp", "tcp"]}, "transports may name udp and rocev2, not 'tcp'"),
        ({}, {"rdma_meeting_port": 0}, "rdma_meeting_port must lie within 1 and 65535"),
    ],
)
def test_a_rocev2_session_that_cannot_be_is_refused(
    session: dict[str, Any], agent: dict[str, Any], sentence: str
) -> None:
    raw = yaml.safe_load(ROCE)
    raw["hosts"][0]["sessions"][0] |= session
    with pytest.raises(ConfigError, match=sentence):
        read_agent(raw | agent)


def test_a_rocev2_session_needs_the_agents_own_namespace() -> None:
    raw = yaml.safe_load(ROCE)
    raw["hosts"][0]["nics"][0]["netns"] = "/run/netns/x"
    with pytest.raises(ConfigError, match="rocev2 needs a NIC without netns: h1/r0 has one"):
        read_agent(raw)
