"""The kernel names the process at a socket's other end; a process that ended is known to have."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from sdfstream.bus.link.peer_io import process_at, runs


def test_this_process_is_seen_as_itself_and_runs() -> None:
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        process = process_at(here)
    assert (process.pid, process.uid) == (os.getpid(), os.getuid())
    assert runs(process)
    assert not runs(process._replace(began="another time"))


def test_a_process_that_ended_does_not_run_also_while_nobody_has_waited_for_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        here, there = socket.socketpair(socket.AF_UNIX)
        with here, there:
            mine = process_at(here)
        with open(f"/proc/{child.pid}/stat") as said:  # noqa: PTH123
            began = said.read().rpartition(")")[2].split()[19]
        process = mine._replace(pid=child.pid, began=began)
        assert runs(process)
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not runs(process)
    assert not runs(process)
