"""A lab that another process owns: requests to its control socket, agents' configuration, and entering it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from sdfstream.errors import ConfigError, LabUnavailableError
from sdfstream.lab import mesh, topology
from sdfstream.lab.plan import FabricPlan
from sdfstream.lab.runtime_io import LabFolder, names
from sdfstream.lab.spec import FabricSpec
from sdfstream.probes.config import AgentConfig
from sdfstream.probes.net.netns_io import CLONE_NEWUSER, setns

_ANSWER_TIMEOUT_S = 30.0
_DOWN_TIMEOUT_S = 10.0


class RunningLab:
    """A lab started by ``sdfstream lab up``.

    Raises
    ------
    LabUnavailableError
        No lab of that name is running (what a dead one left is removed).
    """

    def __init__(self, name: str = "lab") -> None:
        self._folder = LabFolder(name)
        owner = self._folder.owner()
        if owner is None:
            others = ", ".join(n for n in names() if LabFolder(n).owner())
            hint = f"; running: {others}" if others else "; start one with: sdfstream lab up"
            raise LabUnavailableError(f"no lab named {name!r} is running{hint}")
        self.pid = owner

    def ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        """Have the owner do something (`control.ACTIONS`) and return its answer.

        Raises
        ------
        ConfigError
            The owner refused, with the reason.
        LabUnavailableError
            The owner does not answer.
        """
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(_ANSWER_TIMEOUT_S)
                client.connect(str(self._folder.socket))
                client.sendall(json.dumps({"do": action, **arguments}).encode() + b"\n")
                with client.makefile("rb") as stream:
                    answer: dict[str, Any] = json.loads(stream.readline())
        except (OSError, ValueError) as error:
            raise LabUnavailableError(f"the lab's owner (process {self.pid}) does not answer: {error}") from error
        if "error" in answer:
            raise ConfigError(str(answer["error"]))
        return answer

    def down(self) -> None:
        """Take the lab down and wait until its owner is gone; one that does not obey is killed."""
        with contextlib.suppress(LabUnavailableError):
            self.ask("down")
        end = time.monotonic() + _DOWN_TIMEOUT_S
        while self._folder.owner() is not None:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                end += _DOWN_TIMEOUT_S
            time.sleep(0.005)

    def agent_config(self, spec: mesh.MeshSpec | None = None, hosts: Sequence[str] | None = None) -> AgentConfig:
        """As `Fabric.agent_config`, from outside the owner."""
        status = self.ask("status")
        plan, paths = FabricPlan(_spec(status["spec"])), status["netns"]
        chosen = hosts or plan.spec.host_names
        return mesh.agent_config(plan, spec or mesh.MeshSpec(), lambda node: str(paths[node]), chosen)

    def topology(self) -> dict[str, Any]:
        """As `Fabric.topology`, from outside the owner."""
        return topology.declared(FabricPlan(_spec(self.ask("status")["spec"])))

    def inside_command(self, command: Sequence[str]) -> list[str]:
        """`command`, run in the lab's user namespace where that is not ours."""
        try:
            same = Path(f"/proc/{self.pid}/ns/user").readlink() == Path("/proc/self/ns/user").readlink()
        except OSError:
            same = True
        if same:
            return list(command)
        return [sys.executable, "-m", "sdfstream", "lab", "exec", "--name", self._folder.name, "-", "--", *command]

    def enter(self, node: str | None, command: Sequence[str]) -> NoReturn:
        """Become `command`, run in a node's network namespace (None: only in the lab's user namespace, if any)."""
        path = self.ask("status")["netns"].get(node) if node else None
        if node and path is None:
            raise ConfigError(f"no such node in the lab: {node!r}")
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path else None
        user = Path(f"/proc/{self.pid}/ns/user")
        try:
            if user.readlink() != Path("/proc/self/ns/user").readlink():
                setns(os.open(user, os.O_RDONLY | os.O_CLOEXEC), CLONE_NEWUSER)
            if fd is not None:
                setns(fd)
            os.execvp(command[0], list(command))
        except OSError as error:
            raise LabUnavailableError(f"cannot run {command[0]!r} in the lab: {error.strerror}") from error


def _spec(data: dict[str, Any]) -> FabricSpec:
    return FabricSpec(**{**data, "miscabled_hosts": tuple(data["miscabled_hosts"])})
