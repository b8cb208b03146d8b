"""Why there is no RDMA device."""

from __future__ import annotations

import pytest

from sdfstream.probes.rdma.presence import RdmaFacts, why_no_device


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (RdmaFacts((), False, False, "x"), "no RDMA device: the kernel has no RDMA core"),
        (RdmaFacts((), True, True, ""), "no driver has registered"),
        (RdmaFacts(("mlx5_0",), True, False, ""), "RDMA devices (mlx5_0), but programs cannot open them"),
        (RdmaFacts(("mlx5_0",), True, True, "pyverbs is not installed"), "mlx5_0), but pyverbs is not installed"),
        (RdmaFacts(("mlx5_0",), True, True, ""), ""),
    ],
)
def test_the_first_thing_that_is_missing(facts: RdmaFacts, why: str) -> None:
    found = why_no_device(facts)
    assert why in found
    assert bool(found) is bool(why)
