"""The examples in the docstrings of this piece hold."""

import doctest

import pytest

from sdfstream.cli import words
from sdfstream.probes import port_strings, ports
from sdfstream.score import places


@pytest.mark.parametrize("module", [words, ports, port_strings, places])
def test_examples(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted > 0
    assert result.failed == 0
