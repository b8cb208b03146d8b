"""Whom a reflector answers."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.probes.config import HostConfig, NicConfig
from sdfstream.probes.stamp.datagrams import address_octets
from sdfstream.probes.stamp.known_senders import KnownSender, KnownSenders, ReflectorLimits

HOST = HostConfig("h", (NicConfig("h/r0", "r0", "10.0.0.1"), NicConfig("h/r1", "r1", "fd00::1")))


def known(**limits: object) -> KnownSenders:
    return KnownSenders(HOST, ReflectorLimits(**limits), 7)  # type: ignore[arg-type]


def refusals(senders: KnownSenders, address: str, port: int = 50_000) -> set[str]:
    octets = np.frombuffer(address_octets(address), dtype=np.uint8).reshape(1, 16)
    admission = senders.admit(octets, np.array([port], dtype=np.uint16))
    return {reason for reason, refused in admission.refused.items() if refused[0]}


def test_named_senders_and_those_of_networks_are_answered() -> None:
    senders = known(networks=("10.2.0.0/16", "fd02::/32"))
    senders.know("plan", {"10.1.0.1": KnownSender("a/r0"), "fd01::1": KnownSender("b/r0")})
    for address in ("10.1.0.1", "fd01::1", "10.2.3.4", "fd02::9"):
        assert not refusals(senders, address)
    for address in ("10.1.0.2", "10.3.0.1", "fd03::1"):
        assert refusals(senders, address) == {"stranger"}


def test_a_group_replaces_its_own_and_the_older_one_names_a_sender() -> None:
    senders = known()
    assert senders.know("configuration", {"10.1.0.1": KnownSender("a/r0")})
    assert senders.know("plan", {"10.1.0.1": KnownSender("x/r0"), "10.1.0.2": KnownSender("b/r0")}, ["10.5.0.0/24"])
    assert not senders.know("plan", {"10.1.0.1": KnownSender("x/r0"), "10.1.0.2": KnownSender("b/r0")}, ["10.5.0.0/24"])
    assert senders.names[address_octets("10.1.0.1")] == "a/r0"
    assert not refusals(senders, "10.5.0.9")
    assert senders.know("plan", {})
    assert refusals(senders, "10.1.0.2") == refusals(senders, "10.5.0.9") == {"stranger"}
    assert not refusals(senders, "10.1.0.1")


@pytest.mark.parametrize("address", ["224.0.0.1", "255.255.255.255", "0.0.0.0", "127.0.0.1", "ff02::1", "::1"])
def test_an_address_that_is_not_one_hosts_is_never_known(address: str) -> None:
    senders = known(networks=("0.0.0.0/0", "::/0"))
    senders.know("plan", {address: KnownSender("a/r0")})
    assert not senders.names
    assert refusals(senders, address) == {"no-host"}


def test_our_own_address_is_known_only_where_it_is_named() -> None:
    senders = known(networks=("10.0.0.0/8",))
    assert refusals(senders, "10.0.0.1") == {"own-address"}
    senders.know("configuration", {"10.0.0.1": KnownSender("h/r0")})
    assert not refusals(senders, "10.0.0.1")


def test_ports_of_reflectors() -> None:
    senders = known(port=8620)
    senders.know("plan", {"10.1.0.1": KnownSender("a/r0", 9001), "10.1.0.2": KnownSender("b/r0")})
    assert [bool(refusals(senders, "10.1.0.1", port)) for port in (862, 8620, 9001, 50_000)] == [
        True,
        True,
        True,
        False,
    ]
    assert not refusals(senders, "10.1.0.2", 9001)
