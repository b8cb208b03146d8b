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


def sending(ports: int, gbps: list[float], more: range = range(0)) -> PortRates:
    """Ports that send so much in each second, those of `more` 1.6 times as much in the last one."""
    rates = PortRates()
    for number in range(ports):
        port = rates._ports[f"h{number}/r0:1"] = _PortCounts(f"h{number}/r0", speed_bps=100e9)
        sent = 0.0
        for second, now in enumerate(gbps):
            sent += now * 1e9 / 8 * (1.6 if number in more and second == len(gbps) - 1 else 1.0)
            rates._reading(port, [0, round(sent), 0], (second + 1) * S, (second + 1) * S)
    return rates


STEADY = [30.0] * 40


def test_load_has_grown_where_most_ports_send_more_than_they_usually_do() -> None:
    assert sending(8, STEADY, range(8)).grown(40 * S) == pytest.approx(1.6, abs=0.01)
    assert sending(8, STEADY, range(3)).grown(40 * S) == pytest.approx(1.0, abs=0.01), "a few that send more are none"
    assert sending(8, STEADY).grown(40 * S) == pytest.approx(1.0, abs=0.01)


def test_a_job_that_sends_in_steps_is_no_load_that_grows() -> None:
    rates = sending(8, [2.0, 2.0, 2.0, 90.0] * 10)
    assert rates.grown(40 * S) == pytest.approx(1.0, abs=0.01)


def test_of_few_young_idle_or_silent_ports_nothing_is_known() -> None:
    assert sending(5, STEADY, range(5)).grown(40 * S) is None
    assert sending(8, STEADY[:20], range(8)).grown(20 * S) is None
    assert sending(8, [0.1] * 40, range(8)).grown(40 * S) is None
    assert sending(8, STEADY, range(8)).grown(46 * S) is None


def test_load_that_stays_is_usual_soon_and_a_snapshot_knows_it() -> None:
    again = PortRates()
    for lasts, grown in ((8, 1.6), (20, 1.0)):
        stays = sending(8, [*STEADY, *[48.0] * lasts])
        again.restore(stays.snapshot())
        for one in (stays, again):
            assert one.grown((40 + lasts) * S) == pytest.approx(grown, abs=0.01)
