"""The field test between two hosts: one answers, the other connects, writes into its memory and moves its queue pair.

They find each other by TCP, with one JSON line each; the answering end is passive from then on. It gives the other end
64 KiB of its own memory to write to, for as long as the connection lasts, so run it among machines that you trust.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.errors import FormatError, UnavailableError
from sdfstream.probes.rdma.devices_io import firmware
from sdfstream.qpcontrol.rules import RefusedError
from sdfstream.verbs.description import alternates
from sdfstream.verbs.endpoint_io import ConnectionSettings, PeerAddress, RcEndpoint
from sdfstream.verbs.library_io import Verbs, device_names
from sdfstream.verbs.live_qp_io import LiveQp
from sdfstream.verbs.selftest import PortTrial, selftest_report

PORT: Final = 18515
_OCTETS: Final = 1 << 16
_OUTSTANDING: Final = 16
_FIRST_PORT: Final = 0xC100
_TIMEOUT_S: Final = 30.0
_MOST_LINE: Final = 1 << 16


def answer(listen: str, port: int, device: str, gid_index: int, ready: Callable[[str], None]) -> str:
    """Serve one test; the peer's address. UnavailableError: no device, no connection, or not our protocol."""
    verbs, device = _device(device)
    try:
        listener = socket.create_server((listen, port))
    except OSError as error:
        raise UnavailableError(f"{listen}:{port}: {error.strerror}") from error
    with listener, _endpoint(verbs, device, gid_index) as end:
        ready(f"{device} answers at {listen}:{listener.getsockname()[1]}")
        connection, peer = listener.accept()
        with connection, _as_unavailable():
            connection.settimeout(_TIMEOUT_S)
            theirs = _receive(connection)
            end.connect(_peer(theirs), ConnectionSettings(_FIRST_PORT))
            memory = {"address": end.memory.buf, "rkey": end.memory.rkey}
            _send(connection, {**_about(end), **memory})
            connection.settimeout(None)
            connection.recv(1)  # the other end has done when it closes
        return str(peer[0])


def selftest(peer: str, port: int, device: str, gid_index: int, ports: int, samples: int) -> dict[str, Any]:
    """Test against a host that answers; the report. UnavailableError as `answer`."""
    verbs, device = _device(device)
    with (
        _endpoint(verbs, device, gid_index) as end,
        _as_unavailable(),
        socket.create_connection((peer, port), _TIMEOUT_S) as connection,
    ):
        own = _about(end)
        _send(connection, own)
        far = _receive(connection)
        remote = (_whole(far, "address"), _whole(far, "rkey"))
        end.connect(_peer(far), ConnectionSettings(_FIRST_PORT))
        live = LiveQp(verbs, end.qp, end.context)
        trials = [_trial(end, live, to, remote, samples) for to in (*alternates(_FIRST_PORT, ports), _FIRST_PORT)]
    shown = {key: far.get(key) for key in own}
    return selftest_report(own, shown, live.capabilities, trials)


def _trial(end: RcEndpoint, live: LiveQp, to: int, remote: tuple[int, int], samples: int) -> PortTrial:
    """Move with requests outstanding, wait for them, then measure single writes on the new port."""
    for number in range(_OUTSTANDING):
        end.write(number, 4096, *remote)
    began_ns, why = time.monotonic_ns(), ""
    try:
        live.steer(to, began_ns)
    except RefusedError as refusal:
        why = str(refusal)
    move_ns = time.monotonic_ns() - began_ns
    statuses = _statuses(end, _OUTSTANDING)
    taken: list[int] = []
    for number in range(samples if all(s == 0 for s in statuses) else 0):
        began_ns = time.monotonic_ns()
        end.write(number, 8, *remote)
        if _statuses(end, 1) != [0]:
            break
        taken.append(time.monotonic_ns() - began_ns)
    return PortTrial(to, why, move_ns, _OUTSTANDING, statuses.count(0), sum(s != 0 for s in statuses), tuple(taken))


def _statuses(end: RcEndpoint, count: int) -> list[int]:
    """Of the next completions; fewer where they do not come in time."""
    found: list[int] = []
    ends_s = time.monotonic() + _TIMEOUT_S
    while len(found) < count and time.monotonic() < ends_s:
        found += [completion.status for completion in end.completions()]
    return found


@contextlib.contextmanager
def _endpoint(verbs: Verbs, device: str, gid_index: int) -> Iterator[RcEndpoint]:
    end = RcEndpoint(verbs, device, _OCTETS, gid_index=gid_index)
    try:
        yield end
    finally:
        end.close()


def _device(wanted: str) -> tuple[Verbs, str]:
    verbs = Verbs()
    names = device_names(verbs)
    if wanted and wanted not in names:
        raise UnavailableError(f"no RDMA device {wanted!r}; there are: {', '.join(names) or 'none'}")
    if not names:
        raise UnavailableError("no RDMA device; sdfstream rdma show says why")
    return verbs, wanted or names[0]


def _about(end: RcEndpoint) -> dict[str, Any]:
    """What the other end, and the report, may know."""
    facts = end.context.query_device()
    return {
        "qpn": end.address.number,
        "gid": end.address.gid,
        "device": end.device,
        "vendor_id": int(facts.vendor_id),
        "firmware": firmware(end.device),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
    }


def _peer(said: dict[str, Any]) -> PeerAddress:
    gid = said.get("gid")
    if not isinstance(gid, str) or len(gid) > 64:
        raise FormatError("selftest", f"gid is {gid!r}")
    return PeerAddress(_whole(said, "qpn"), gid)


def _whole(said: dict[str, Any], key: str) -> int:
    value = said.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
        raise FormatError("selftest", f"{key} is {value!r}")
    return value


def _send(connection: socket.socket, what: dict[str, Any]) -> None:
    connection.sendall(json.dumps(what).encode() + b"\n")


def _receive(connection: socket.socket) -> dict[str, Any]:
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = connection.recv(4096)
        if not piece or len(line) > _MOST_LINE:
            raise FormatError("selftest", "the other end closed, or sent something endless")
        line += piece
    said = strict_json.loads(bytes(line), most_bytes=2 * _MOST_LINE)
    if not isinstance(said, dict):
        raise FormatError("selftest", "not a JSON object")
    return said


@contextlib.contextmanager
def _as_unavailable() -> Iterator[None]:
    """Network and protocol errors as the verb's own."""
    try:
        yield
    except (OSError, FormatError) as error:
        raise UnavailableError(f"the other end: {error}") from error
