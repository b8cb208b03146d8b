"""Which local address and interface a peer is reached by."""

from __future__ import annotations

import pytest

from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.probes.net import route_io
from sdfstream.probes.net.netns_io import identity, inside
from sdfstream.probes.net.route_io import Local
from tests.fixtures.namespaces import Namespaces, namespaces

__all__ = ["namespaces"]


def test_loopback_needs_no_fabric() -> None:
    assert route_io.local_towards("127.0.0.1") == Local("127.0.0.1", "lo")
    assert route_io.device_of("127.9.9.9") == "lo"
    assert route_io.resolve("127.0.0.1") == "127.0.0.1"
    with pytest.raises(ConfigError, match="not an address of this machine"):
        route_io.device_of("203.0.113.7")
    with pytest.raises(ConfigError, match="has no address"):
        route_io.resolve("no-such-host.invalid")


@pytest.mark.lab
def test_the_route_chooses_address_and_interface(namespaces: Namespaces) -> None:
    net = namespaces
    net.add("a", "b")
    for rail in (0, 1):
        net.cable("a", f"r{rail}", "b", f"r{rail}")
        net.ip("a", f"addr add 10.6.{rail}.1/24 dev r{rail}", f"addr add fd06:{rail}::1/64 dev r{rail}")

    def look() -> None:
        assert route_io.local_towards("10.6.0.2") == Local("10.6.0.1", "r0")
        assert route_io.local_towards("10.6.1.2") == Local("10.6.1.1", "r1")
        assert route_io.local_towards("fd06:1::2") == Local("fd06:1::1", "r1")
        assert {d for _, d in route_io.locals_here()} == {"r0", "r1"}
        with pytest.raises(UnavailableError, match="no route to 192"):
            route_io.local_towards("192.0.2.1")
        with pytest.raises(ConfigError, match="own address"):
            route_io.local_towards("10.6.1.1")

    inside(net.path("a"), look)


@pytest.mark.lab
def test_a_namespace_is_left_as_it_was_entered(namespaces: Namespaces) -> None:
    home = identity(None)
    namespaces.add("a")
    there = identity(namespaces.path("a"))
    assert inside(namespaces.path("a"), lambda: identity(None)) == there != home
    with pytest.raises(ZeroDivisionError):
        inside(namespaces.path("a"), lambda: 1 // 0)
    with pytest.raises(FileNotFoundError):
        inside(namespaces.path("gone"), lambda: None)
    assert identity(None) == home
    assert identity(namespaces.path("gone")) is None
