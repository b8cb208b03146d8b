"""Shared fixtures live in tests/fixtures, one file per outside part."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.fixtures.lab", "tests.fixtures.kafka", "tests.fixtures.engines"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The lab first: chDB keeps hundreds of threads with three open files each, and libnftables can use only 1,024."""
    items.sort(key=lambda item: "/lab/" not in item.nodeid)
