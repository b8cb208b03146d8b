"""Cross traffic that runs: packet sockets in the lab's hosts, sinks, and the child process that sends."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from sdfstream.errors import LabUnavailableError
from sdfstream.lab import traffic
from sdfstream.lab.kernel.namespaces_io import Namespaces
from sdfstream.lab.plan import FabricPlan

_SCRIPT = Path(__file__).with_name("sender_io.py")
_CATCH_UP_S = 0.02
_GENTLE_CATCH_UP_S = 0.002
"""A load below the link's rate must not fill its queue by catching up."""


class Traffic:
    """Cross traffic over some directions; it flows when construction returns, until `stop` or its time is up.

    Raises
    ------
    LabUnavailableError
        A socket cannot be had, or the sender did not start.
    """

    def __init__(
        self, plan: FabricPlan, namespaces: Namespaces, loads: list[traffic.Load], seconds: float | None
    ) -> None:
        with contextlib.ExitStack() as undo:
            flows = [flow for load in loads for flow in self._open_flows(undo, plan, namespaces, load)]
            for node in {plan.nic(dst).a.node for load in loads for _, dst, _ in load.flows}:
                undo.enter_context(namespaces.run(node, lambda: _sink(plan.spec.ip_version)))
            gentle = all(load.load < 1.0 for load in loads)
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Away from the terminal: an interrupt there is its owner's business.
                start_new_session=True,
                pass_fds=[flow["fd"] for flow in flows],
            )
            undo.callback(self._end)
            catch_up_s = _GENTLE_CATCH_UP_S if gentle else _CATCH_UP_S
            self._send_config({"seconds": seconds, "catch_up_s": catch_up_s, "flows": flows})
            self._wait_for_start()
            self._open = undo.pop_all()

    def stop(self) -> dict[str, Any]:
        """Stop sending (if it has not yet); packets and seconds really sent."""
        assert self._child.stdin and self._child.stdout
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()
        output = self._child.stdout.read()
        self._open.close()
        return json.loads(output) if output else {}

    def _send_config(self, config: dict[str, Any]) -> None:
        assert self._child.stdin
        self._child.stdin.write(json.dumps(config).encode() + b"\n")
        self._child.stdin.flush()

    def _wait_for_start(self) -> None:
        assert self._child.stdout
        if self._child.stdout.readline() != b"started\n":
            raise LabUnavailableError("the process that sends cross traffic did not start")

    def _end(self) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._child.wait(2.0)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _open_flows(
        self, undo: contextlib.ExitStack, plan: FabricPlan, namespaces: Namespaces, load: traffic.Load
    ) -> list[dict[str, Any]]:
        flows = []
        for flow in load.flows:
            cable = plan.nic(flow[0])
            sender = undo.enter_context(namespaces.run(cable.a.node, _packet_socket))
            protocol = 0x0800 if plan.spec.ip_version == 4 else 0x86DD
            head = struct.pack("=H", socket.AF_PACKET) + struct.pack("!H", protocol)
            address = head + struct.pack("=iHBB", cable.a.ifindex, 0, 0, 6) + cable.b.mac + bytes(2)
            flows.append(
                {
                    "fd": sender.fileno(),
                    "address": address.hex(),
                    "frame": traffic.frame(plan, flow, load.dscp).hex(),
                    "packets_per_s": load.packets_per_s / len(load.flows),
                }
            )
        return flows


def _packet_socket() -> socket.socket:
    """Sends whole IP packets by an interface to a link-layer address, past the host's own routes; receives none."""
    return socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)


def _sink(ip_version: int) -> socket.socket:
    """Takes cross traffic without reading it: no ICMP errors, and the kernel drops what does not fit."""
    family = socket.AF_INET if ip_version == 4 else socket.AF_INET6
    sink = socket.socket(family, socket.SOCK_DGRAM)
    try:
        # Several loads may end at one host.
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        sink.bind(("", traffic.DISCARD_PORT))
    except OSError as error:
        sink.close()
        raise LabUnavailableError(f"UDP port {traffic.DISCARD_PORT} of a lab host: {error.strerror}") from error
    return sink
