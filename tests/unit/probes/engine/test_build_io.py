"""Who compiles the packet engine, where its library lies, and what a wheel that holds it is called."""

from __future__ import annotations

import importlib.util
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sdfstream.errors import UnavailableError
from sdfstream.probes.engine import build_io

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def packaging() -> ModuleType:
    """The project's `setup.py`, which builds nothing when it is imported."""
    spec = importlib.util.spec_from_file_location("packaging_of_sdfstream", ROOT / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _writes(library: Path, _folder: Path = ROOT) -> None:
    library.write_bytes(b"\x7fELF")


def _refuses(library: Path, _folder: Path = ROOT) -> None:
    raise UnavailableError("no packet engine: there is no C compiler (cc) on this machine")


@pytest.fixture
def built(packaging: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[Any, Any]]:
    def build(compiling: Callable[[Path, Path], None], *, editable: bool = False) -> tuple[Any, Any]:
        monkeypatch.setattr(build_io, "compile_library", compiling)
        commands = {"build_py": packaging.BuildPackage, "bdist_wheel": packaging.BuildWheel}
        package = packaging.Package({"name": "sdfstream", "version": "1", "packages": [], "cmdclass": commands})
        build_py, wheel = package.get_command_obj("build_py"), package.get_command_obj("bdist_wheel")
        build_py.build_lib, build_py.editable_mode = str(tmp_path), editable
        build_py.ensure_finalized()
        wheel.ensure_finalized()
        build_py.run()
        return build_py, wheel

    return build


def test_a_wheel_with_the_library_is_of_this_machine_and_of_every_python(built: Any) -> None:
    build_py, wheel = built(_writes)
    assert len(build_py.libraries()) == 2
    assert {str(library) for library in build_py.libraries()} <= set(build_py.get_outputs())
    wheel.root_is_pure = False
    assert wheel.get_tag() == ("py3", "none", sysconfig.get_platform().replace("-", "_"))


def test_without_a_compiler_the_wheel_is_of_any_machine(built: Any) -> None:
    build_py, wheel = built(_refuses)
    assert build_py.get_outputs() == []
    assert wheel.get_tag() == ("py3", "none", "any")


def test_a_library_of_an_earlier_build_is_not_packed(built: Any) -> None:
    build_py, _ = built(_writes)
    assert all(library.exists() for library in build_py.libraries())
    build_py, _ = built(_refuses)
    assert not any(library.exists() for library in build_py.libraries())


def test_an_editable_install_holds_no_library(built: Any) -> None:
    build_py, _ = built(_writes, editable=True)
    assert not any(library.exists() for library in build_py.libraries())


def test_with_no_compiler_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build_io, "_COMPILER", "no-such-compiler")
    with pytest.raises(UnavailableError, match="no C compiler"):
        build_io.compile_library(tmp_path / "engine.so")
    with pytest.raises(UnavailableError, match="no C compiler"):
        build_io.compiled(cache=tmp_path)


def test_the_library_that_came_with_the_package_is_the_one_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build_io, "INSTALLED", tmp_path / "engine.so")
    monkeypatch.setattr(build_io, "compiled", lambda **_: tmp_path / "cached.so")
    assert build_io.available() == tmp_path / "cached.so"
    _writes(build_io.INSTALLED)
    assert build_io.available() == build_io.INSTALLED


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UnavailableError, match="may be written to by others"):
        build_io.compiled(cache=tmp_path)
