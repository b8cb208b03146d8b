"""A group of tests in one boot: pytest runs in the guest with this machine's virtual environment."""

from __future__ import annotations

import compileall
import contextlib
import sys
import sysconfig
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sdfstream.errors import UnavailableError
from sdfstream.probes.engine.build_io import available
from tests.rdma.guest import boot
from tests.rdma.guest.packages import GuestUnavailableError

ROOT = Path(__file__).resolve().parents[3]
INSIDE = Path("tests/rdma/inside")
LOOP = "test_loop.py"
"""Of `INSIDE`, needs a pipeline outside of the guest, and has a boot of its own."""
IN_GUEST = "SDFSTREAM_GUEST"
_DEBIAN = Path("/usr/lib/python3/dist-packages")


@dataclass(frozen=True)
class GroupResult:
    """What pytest said in the guest."""

    result: boot.GuestResult
    outcomes: dict[str, str]
    """Test to ``passed``, ``failed`` or ``skipped``."""


def run_group(
    files: Sequence[str],
    out: Path,
    limit_s: float = 600,
    *,
    channels: Mapping[str, Path] | None = None,
    processors: int = 1,
    more: Mapping[str, str] | None = None,
) -> GroupResult:
    """Run `files` of `INSIDE` in a guest, with `more` in their environment; the rest as `boot.run`."""
    if why := python_unfit():
        raise GuestUnavailableError(why)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-s",
        "--rootdir",
        str(ROOT),
        "-c",
        str(ROOT / INSIDE / "pytest.ini"),
    ]
    command += [
        "--confcutdir",
        str(ROOT / INSIDE),
        "--junitxml",
        "/out/junit.xml",
        *(str(ROOT / INSIDE / file) for file in files),
    ]
    _compile()
    environment = {
        IN_GUEST: "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # each plug-in takes a second to import in emulation
        **(more or {}),
    }
    machine = {"channels": channels, "processors": processors, "limit_s": limit_s}
    result = boot.run(command, out, folder=ROOT, environment=environment, **machine)  # type: ignore[arg-type]
    junit = out / "junit.xml"
    return GroupResult(result, outcomes(junit.read_text()) if junit.exists() else {})


def _compile() -> None:
    """Bytecode of what the guest may import, and the packet engine, unless they are there: it emulates for minutes."""
    for folder in ("sdfstream", "tests"):
        compileall.compile_dir(ROOT / folder, quiet=2)
    with contextlib.suppress(UnavailableError):  # then the numpy engines serve
        available()


def outcomes(junit: str) -> dict[str, str]:
    """Each test's outcome of a JUnit report."""
    found = {}
    for case in ET.fromstring(junit).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        found[f"{case.get('classname', '')}.{case.get('name')}".removeprefix(".")] = outcome
    return found


def python_unfit() -> str:
    """Why this interpreter cannot load Debian's pyverbs; empty: it can. Its modules are built for one CPython."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    if not list(_DEBIAN.glob("pyverbs/device.*.so")) or (_DEBIAN / "pyverbs" / f"device{suffix}").exists():
        return ""  # that the package is missing is said by name elsewhere
    return f"python3-pyverbs is built for another Python than {sys.executable} ({suffix})"
