"""What packages need of a C library: read, lowered where safe, refused by a loader that lacks it; the wheel."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PACKAGES = Path(__file__).parents[2] / "deploy" / "packages"
ROCKY_9 = (2, 34)
SOURCE = """
#include <math.h>
#include <stdlib.h>
double far(double x, double y) { unsigned char b[4096]; arc4random_buf(b, sizeof b); int n = 0;
  for (unsigned i = 0; i < sizeof b; i++) n += b[i] != 0; return n > 2048 ? hypot(x, y) : -1; }
"""
NEWER = "#include <sys/pidfd.h>\nint far(int pid) { return pidfd_open(pid, 0); }\n"
MAIN = """
#include <stdio.h>
double far(double, double);
int main(void) { printf("%.1f\\n", far(3, 4)); return 0; }
"""


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("packages_glibc", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


glibc = load(PACKAGES / "glibc.py")


def compiled(folder: Path, name: str, source: str, *more: str) -> Path:
    code, library = folder / f"{name}.c", folder / f"lib{name}.so"
    code.write_text(source)
    words = ["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-Wl,-rpath,$ORIGIN", "-o", library, code, *more, "-lm"]
    subprocess.run(words, check=True)
    return library


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """One that calls what glibc 2.35 and 2.36 have, with `compat.c` beside it as in a package."""
    compat = compiled(tmp_path, "sdfstream-compat", (PACKAGES / "compat.c").read_text())
    # first linked without it, so that the symbol is glibc's
    plain = compiled(tmp_path, "far", SOURCE, "-Wl,--no-as-needed", "-lc", "-L", str(tmp_path), f"-l:{compat.name}")
    assert glibc.needs([str(plain)]) == (2, 36), "the machine that this is tested on has an older or another glibc"
    return plain


def called(library: Path, *loader: str | Path) -> subprocess.CompletedProcess[str]:
    """What a program prints that calls `library`, itself needing nothing later."""
    program = library.parent / "main"
    if not program.exists():
        (library.parent / "main.c").write_text(MAIN)
        words = ["cc", "-Wl,-rpath,$ORIGIN", "-o", program, library.parent / "main.c", library]
        subprocess.run(words, check=True)
    return subprocess.run([*loader, program], capture_output=True, text=True)


def test_what_is_later_is_taken_off_and_the_code_still_runs(library: Path) -> None:
    said = glibc.lower(ROCKY_9, [str(library)])
    assert sorted(line.rpartition(": ")[2] for line in said) == ["arc4random_buf", "hypot"]
    assert glibc.needs([str(library)]) <= ROCKY_9
    assert called(library).stdout == "5.0\n", called(library).stderr
    assert glibc.lower(ROCKY_9, [str(library)]) == [], "once is enough"


def test_a_symbol_of_which_nothing_is_known_is_left_and_named(tmp_path: Path) -> None:
    library = compiled(tmp_path, "newer", NEWER)
    before = library.read_bytes()
    (said,) = glibc.lower(ROCKY_9, [str(library)])
    assert said == "libnewer.so: GLIBC_2.36 of libc.so.6 is left: pidfd_open"
    assert library.read_bytes() == before
    assert glibc.needs([str(library)]) == (2, 36)


def test_the_loader_of_an_older_system_refuses_what_was_not_lowered_and_takes_what_was(
    library: Path, tmp_path: Path
) -> None:
    """An older system: today's C library without what came after 2.34."""
    assert called(library).stdout == "5.0\n"
    older = tmp_path / "older"
    older.mkdir()
    names = "libm.so.6", "libc.so.6", Path(elf_interpreter()).name
    for name in names:
        found = subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
        shutil.copy(Path(found.strip()).resolve(), older / name)
    assert glibc.hide(ROCKY_9, [str(older / name) for name in names]) >= 3
    loader = older / names[-1], "--library-path", older
    refused = called(library, *loader)
    assert refused.returncode, refused.stdout
    assert "version `GLIBC_2.3" in refused.stderr
    assert "not found" in refused.stderr
    glibc.lower(ROCKY_9, [str(library)])
    taken = called(library, *loader)
    assert taken.stdout == "5.0\n", taken.stderr


def elf_interpreter() -> str:
    (found,) = Path("/lib64").glob("ld-linux-*.so.2")
    return str(found)


def test_files_that_are_no_elf_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("#!/bin/sh\n")
    (tmp_path / "b").write_bytes(b"\x7fELF")
    assert glibc.needs([str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path)]) == ()


@pytest.mark.parametrize("script", ["build", "try", "postinst", "prerm", "postrm"])
def test_scripts_have_no_mistake_of_syntax(script: str) -> None:
    subprocess.run(["bash", "-n", PACKAGES / script], check=True)


LOADED = """
import ctypes, pathlib, sys
import sdfstream
home = pathlib.Path(sdfstream.__file__).parent
assert home.is_relative_to(sys.argv[1]), home
for engine in sorted(home.glob("*/engine/engine.so")):
    ctypes.CDLL(str(engine))
    print(engine.parent.parent.name)
"""


def test_the_wheel_is_of_every_python_and_says_which_glibc_its_engines_need(tmp_path: Path) -> None:
    """Installed without an index and without a compiler on the path, as on a host of a cluster."""
    words = [PACKAGES / "build", "--out", tmp_path, "--python", sys.executable, "wheel"]
    built = subprocess.run(words, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    named = re.fullmatch(r"sdfstream-[0-9.]+-py3-none-manylinux_2_(\d+)_\w+\.whl", wheel.name)
    assert named, wheel.name
    assert int(named[1]) <= ROCKY_9[1], "Rocky 9 would not take it"
    installed = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", installed, wheel]
    subprocess.run(pip, check=True, env={"PATH": str(tmp_path), "PIP_ROOT_USER_ACTION": "ignore"})
    loads = [sys.executable, "-c", LOADED, installed]
    home = {"PYTHONPATH": str(installed)}
    loaded = subprocess.run(loads, capture_output=True, text=True, env=home, cwd=tmp_path)
    assert loaded.stdout.split() == ["emulator", "probes"], loaded.stderr
