"""Each fuzz target for a moment, with the address and undefined-behaviour sanitizers of the machine's own compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fuzz.engine import targets

INPUTS = {"answer": 20_000, "control_messages": 20_000, "reflect": 3_000}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("engine")
    return folder, targets.objects("cc", targets.ALONE, folder)


@pytest.mark.parametrize("name", targets.names())
def test_target(name: str, engine: tuple[Path, list[str]]) -> None:
    folder, objects = engine
    program = targets.linked("cc", targets.ALONE, name, objects, folder)
    # the sanitizer must come before whatever the test run itself was given
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    done = subprocess.run(
        [str(program), "1", str(INPUTS.get(name, 2_000))],
        capture_output=True, text=True, check=False, env=environment, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4_000:]
    assert done.stdout == "done\n"
