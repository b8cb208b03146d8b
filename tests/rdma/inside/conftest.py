"""In the guest: the fabric, once for a boot. On any other machine nothing of this folder is collected."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from tests.rdma.guest.group import IN_GUEST

if os.environ.get(IN_GUEST) != "1":
    collect_ignore_glob = ["test_*.py"]


LIMIT_S = 60
"""For one test, of processor time: a loop that polls for ever must not cost the boot's results. Not by the clock, which
jumps in a guest whose emulator was stopped for a minute."""


@pytest.fixture(autouse=True)
def limit(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that does not end; a module that tells a long story may say a `LIMIT_S` of its own."""
    limit_s = getattr(request.module, "LIMIT_S", LIMIT_S)

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {limit_s} s of processor time")

    signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)


@pytest.fixture(scope="session")
def devices() -> tuple[str, ...]:
    """The Soft-RoCE devices of the fabric."""
    from tests.rdma.inside import fabric

    fabric.build()
    return tuple(f"rx{name}" for name in fabric.ADDRESSES)
