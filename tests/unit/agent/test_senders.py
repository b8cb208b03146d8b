"""Whom the reflector of a host knows from the configuration."""

from __future__ import annotations

from dataclasses import replace

from sdfstream.agent.senders import configured_senders, limits_of
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig

A, B = NicConfig("a/r0", "r0", "10.0.0.1"), NicConfig("b/r0", "r0", "10.0.0.2")
FAR = SessionConfig("a/r0", "c/r0", "10.0.0.3", 9000)
CONFIG = AgentConfig((HostConfig("a", (A,), (FAR,)), HostConfig("b", (B,))), reflector_port=8620)


def test_far_ends_of_sessions_and_the_agents_other_hosts() -> None:
    a, b = (configured_senders(CONFIG, host) for host in CONFIG.hosts)
    assert a == {"10.0.0.3": ("c/r0", 9000), "10.0.0.2": ("b/r0", 8620)}
    assert b == {"10.0.0.3": ("c/r0", 9000), "10.0.0.1": ("a/r0", 8620)}


def test_an_own_address_only_where_a_session_of_the_host_goes_there() -> None:
    loop = replace(CONFIG.hosts[0], sessions=(replace(FAR, dst="a/r0", dst_address="10.0.0.1"),))
    assert "10.0.0.1" in configured_senders(replace(CONFIG, hosts=(loop,)), loop)


def test_networks_of_the_mesh_count_where_there_is_one() -> None:
    config = replace(CONFIG, reflector_allow=("10.9.0.0/16",), mesh_allow=("10.0.0.0/8",))
    assert limits_of(config).networks == ("10.9.0.0/16",)
    assert limits_of(replace(config, mesh="auto")).networks == ("10.9.0.0/16", "10.0.0.0/8")
    assert not limits_of(config).strangers
