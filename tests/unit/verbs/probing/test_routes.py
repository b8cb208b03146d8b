"""Addresses of probes: the selector is the source port on RoCEv2, and the LID's low bits on InfiniBand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.verbs.probing.routes import InfiniBandRoute, infiniband_route, roce_route
from sdfstream.verbs.udp_port import source_port


@given(st.integers(0xC000, 0xFFFF), st.integers(0, 255))
def test_the_label_gives_the_source_port(port: int, tos: int) -> None:
    route = roce_route("::ffff:10.0.0.1", port, tos)
    assert source_port(route.flow_label) == port
    assert (route.traffic_class, route.hop_limit) == (tos, 64)


def test_a_port_that_rocev2_does_not_use_is_refused() -> None:
    with pytest.raises(ValueError, match="49152 to 65535"):
        roce_route("::1", 862, 0)


@given(st.integers(0, 7).flatmap(lambda lmc: st.tuples(st.just(lmc), st.integers(0, (1 << lmc) - 1))))
def test_paths_of_a_port_are_its_lids(path: tuple[int, int]) -> None:
    lmc, selector = path
    found = infiniband_route(0x80, lmc, selector, 26, {26: 3})
    assert found == InfiniBandRoute(0x80 + selector, selector, 3)


@pytest.mark.parametrize(
    ("lid", "lmc", "selector", "dscp", "why"),
    [
        (0x81, 1, 0, 0, "not a port's base LID"),
        (0, 0, 0, 0, "not a port's base LID"),
        (0xC000, 0, 0, 0, "not a port's base LID"),
        (0x80, 8, 0, 0, "not a port's base LID"),
        (0x80, 2, 4, 0, "paths 0 to 3"),
        (0x80, 2, 0, 46, "levels are 0 to 15"),
    ],
)
def test_what_is_no_path_is_refused(lid: int, lmc: int, selector: int, dscp: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        infiniband_route(lid, lmc, selector, dscp, {46: 16})
