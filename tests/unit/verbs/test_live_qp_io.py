"""One queue pair, on doubles of devices: Soft-RoCE as recorded, mlx5 and others as their documentation says."""

from __future__ import annotations

import errno
import time
from typing import Any

import pytest

from sdfstream.qpcontrol.rules import RefusedError
from sdfstream.verbs.live_qp_io import LiveQp
from tests.unit.verbs.doubles import ENUMS, Library, Qp, context

MLX5 = 0x02C9


def live(qp: Qp, library: Any = None, vendor_id: int = 0xFFFFFF, **more: Any) -> LiveQp:
    made = LiveQp(library or Library(), qp, context(vendor_id), **more)
    qp.did.clear()
    return made


def test_registration_reads_where_it_sends_and_leaves_it_in_rts() -> None:
    qp = Qp()
    made = LiveQp(Library(), qp, context())  # type: ignore[arg-type]
    assert (made.number, made.path, made.dscp) == (17, 0xC009, 26)
    assert (made.src_address, made.dst_address) == ("10.0.0.1", "10.0.9.1")
    assert (qp.state, qp.route.flow_label) == (ENUMS.IBV_QPS_RTS, 9)


def test_a_move_through_sqd() -> None:
    qp = Qp()
    made = live(qp)
    made.steer(0xC123, time.monotonic_ns())
    assert qp.did == ["halt", f"label {0x123}", "resume", "prompt"]
    assert (made.path, qp.state, qp.route.traffic_class) == (0xC123, ENUMS.IBV_QPS_RTS, 26 << 2 | 2)


def test_a_queue_that_drains_late_is_prompted_on_soft_roce_only() -> None:
    for vendor_id, prompts in ((0xFFFFFF, 4), (0x1234, 0)):
        qp = Qp()
        made = live(qp, vendor_id=vendor_id)
        qp.draining = 3
        made.steer(0xC123, time.monotonic_ns())
        assert qp.did.count("resume") == 4
        assert qp.did.count("prompt") == prompts


def test_of_one_that_has_ended_in_error_that_is_said() -> None:
    qp = Qp()
    made = live(qp)
    qp.state = ENUMS.IBV_QPS_ERR
    with pytest.raises(RefusedError, match="ended in error; its program must connect it anew"):
        made.steer(0xC123, time.monotonic_ns())


def test_a_queue_that_does_not_drain_goes_on_in_the_background() -> None:
    qp = Qp()
    made = live(qp)
    qp.draining = 10**9
    made.steer(0xC123, time.monotonic_ns() - 10**9)  # its patience is over
    assert (made.path, made.is_moving) == (0xC123, True)  # what is sent again goes by the new port
    with pytest.raises(RefusedError, match="busy"):
        made.steer(0xC124, time.monotonic_ns())
    qp.draining = 0
    assert made.go_on()
    assert (qp.state, made.is_moving) == (ENUMS.IBV_QPS_RTS, False)


def test_retries_that_run_out_meanwhile() -> None:
    qp = Qp()
    made = live(qp)
    qp.draining = 10**9
    made.steer(0xC123, time.monotonic_ns() - 10**9)
    qp.state = ENUMS.IBV_QPS_ERR
    with pytest.raises(RefusedError, match="failed"):
        made.go_on()
    assert not made.is_moving


def test_mlx5_moves_by_its_own_call_and_never_halts() -> None:
    qp = Qp(sqd=errno.EINVAL)
    made = LiveQp(Library(mlx5=0), qp, context(MLX5))  # type: ignore[arg-type]
    assert made.capabilities.steer == "udp-sport"
    assert not made.capabilities.run_on_hardware
    made.steer(0xC123, time.monotonic_ns())
    assert (qp.did, qp.mlx5_port, made.path) == ([], 0xC123, 0xC123)


def test_mlx5_without_that_call_says_why() -> None:
    made = live(Qp(sqd=errno.EINVAL), vendor_id=MLX5)
    assert made.capabilities.steer == "none"
    with pytest.raises(RefusedError, match=r"not-possible.*udp-sport: Operation not supported; sqd: Invalid argument"):
        made.steer(0xC123, time.monotonic_ns())


def test_mlx5_that_refuses_later() -> None:
    library = Library(mlx5=0)
    made = live(Qp(), library, MLX5)
    library.mlx5 = errno.EINVAL
    with pytest.raises(RefusedError, match="failed"):
        made.steer(0xC123, time.monotonic_ns())
    assert made.path == 0xC009


def test_a_refused_address_leaves_path_and_state() -> None:
    qp = Qp()
    made = live(qp)
    qp.address = errno.EINVAL
    with pytest.raises(RefusedError, match="failed"):
        made.steer(0xC123, time.monotonic_ns())
    assert (made.path, qp.state) == (0xC009, ENUMS.IBV_QPS_RTS)


def test_no_limit_for_a_program_that_does_not_pace() -> None:
    made = live(Qp())
    with pytest.raises(RefusedError, match="not-possible"):
        made.rate_bps = 1_000_000
    made.rate_bps = None
    assert made.rate_bps is None


def test_a_program_that_paces_waits() -> None:
    made = live(Qp(), paced=True)
    made.rate_bps = 8_000_000
    began_s = time.monotonic()
    for _ in range(21):
        made.pace(1_000)
    assert time.monotonic() - began_s >= 0.017
    assert made.capabilities.throttle == "software"


def test_an_unconnected_pair_and_one_of_infiniband_are_refused() -> None:
    down, local = Qp(), Qp()
    down.state, local.route.is_global = ENUMS.IBV_QPS_ERR, 0
    for qp in (down, local):
        with pytest.raises(RefusedError, match="unknown-target"):
            LiveQp(Library(), qp, context())  # type: ignore[arg-type]
