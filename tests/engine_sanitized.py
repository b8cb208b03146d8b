"""The packet engine's tests once more, with its library under sanitizers.

``python -m tests.engine_sanitized [pytest arguments]`` compiles the C files with AddressSanitizer and
UndefinedBehaviorSanitizer and runs the engine's tests (or what the arguments say) on that library. As a pytest plugin
(``-p tests.engine_sanitized``) this module only puts the library named in the environment in place of the usual one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sdfstream.probes.engine import build_io, library_io

_NAMED = "SDF_TEST_ENGINE_LIBRARY"
FLAGS = (
    *(flag for flag in build_io.FLAGS if flag != "-O2"),
    "-O1",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)
TESTS = ["tests/unit/probes/engine", *(str(p) for p in sorted(Path("tests/property").glob("test_engine_*.py")))]


def pytest_configure() -> None:
    named = os.environ[_NAMED]
    library_io.available = lambda: Path(named)  # type: ignore[attr-defined]
    library_io.library.cache_clear()


def runtime(name: str) -> str:
    """The compiler's own copy of a sanitizer's runtime library."""
    done = subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main(arguments: list[str]) -> int:
    library = build_io.compiled(FLAGS)
    environment = os.environ | {
        _NAMED: str(library),
        # the interpreter is not instrumented: the runtime must be there before it, and what it keeps is no leak
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libubsan.so')}",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    # -s: what a sanitizer says before it ends the process must not be captured
    command = [sys.executable, "-m", "pytest", "-qxs", "-p", "tests.engine_sanitized", *(arguments or TESTS)]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
