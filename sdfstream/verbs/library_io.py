"""pyverbs, wherever this machine has it: the only way to it, and the only place where its errors become numbers.

It comes with the distribution (Debian: ``python3-pyverbs``), so a virtual environment does not see it; a Python of the
same version can load it from there all the same.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from sdfstream.errors import UnavailableError

_DISTRIBUTION: Final = (Path("/usr/lib/python3/dist-packages"), Path("/usr/lib64/python3/site-packages"))


class Verbs:
    """The names of pyverbs that are used, from whichever of its modules this version keeps them in.

    Raises
    ------
    UnavailableError
        There is no pyverbs, or it is built for another Python.
    """

    def __init__(self) -> None:
        _find()
        try:
            addr, cq, device, mr, pd, qp, wr = (
                importlib.import_module(f"pyverbs.{name}") for name in ("addr", "cq", "device", "mr", "pd", "qp", "wr")
            )
            try:  # before version 50
                self.enums: Any = importlib.import_module("pyverbs.enums")
            except ModuleNotFoundError:
                self.enums = importlib.import_module("pyverbs.libibverbs_enums")
            error = importlib.import_module("pyverbs.pyverbs_error")
        except ImportError as failure:
            raise UnavailableError(f"pyverbs cannot be loaded: {failure}") from failure
        self.addr, self.cq, self.device, self.mr, self.pd, self.qp, self.wr = addr, cq, device, mr, pd, qp, wr
        self.error: type[Exception] = error.PyverbsError

    def move_port(self, qp: Any, port: int) -> int:
        """Give a queue pair another source port by the call that only mlx5 has; errno, or 0."""
        mlx5 = importlib.import_module("pyverbs.providers.mlx5.mlx5dv")
        return self.attempt(lambda: mlx5.Mlx5QP.modify_udp_sport(qp, udp_sport=port))

    def attempt(self, act: Callable[[], object]) -> int:
        """Errno of what `act` raised; 0: nothing."""
        try:
            act()
        except self.error as failure:
            return error_number(failure)
        except OSError as failure:
            return failure.errno or errno.EIO
        return 0


def error_number(failure: Exception) -> int:
    """Errno of an error of pyverbs; EIO where it names none."""
    code = getattr(failure, "error_code", None)
    return code if isinstance(code, int) and code > 0 else errno.EIO


def device_names(verbs: Verbs) -> list[str]:
    """The RDMA devices of this machine; none is an empty list, whatever pyverbs raises then."""
    try:
        return [device.name.decode() for device in verbs.device.get_device_list()]
    except verbs.error:
        return []


def the_device(wanted: str) -> tuple[Verbs, str]:
    """pyverbs, and the device with this name, or the first. UnavailableError: no pyverbs, or no such device."""
    verbs = Verbs()
    names = device_names(verbs)
    if wanted and wanted not in names:
        raise UnavailableError(f"no RDMA device {wanted!r}; there are: {', '.join(names) or 'none'}")
    if not names:
        raise UnavailableError("no RDMA device; sdfstream rdma show says why")
    return verbs, wanted or names[0]


def _find() -> None:
    """Make ``import pyverbs`` possible where only the distribution's Python has it."""
    if "pyverbs" in sys.modules or importlib.util.find_spec("pyverbs") is not None:
        return
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for packages in _DISTRIBUTION:
        home = packages / "pyverbs"
        if (home / f"device{suffix}").exists():
            sys.modules["pyverbs"] = _package(home)
            return
        if home.is_dir():
            raise UnavailableError(f"{home} is built for another Python than this one, {sys.version.split()[0]}")
    raise UnavailableError("pyverbs is not installed (Debian: python3-pyverbs)")


def _package(home: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "pyverbs", home / "__init__.py", submodule_search_locations=[str(home)]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return package
