"""In the guest: the fabric, once for a boot. On any other machine nothing of this folder is collected."""

from __future__ import annotations

import os

import pytest

from tests.rdma.guest.group import IN_GUEST

if os.environ.get(IN_GUEST) != "1":
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def devices() -> tuple[str, ...]:
    """The Soft-RoCE devices of the fabric."""
    from tests.rdma.inside import fabric

    fabric.build()
    return tuple(f"rx{name}" for name in fabric.ADDRESSES)
