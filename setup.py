"""Builds the package: `pyproject.toml` says what is in it, this compiles the engines in C into it.

Their libraries (`sdfstream/probes/engine`, `sdfstream/emulator/engine`) have a plain C interface and no `Python.h`, so
one wheel serves every Python of a machine: ``py3-none-linux_x86_64``. Without a C compiler the wheel is pure, the agent
runs on its numpy engines and an emulated job on its data plane in Python. An editable install holds no library: the
checkout compiles each when it is first used, and anew when its sources change.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent))  # a build front end does not put it there

from sdfstream.errors import UnavailableError
from sdfstream.probes.engine import build_io

ENGINES = (Path("sdfstream", "probes", "engine"), Path("sdfstream", "emulator", "engine"))
"""Folders of C files; each becomes a library of its own."""


class Package(Distribution):
    """What is built; with the library it belongs where files of one machine do (``platlib``)."""

    holds_library = False

    def has_ext_modules(self) -> bool:
        """Whether it holds machine code."""
        return self.holds_library


class BuildPackage(build_py):
    """Copies Python files and data, then compiles the engines beside them."""

    def run(self) -> None:
        """Build; what no compiler can be found for is left out, with a line that says so."""
        super().run()
        for library in self.libraries():
            library.unlink(missing_ok=True)  # of an earlier build, perhaps from other sources
        if self.editable_mode or sys.platform != "linux":
            return
        try:
            for library, folder in zip(self.libraries(), ENGINES, strict=True):
                library.parent.mkdir(parents=True, exist_ok=True)
                build_io.compile_library(library, Path(__file__).parent.absolute() / folder)
        except (OSError, UnavailableError) as error:
            self.warn(f"{error}; the wheel is pure Python")

    def libraries(self) -> list[Path]:
        """Where the libraries lie once they are compiled."""
        return [Path(self.build_lib, folder, build_io.INSTALLED.name) for folder in ENGINES]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """The files of the build, the libraries among them."""
        made = [str(library) for library in self.libraries() if library.exists()]
        return [*super().get_outputs(include_bytecode), *made]


class BuildWheel(bdist_wheel):
    """Tags the wheel by its content: of this machine where it holds a library, else of any."""

    def run(self) -> None:
        """Compile before the kind of the wheel is decided."""
        self.run_command("build")
        self.distribution.holds_library = any(
            library.exists() for library in self.get_finalized_command("build_py").libraries()
        )
        self.root_is_pure = not self.distribution.holds_library
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """(Python, ABI, machine): the library asks nothing of either of the first two."""
        python, abi, machine = super().get_tag()
        return (python, abi, machine) if self.root_is_pure else ("py3", "none", machine)


if __name__ == "__main__":
    setup(distclass=Package, cmdclass={"build_py": BuildPackage, "bdist_wheel": BuildWheel})
