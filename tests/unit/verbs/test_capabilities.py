"""What follows from the trials on a queue pair."""

from __future__ import annotations

import pytest

from sdfstream.verbs.capabilities import SteerBy, capabilities, chooses_datagram_ports, needs_prompt


@pytest.mark.parametrize(
    ("vendor_id", "tried", "steer", "driver", "run"),
    [
        (0xFFFFFF, {"sqd": ""}, "sqd", "rxe", True),
        (0x02C9, {"udp-sport": ""}, "udp-sport", "mlx5", False),
        (0x02C9, {"udp-sport": "Operation not supported", "sqd": "Invalid argument"}, "none", "mlx5", False),
        (0x14E4, {"sqd": "Invalid argument"}, "none", "bnxt_re", False),
        (0x1234, {"sqd": ""}, "sqd", "unknown (vendor 0x1234)", False),
    ],
)
def test_the_first_method_that_works(
    vendor_id: int, tried: dict[SteerBy, str], steer: str, driver: str, run: bool
) -> None:
    found = capabilities(vendor_id, tried, paced=False)
    assert (found.steer, found.driver, found.run_on_hardware, found.throttle) == (steer, driver, run, "none")
    assert bool(found.why_not) is (steer == "none")
    assert found.as_data()["steer"] == steer


def test_what_was_not_tried_cannot_be_done() -> None:
    found = capabilities(0xFFFFFF, {}, paced=True)
    assert (found.steer, found.why_not, found.throttle) == ("none", "nothing was tried", "software")


def test_only_soft_roce_needs_a_prompt() -> None:
    assert [needs_prompt(vendor) for vendor in (0xFFFFFF, 0x02C9, 0x14E4)] == [True, False, False]


def test_soft_roce_chooses_the_ports_of_datagrams_itself() -> None:
    assert [chooses_datagram_ports(vendor) for vendor in (0xFFFFFF, 0x02C9)] == [False, True]
