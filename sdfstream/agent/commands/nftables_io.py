"""libnftables by ctypes, in a network namespace: commands as text, answers as JSON.

A context holds its netlink socket for life, and a socket belongs to the namespace it was made in. So the context is
made in a thread that has entered the namespace, and is used from any. A call takes about 0.1 ms.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from typing import Any, Final

from sdfstream.errors import UnavailableError

_CLONE_NEWNET: Final = 0x40000000
_JSON: Final = 1 << 4
_FD_SETSIZE: Final = 1024


class Nftables:
    """One context.

    Parameters
    ----------
    netns : str or None
        Path of the network namespace; None: the present one.

    Raises
    ------
    UnavailableError
        libnftables is not installed, or the namespace cannot be entered.
    """

    def __init__(self, netns: str | None) -> None:
        self._lib = _library()
        made: list[int] = []
        failure: list[OSError] = []

        def make() -> None:
            try:
                _check_descriptors()
                if netns is not None:
                    _enter(netns)
                made.append(self._lib.nft_ctx_new(0))
            except OSError as error:
                failure.append(error)

        thread = threading.Thread(target=make, name="nft")
        thread.start()
        thread.join()
        if failure or not made or not made[0]:
            raise UnavailableError(
                f"nf_tables in {netns or 'this namespace'}: {failure[0] if failure else 'no context'}"
            )
        self._context = ctypes.c_void_p(made[0])
        self._lib.nft_ctx_buffer_output(self._context)
        self._lib.nft_ctx_buffer_error(self._context)
        self._lib.nft_ctx_output_set_flags(self._context, _JSON)

    def run(self, commands: str) -> tuple[str, str]:
        """Have `commands` done, all or none; (what was listed, why it failed: empty when it did not)."""
        code = self._lib.nft_run_cmd_from_buffer(self._context, commands.encode())
        said = self._lib.nft_ctx_get_output_buffer(self._context) or b""
        error = self._lib.nft_ctx_get_error_buffer(self._context) or b""
        first = error.decode(errors="replace").strip().splitlines()
        return said.decode(errors="replace"), (first[0] if first else "it failed without a word") if code else ""

    def close(self) -> None:
        """Give the context back."""
        if self._context:
            self._lib.nft_ctx_free(self._context)
            self._context = ctypes.c_void_p()


def _check_descriptors() -> None:
    """OSError when the next descriptor is beyond what select(2) takes: libnftables waits by it, and would for ever."""
    number = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    os.close(number)
    if number >= _FD_SETSIZE:
        raise OSError(errno.EMFILE, f"{number} open files; libnftables can use the first {_FD_SETSIZE}")


def _library() -> Any:
    try:
        lib = ctypes.CDLL("libnftables.so.1")  # find_library would run programs, which takes tens of milliseconds
        lib.nft_ctx_new.restype = ctypes.c_void_p
        lib.nft_ctx_new.argtypes = [ctypes.c_uint32]
        for one in ("nft_ctx_buffer_output", "nft_ctx_buffer_error", "nft_ctx_free"):
            getattr(lib, one).argtypes = [ctypes.c_void_p]
        for one in ("nft_ctx_get_output_buffer", "nft_ctx_get_error_buffer"):
            getattr(lib, one).argtypes = [ctypes.c_void_p]
            getattr(lib, one).restype = ctypes.c_char_p
        lib.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        lib.nft_ctx_output_set_flags.argtypes = [ctypes.c_void_p, ctypes.c_uint]
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"kernel flows cannot be steered: {error}") from error
    return lib


def _enter(netns: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(fd, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), netns)
    finally:
        os.close(fd)
