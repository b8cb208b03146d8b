"""The examples in docstrings say what the code does."""

import doctest
import importlib
from pathlib import Path

import pytest

import sdfstream

_ROOT = Path(sdfstream.__file__).parent
_MODULES = sorted(
    ".".join(("sdfstream", *path.relative_to(_ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in _ROOT.rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)


def test_there_are_examples() -> None:
    assert len(_MODULES) > 40, _MODULES


@pytest.mark.parametrize("name", _MODULES)
def test_examples_are_true(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted
    assert not found.failed
