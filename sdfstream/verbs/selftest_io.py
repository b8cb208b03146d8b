"""The field test between two hosts: one answers, the other connects, writes into its memory and moves its queue pair.

They find each other by TCP, with one JSON line each; the answering end is passive from then on. It gives the other end
64 KiB of its own memory to write to, for as long as the connection lasts, so run it among machines that you trust.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from sdfstream.errors import UnavailableError
from sdfstream.probes.rdma.devices_io import firmware
from sdfstream.qpcontrol.rules import RefusedError
from sdfstream.verbs.description import alternates
from sdfstream.verbs.endpoint_io import ConnectionSettings, PeerAddress, RcEndpoint
from sdfstream.verbs.json_lines_io import as_unavailable, receive, send, text, whole
from sdfstream.verbs.library_io import Verbs, the_device
from sdfstream.verbs.live_qp_io import LiveQp
from sdfstream.verbs.selftest import PortTrial, selftest_report

PORT: Final = 18515
_OCTETS: Final = 1 << 16
_OUTSTANDING: Final = 16
_FIRST_PORT: Final = 0xC100
_TIMEOUT_S: Final = 30.0


def answer(listen: str, port: int, device: str, gid_index: int, ready: Callable[[str], None]) -> str:
    """Serve one test; the peer's address. UnavailableError: no device, no connection, or not our protocol."""
    verbs, device = the_device(device)
    try:
        listener = socket.create_server((listen, port))
    except OSError as error:
        raise UnavailableError(f"{listen}:{port}: {error.strerror}") from error
    with listener, _endpoint(verbs, device, gid_index) as end:
        ready(f"{device} answers at {listen}:{listener.getsockname()[1]}")
        connection, peer = listener.accept()
        with connection, as_unavailable():
            connection.settimeout(_TIMEOUT_S)
            theirs = receive(connection)
            end.connect(_peer(theirs), ConnectionSettings(_FIRST_PORT))
            memory = {"address": end.memory.buf, "rkey": end.memory.rkey}
            send(connection, {**_about(end), **memory})
            connection.settimeout(None)
            connection.recv(1)  # the other end has done when it closes
        return str(peer[0])


def selftest(peer: str, port: int, device: str, gid_index: int, ports: int, samples: int) -> dict[str, Any]:
    """Test against a host that answers; the report. UnavailableError as `answer`."""
    verbs, device = the_device(device)
    with (
        _endpoint(verbs, device, gid_index) as end,
        as_unavailable(),
        socket.create_connection((peer, port), _TIMEOUT_S) as connection,
    ):
        own = _about(end)
        send(connection, own)
        far = receive(connection)
        remote = (whole(far, "address"), whole(far, "rkey"))
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
    return PeerAddress(whole(said, "qpn"), text(said, "gid"))
