"""An agent knows before it starts how many files it will have open."""

from __future__ import annotations

import resource
from dataclasses import replace

import pytest

from sdfstream.agent.open_files import ensure_open_files, needed
from sdfstream.errors import ConfigError
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig


def agent(ports: int) -> AgentConfig:
    session = SessionConfig("h1/a", "h2/a", "10.0.0.2", source_ports=tuple(range(10_000, 10_000 + ports)))
    return AgentConfig((HostConfig("h1", (NicConfig("h1/a", "a", "10.0.0.1"),), (session, session)),))


def test_sessions_share_the_sockets_of_their_ports() -> None:
    assert needed(agent(1000)) - needed(agent(500)) == 500


def test_probes_as_large_as_the_mtu_have_a_socket_a_nic() -> None:
    assert needed(replace(agent(10), large_hz=1.0)) == needed(agent(10)) + 1


def test_the_limit_is_raised_where_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: made.append(limits))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    ensure_open_files(agent(10))
    assert made == []
    ensure_open_files(agent(1000))
    assert made == [(needed(agent(1000)), 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    ensure_open_files(agent(4000))
    assert made[-1][0] == needed(agent(4000))


def test_what_may_not_be_opened_is_told_with_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    with pytest.raises(ConfigError, match=r"need about 2,2\d\d open files, and this process may open 1,024"):
        ensure_open_files(agent(2000))
