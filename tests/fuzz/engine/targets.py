"""Compiles the fuzz targets with sanitizers, under libFuzzer or on their own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sdfstream.probes.engine import build_io

FOLDER = Path(__file__).parent
_STRICT = ("-std=c11", "-g", "-Wall", "-Wextra", "-Werror", "-fno-sanitize-recover=undefined", "-ffp-contract=off")
LIBFUZZER = ("-O1", "-fsanitize=fuzzer,address,undefined")
ALONE = ("-O0", "-fsanitize=address,undefined")


def names() -> list[str]:
    """The targets."""
    return sorted(path.stem.removeprefix("fuzz_") for path in FOLDER.glob("fuzz_*.c"))


def clang() -> str | None:
    """A clang, whatever its version is called."""
    found = [shutil.which(name) for name in ("clang", *(f"clang-{n}" for n in range(25, 11, -1)))]
    return next((path for path in found if path), None)


def objects(compiler: str, flags: Sequence[str], folder: Path) -> list[str]:
    """The engine, and `standalone.c` if it is wanted, as object files in `folder`."""
    sources = [str(path) for path in build_io.sources()]
    subprocess.run([compiler, *_STRICT, *flags, "-c", *sources], check=True, cwd=folder)
    return [str(path) for path in sorted(folder.glob("*.o"))]


def linked(compiler: str, flags: Sequence[str], name: str, objects: Sequence[str], folder: Path) -> Path:
    """The program of one target."""
    made = folder / f"fuzz_{name}"
    alone = [] if flags == LIBFUZZER else [str(FOLDER / "standalone.c")]
    source = str(FOLDER / f"fuzz_{name}.c")
    include = f"-I{build_io.FOLDER}"
    command = [compiler, *_STRICT, *flags, include, "-o", str(made), source, *alone, *objects, "-lm"]
    subprocess.run(command, check=True)
    return made
