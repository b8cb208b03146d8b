"""pyverbs where it is and where it is not; what its errors say."""

from __future__ import annotations

import errno
import importlib.util
import sys
from pathlib import Path

import pytest

import sdfstream
from sdfstream.errors import UnavailableError
from sdfstream.verbs import library_io
from sdfstream.verbs.library_io import Verbs, error_number


@pytest.fixture
def no_pyverbs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyverbs"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)


@pytest.mark.usefixtures("no_pyverbs")
def test_a_machine_without_it_says_which_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library_io, "_DISTRIBUTION", (tmp_path,))
    with pytest.raises(UnavailableError, match="python3-pyverbs"):
        Verbs()


@pytest.mark.usefixtures("no_pyverbs")
def test_one_for_another_python_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pyverbs").mkdir()
    (tmp_path / "pyverbs" / "device.cpython-39-x86_64-linux-gnu.so").touch()
    monkeypatch.setattr(library_io, "_DISTRIBUTION", (tmp_path,))
    with pytest.raises(UnavailableError, match="another Python"):
        Verbs()


@pytest.mark.parametrize(("code", "number"), [(22, 22), (-1, errno.EIO), (None, errno.EIO), (0, errno.EIO)])
def test_error_numbers(code: int | None, number: int) -> None:
    failure = Exception("x")
    failure.error_code = code  # type: ignore[attr-defined]
    assert error_number(failure) == number
    assert error_number(Exception("without")) == errno.EIO


def test_the_public_name_is_loaded_when_used() -> None:
    from sdfstream.verbs.steerable_io import steerable

    assert sdfstream.steerable is steerable
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        _ = sdfstream.nothing_of_ours
