"""Compiles an engine in C, by default the packet engine: all C files of a folder into one shared library.

An installed package has its library beside the C files (compiled by ``setup.py``). A checkout compiles it
at its first use, once per content and flags, into a folder that only its owner may write to, under a name that holds a
digest of sources, headers, flags and compiler; so a change of any of them is a new library, and an old one is never
loaded by mistake.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sdfstream.errors import UnavailableError

FOLDER: Final = Path(__file__).parent
FLAGS: Final = ("-std=c11", "-O2", "-g", "-shared", "-fPIC", "-ffp-contract=off", "-fvisibility=default")
"""``-ffp-contract=off``: a fused multiplication and addition rounds once, numpy's two operations twice."""
WARNINGS: Final = ("-Wall", "-Wextra", "-Werror", "-Wconversion")
INSTALLED: Final = FOLDER / "engine.so"
"""The library of an installed package; other engines' have the same name in their folders."""
_COMPILER: Final = "cc"
_LONGEST_S: Final = 120.0
_SAID_CHARACTERS: Final = 2_000


def sources(folder: Path = FOLDER) -> list[Path]:
    """The C files, in the order of their names."""
    return sorted(folder.glob("*.c"))


def available(folder: Path = FOLDER) -> Path:
    """The library that came with the package, else one compiled from the sources in `folder`.

    Raises
    ------
    UnavailableError
        As `compiled`.
    """
    installed = INSTALLED if folder == FOLDER else folder / INSTALLED.name
    return installed if installed.exists() else compiled(folder=folder)


def compile_library(library: Path, folder: Path = FOLDER) -> None:
    """Compile into the file `library`. Warnings are none of an installer's: a newer compiler may have more of them.

    Raises
    ------
    UnavailableError
        There is no C compiler, or it refuses.
    """
    try:
        _compile(_compiler(), [*FLAGS, *map(str, sources(folder))], library)
        library.chmod(0o755)  # the one that it is made as is its maker's alone
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"no packet engine: {error}") from error


def compiled(flags: Sequence[str] = FLAGS, *, cache: Path | None = None, folder: Path = FOLDER) -> Path:
    """The shared library, compiled now unless it has been.

    Parameters
    ----------
    flags : sequence of str
        What the compiler is given besides the sources.
    cache : Path, optional
        Folder for libraries; by default ``sdfstream/engine`` in the user's cache.
    folder : Path
        Where the C files are.

    Raises
    ------
    UnavailableError
        There is no C compiler, it refuses, or the folder cannot be used.
    """
    compiler = _compiler()
    try:
        own = _own_folder(cache or Path.home() / ".cache" / "sdfstream" / "engine")
        library = own / f"engine-{_digest(compiler, flags, folder)}.so"
        if not library.exists():
            _compile(compiler, [*flags, *WARNINGS, *map(str, sources(folder))], library)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: a user without a home
        raise UnavailableError(f"no packet engine: {error}") from error
    return library


def _compiler() -> str:
    """The C compiler's path."""
    compiler = shutil.which(_COMPILER)
    if compiler is None:
        raise UnavailableError(f"no packet engine: there is no C compiler ({_COMPILER}) on this machine")
    return compiler


def _own_folder(folder: Path) -> Path:
    """`folder`, made if need be; what others may write to must not be loaded as code."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnavailableError(f"no packet engine: {folder} may be written to by others")
    return folder


def _digest(compiler: str, flags: Sequence[str], folder: Path) -> str:
    content = hashlib.sha256("\0".join([str(Path(compiler).resolve()), *flags]).encode())
    for path in sorted([*sources(folder), *folder.glob("*.h")]):
        content.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return content.hexdigest()[:24]


def _compile(compiler: str, arguments: Sequence[str], library: Path) -> None:
    """Into a file of another name first: another process may be loading, or compiling the same."""
    handle, name = tempfile.mkstemp(suffix=".so", dir=library.parent)
    os.close(handle)
    try:
        command = [compiler, *arguments, "-o", name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S, check=False)
        if done.returncode:
            raise UnavailableError(f"no packet engine: the C compiler refuses it: {done.stderr[:_SAID_CHARACTERS]}")
        Path(name).replace(library)
    finally:
        Path(name).unlink(missing_ok=True)
