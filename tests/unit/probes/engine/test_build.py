"""The library is compiled where that is possible and safe, else a sentence says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdfstream.errors import UnavailableError
from sdfstream.probes.engine import build_io, layouts, library_io


def test_the_same_sources_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    monkeypatch.setattr(build_io, "_compile", lambda _, __, library: compiled.append(library) or library.touch())
    first = build_io.compiled(cache=tmp_path / "a")
    assert build_io.compiled(cache=tmp_path / "a") == first
    assert build_io.compiled(["-O0"], cache=tmp_path / "a") != first
    assert len(compiled) == 2


def test_a_compiler_that_refuses(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="the C compiler refuses it"):
        build_io.compiled(["-no-such-flag"], cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_library_of_another_abi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "ABI", 0)
    with pytest.raises(UnavailableError, match="has ABI 4, this is 0"):
        library_io.library.__wrapped__(build_io.compiled())


def test_a_library_with_another_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(layouts.STRUCTURES, "pe_row", layouts.EVENT)
    with pytest.raises(UnavailableError, match="has another pe_row"):
        library_io.library.__wrapped__(build_io.compiled())


def test_no_library(tmp_path: Path) -> None:
    broken = tmp_path / "engine.so"
    broken.write_bytes(b"nothing")
    with pytest.raises(UnavailableError, match="no packet engine"):
        library_io.library.__wrapped__(broken)
