"""The owner of a lab that was started from the command line: a small process that holds it and serves requests.

It detaches from its starter, becomes root of a user namespace where it is not root already, builds the fabric, and
then answers one request per connection on a private socket. When it ends, for whatever reason, the lab is gone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import struct
from pathlib import Path
from typing import Any, NoReturn

from sdfstream.errors import LabUnavailableError, SdfError
from sdfstream.lab import control
from sdfstream.lab.fabric_io import Fabric
from sdfstream.lab.kernel.netns_io import enter_user_namespace
from sdfstream.lab.runtime_io import LabFolder
from sdfstream.lab.spec import FabricSpec
from sdfstream.probes.net.netns_io import CLONE_NEWNET, unshare

_REQUEST_BYTES = 65_536
_CLIENT_TIMEOUT_S = 5.0
_READY = b"ready"


def start(spec: FabricSpec, truth_dir: Path | None) -> int:
    """Start an owner and wait until its lab is up; the owner's process id.

    Raises
    ------
    LabUnavailableError
        A lab of that name is running, or this machine cannot have one; the message says why.
    """
    folder = LabFolder(spec.name)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _detach_and_own(folder, spec, truth_dir, writing)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        output = pipe.read()
    if not output.startswith(_READY):
        raise LabUnavailableError(output.decode() or f"the owner died at its start; see {folder.log}")
    return int(output[len(_READY) :])


def _detach_and_own(folder: LabFolder, spec: FabricSpec, truth_dir: Path | None, writing: int) -> NoReturn:
    os.setsid()
    if os.fork():
        os._exit(0)
    lock = None
    try:
        lock = folder.take()
        if lock is None:
            raise LabUnavailableError(f"a lab named {spec.name!r} is running; take it down first, or choose a --name")
        _leave_terminal(folder.log, {writing, lock})
        _own(folder, spec, truth_dir, writing)
    except SdfError as error:
        _report(writing, str(error).encode())
    except Exception as error:
        _report(writing, f"the lab's owner failed: {error!r}".encode())
    finally:
        if lock is not None:
            folder.remove()
        os._exit(0)


def _report(writing: int, text: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(writing, text)


def _leave_terminal(log: Path, keep: set[int]) -> None:
    os.chdir("/")
    null = os.open("/dev/null", os.O_RDWR)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, fd in ((0, null), (1, out), (2, out)):
        os.dup2(fd, target)
    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if fd > 2 and fd not in keep:
            with contextlib.suppress(OSError):
                os.close(fd)


def _own(folder: LabFolder, spec: FabricSpec, truth_dir: Path | None, writing: int) -> None:
    signal.signal(signal.SIGTERM, _end)
    _become_able()
    with Fabric.up(spec, truth_dir) as fabric, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(folder.socket))
        folder.socket.chmod(0o600)
        server.listen(8)
        os.write(writing, _READY + str(os.getpid()).encode())
        os.close(writing)
        while _serve(server, fabric):
            pass


def _end(number: int, frame: object) -> NoReturn:
    raise SystemExit(number)


def _become_able() -> None:
    """Get the right to make network namespaces: as root by right, else as root of a user namespace of our own.

    It is tried on ourselves: the owner needs no network of its own. A thread would do no harm either, but might
    still be ending when the user namespace wants us single-threaded.
    """
    try:
        unshare(CLONE_NEWNET)
    except OSError as error:
        if error.errno != errno.EPERM:
            raise LabUnavailableError(f"no network namespace: {error.strerror}") from error
        enter_user_namespace()


def _serve(server: socket.socket, fabric: Fabric) -> bool:
    """One connection; False when it was the order to go down."""
    client, _ = server.accept()
    with client:
        client.settimeout(_CLIENT_TIMEOUT_S)
        try:
            if _uid_of(client) not in (0, os.getuid()):
                return True
            request = _read(client)
            down = isinstance(request, dict) and request.get("do") == "down"
            reply = {"down": True} if down else control.answer(fabric, request) | {"pid": os.getpid()}
            if down:
                fabric.down()
            client.sendall(json.dumps(reply).encode() + b"\n")
        except (OSError, ValueError):
            return True
        return not down


def _uid_of(client: socket.socket) -> int:
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("=iII", credentials)[1])


def _read(client: socket.socket) -> Any:
    data = b""
    while not data.endswith(b"\n") and len(data) < _REQUEST_BYTES:
        piece = client.recv(_REQUEST_BYTES)
        if not piece:
            break
        data += piece
    return json.loads(data)
