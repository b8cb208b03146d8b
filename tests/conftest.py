"""Shared fixtures live in tests/fixtures, one file per outside part.

Property tests draw the same cases in every run (profile ``test``): a red run is the change's, never the day's. Fresh
cases are drawn by ``make fuzz`` (profile ``fuzz``); what that finds becomes an ``@example`` beside the law it broke.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("test", derandomize=True, database=None, deadline=None, print_blob=True)
settings.register_profile("fuzz", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("test")

pytest_plugins = ["tests.fixtures.lab", "tests.fixtures.kafka", "tests.fixtures.engines"]


REAL = ("lab", "kafka")
"""Marks of tests with real packets or a real broker; with the tests of ``integration``, which run real processes, they
need the machine in time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The lab first: chDB keeps hundreds of threads with three open files each, and libnftables can use only 1,024.

    What is real gets a second try, told in the summary: a machine that others starve for a second breaks no promise.
    """
    items.sort(key=lambda item: not item.nodeid.startswith("tests/lab/"))
    for item in items:
        if "/integration/" in item.nodeid or any(item.get_closest_marker(name) for name in REAL):
            item.add_marker(pytest.mark.flaky(reruns=1))
