"""The engine's thread and another one at the same engine, under ThreadSanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sdfstream.probes.engine import build_io

FLAGS = ("-std=c11", "-g", "-O0", "-fsanitize=thread", "-pthread")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_commands_and_rings_between_two_threads(tmp_path: Path) -> None:
    program = tmp_path / "threads"
    source = Path(__file__).with_name("threads.c")
    sources = [str(source), *map(str, build_io.sources())]
    subprocess.run(["cc", *FLAGS, f"-I{build_io.FOLDER}", "-o", str(program), *sources, "-lm"], check=True)
    # without address randomisation: the sanitizer's own memory has a fixed address
    randomised = [] if shutil.which("setarch") is None else ["setarch", "-R"]
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    done = subprocess.run(
        [*randomised, str(program)], capture_output=True, text=True, check=False, env=environment, timeout=120
    )
    if "unexpected memory mapping" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip("this kernel leaves no room for ThreadSanitizer")
    assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
