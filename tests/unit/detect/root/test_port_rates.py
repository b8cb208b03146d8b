"""What ports move, by the side that is asked for."""

import pytest

from sdfstream.detect.root.port_rates import PortRates, Side, _PortCounts

S = 1_000_000_000


@pytest.mark.parametrize(("side", "gbps"), [("tx", 10.0), ("rx", 60.0), ("busier", 60.0)])
def test_a_nic_that_sends_little_may_receive_much(side: Side, gbps: float) -> None:
    rates, port = PortRates(), _PortCounts("h0/r0")
    rates._ports["h0/r0:1"] = port
    for second in range(3):
        rates._reading(port, [round(second * 60e9 / 8), round(second * 10e9 / 8), 0], second * S, second * S)
    use = rates.use_of("h0/r0", S, 2 * S, side)
    assert use is not None
    assert use.rate_bps == pytest.approx(gbps * 1e9)
    assert rates.use_of("h0/r0", S + 1, 2 * S, side) is None, "the first reading was made before"
    again = PortRates()
    again.restore(rates.snapshot())
    assert again.use_of("h0/r0", S, 2 * S, side) == use


def test_a_snapshot_of_the_release_before_has_no_sides_until_the_next_reading() -> None:
    rates = PortRates()
    rates.restore({"ports": [["h0/r0:1", {"nic": "h0/r0", "rate_bps": 1e9, "from_ns": S, "seen_ns": 2 * S}]]})
    assert rates.use_of("h0/r0", S, 2 * S, "tx") is None
    assert rates.use_of("h0/r0", S, 2 * S) is not None
