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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is ``real`` (packets, brokers, processes): those tests need the machine in time.

    They have it to themselves (``make test`` runs all others in parallel) and get a second try, told in the summary: a
    machine that others starve for a second breaks no promise. The lab first: chDB keeps hundreds of threads with three
    open files each, and libnftables can use only 1,024.
    """
    items.sort(key=lambda item: not item.nodeid.startswith("tests/lab/"))
    for item in items:
        if item.nodeid.startswith("tests/integration/") or _is_marked(item, "lab", "kafka"):
            item.add_marker("real")
            item.add_marker(pytest.mark.flaky(reruns=1))


def _is_marked(item: pytest.Item, *names: str) -> bool:
    return any(item.get_closest_marker(name) for name in names)
