"""The examples in the docstrings of this piece hold."""

import doctest

import pytest

from sdfstream.board import humanize, notes_text
from sdfstream.probes.ports import driver_stats, reading
from sdfstream.records import silences
from sdfstream.score import location
from sdfstream.serve.api import roles


@pytest.mark.parametrize("module", [humanize, notes_text, silences, roles, reading, driver_stats, location])
def test_examples(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted > 0
    assert result.failed == 0
