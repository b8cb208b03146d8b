"""``with sdfstream.steerable(qp, context, …)``: a program's queue pair is known to its host's agent, and can be moved.

Queue pairs of one job and host share a control socket and a file in the drop directory, whichever call made them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from sdfstream.agent.trusted_keys_io import trusted
from sdfstream.errors import UnavailableError
from sdfstream.records.fabric import host_of
from sdfstream.verbs.description import Registration, alternates
from sdfstream.verbs.library_io import Verbs
from sdfstream.verbs.live_qp_io import LiveQp
from sdfstream.verbs.owner_io import QpOwner

JOBS_DIR: Final = "/run/sdfstream/jobs"
_lock = threading.Lock()
_owners: dict[tuple[str, str, str], QpOwner] = {}


@contextlib.contextmanager
def steerable(
    qp: Any,
    context: Any,
    *,
    job: str,
    src: str,
    dst: str,
    keys: Sequence[str],
    rank: int = 0,
    peer_rank: int = 0,
    paced: bool = False,
    jobs_dir: str | Path = JOBS_DIR,
    ports: int = 8,
    answer_path: int | None = None,
) -> Iterator[LiveQp]:
    """Let signed commands move a queue pair, for as long as the block runs.

    Register both ends: acknowledgements are packets of the far end, which only its host's agent can trace.

    Parameters
    ----------
    qp : pyverbs.qp.QP
        An RC queue pair in RTS over RoCEv2. To find out what its device can do it is halted and resumed once, so
        register it before it is busy.
    context : pyverbs.device.Context
        Its device.
    job : str
        Job id.
    src, dst : str
        NIC ids ``host/nic`` of its two ends, as the agents have them.
    keys : sequence of str
        Public keys whose commands are obeyed: base64, or the path of a file.
    rank, peer_rank : int
    paced : bool
        The program calls ``pace(octets)`` of what this returns before each post; only then can its rate be limited.
    jobs_dir : path
        Drop directory of the host's agent.
    ports : int
        How many other source ports it may be moved to.
    answer_path : int, optional
        Source port by which the far end acknowledges; None: the one by which this end sends now, as it is where both
        connected with the same flow label, or with none.

    Raises
    ------
    UnavailableError
        No pyverbs, or no control socket.
    ConfigError
        A key cannot be read.
    RefusedError
        The queue pair is not connected, or not by RoCEv2.
    """
    live = LiveQp(Verbs(), qp, context, paced=paced)
    answers = live.path if answer_path is None else answer_path
    about = Registration(src, dst, rank, peer_rank, answers, alternates(live.path, ports))
    host = host_of(src)
    key = (job, host, str(jobs_dir))
    ring = trusted(keys)
    with _lock:
        if key not in _owners:
            _owners[key] = QpOwner(job, host, ring, Path(jobs_dir))
        owner = _owners[key]
        try:
            name = owner.add(about, live)
        except UnavailableError:
            _close_if_empty(key)
            raise
    try:
        yield live
    finally:
        with _lock:
            try:
                owner.remove(name)
            finally:
                _close_if_empty(key)


def _close_if_empty(key: tuple[str, str, str]) -> None:
    if _owners[key].is_empty:
        _owners.pop(key).close()
