"""Shared fixtures live in tests/fixtures, one file per outside part.

Property tests draw the same cases in every run (profile ``test``): a red run is the change's, never the day's. Fresh
cases are drawn by ``make fuzz`` (profile ``fuzz``); what that finds becomes an ``@example`` beside the law it broke.
"""

from __future__ import annotations

import functools
import gc
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.fixtures.scheduling import FilesAndBroker

settings.register_profile("test", derandomize=True, database=None, deadline=None, print_blob=True)
settings.register_profile("fuzz", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("test")

pytest_plugins = ["tests.fixtures.lab", "tests.fixtures.kafka", "tests.fixtures.engines", "tests.fixtures.pages"]


UNHURRIED = ("tests/golden/", "tests/property/", "tests/scenarios/", "tests/unit/")
"""Plain objects, whose time comes with their input, but for tests that read the machine's clock."""
IN_TIME = (
    "tests/integration/test_agents_away",
    "tests/integration/test_agent_run",
    "tests/integration/test_page_scale",
    "tests/integration/test_sync_split",
)
"""Agents at full rate, and clocks by probes in their own time."""
_ROOT = Path(__file__).resolve().parents[1]
_READS_THE_CLOCK = re.compile(r"^\s*(?:async def |(?:import|from) .*\b(?:time|asyncio)\b)", re.MULTILINE)
"""A file whose tests wait, or ask what time it is: one that gets no time for seconds would fail for that alone."""
_REAL = re.compile(r"\bmark\.(?:lab|kafka|rdma)\b")
_SHARES = re.compile(r"\bshipped_replay\b")
"""A file whose tests read what others of the parallel run read too."""
_ALONE = re.compile(r"\bmark\.(?:lab|rdma)\b")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Each of the three runs of ``make test`` imports only files that may hold its tests: all cost ten seconds."""
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    file = collection_path.relative_to(_ROOT).as_posix()
    others = {
        "unhurried": not _is_unhurried(file),
        "not alone and not unhurried": _is_unhurried(file),
        "alone": not _may_run_alone(file),
    }
    return True if others.get(config.option.markexpr, False) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what is ``real`` (packets, brokers, processes), what of it runs ``alone``, and what is ``unhurried``.

    What is real or reads the clock gets a second try, told in the summary: a machine that others starve for a second
    breaks no promise.
    Packets in namespaces, agents at full rate and live clocks need the machine in time: ``make test`` runs them one by
    one. All others run beside them in parallel with a smaller share of the machine, what is unhurried with none.
    """
    if item.nodeid.startswith("tests/integration/") or _is_marked(item, "lab", "kafka", "rdma"):
        item.add_marker("real")
    if _is_marked(item, "lab", "rdma") or item.nodeid.startswith(IN_TIME):
        item.add_marker("alone")
    if _is_unhurried(_file_of(item)):
        item.add_marker("unhurried")
    if (_is_marked(item, "unhurried") and _is_marked(item, "real")) or (
        _is_marked(item, "alone") and not _may_run_alone(_file_of(item))
    ):
        raise pytest.UsageError(f"{item.nodeid}: no run of make test takes it; write its marker into its file")
    if _is_marked(item, "real") or (item.nodeid.startswith(UNHURRIED) and not _is_marked(item, "unhurried")):
        item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesAndBroker:
    """Whatever ``--dist`` says, a file's tests stay on one worker, and so do all that share a broker or a replay."""
    return FilesAndBroker(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The folders with the longest files first, so that no worker ends long after the others."""
    items.sort(key=_order)


def pytest_collection_finish() -> None:
    """What is imported by now stays: a collector that walks it after every 700 objects takes a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


def _order(item: pytest.Item) -> int:
    folder = item.nodeid.split("/")[1]
    # the lab before all: chDB keeps hundreds of threads with three open files each, and libnftables can use only 1,024
    folders = ("lab", "integration", "scenarios", "property", "contract", "bench")
    return folders.index(folder) if folder in folders else len(folders)


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@functools.cache
def _is_unhurried(file: str) -> bool:
    """Whether its tests are plain objects: told by its text, so that a run that wants none need not import it."""
    if not file.startswith(UNHURRIED):
        return False
    text = (_ROOT / file).read_text(encoding="utf-8")
    return not any(reason.search(text) for reason in (_READS_THE_CLOCK, _REAL, _SHARES))


@functools.cache
def _may_run_alone(file: str) -> bool:
    return file.startswith(IN_TIME) or bool(_ALONE.search((_ROOT / file).read_text(encoding="utf-8")))


def _is_marked(item: pytest.Item, *names: str) -> bool:
    return any(item.get_closest_marker(name) for name in names)
