"""Source ports and flow labels."""

from __future__ import annotations

import pytest

from sdfstream.verbs.udp_port import LEAST_PORT, flow_label, source_port


def test_every_port_has_a_label_that_gives_it() -> None:
    for port in range(LEAST_PORT, 0x10000):
        label = flow_label(port)
        assert 0 < label < 1 << 20
        assert source_port(label) == port


@pytest.mark.parametrize("port", [0, 4791, LEAST_PORT - 1, 0x10000])
def test_ports_that_roce_does_not_use(port: int) -> None:
    with pytest.raises(ValueError, match="RoCEv2"):
        flow_label(port)


def test_without_a_label_both_ends_use_the_same_port() -> None:
    assert source_port(0, 17, 1_000_003) == source_port(0, 1_000_003, 17)
    assert {source_port(0, a, b) >= LEAST_PORT for a in range(1, 40) for b in range(1, 40)} == {True}
