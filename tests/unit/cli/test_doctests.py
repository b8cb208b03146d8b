"""The examples in the docstrings of this piece hold."""

import doctest

import pytest

from sdfstream.board import humanize
from sdfstream.probes.ports import driver_stats, reading
from sdfstream.score import location


@pytest.mark.parametrize("module", [humanize, reading, driver_stats, location])
def test_examples(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted > 0
    assert result.failed == 0
