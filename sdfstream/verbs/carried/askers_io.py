"""Meetings of an agent: listeners on the addresses of its NICs, and a few threads that go and meet far ends.

They wait for the network, which the thread of the queue pairs must not. What they find comes back by `report`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np

from sdfstream.agent.priority_io import follow_in_priority
from sdfstream.agent.senders import configured_senders, limits_of
from sdfstream.errors import UnavailableError
from sdfstream.probes.config import AgentConfig, HostConfig
from sdfstream.probes.stamp.datagrams import address_octets
from sdfstream.probes.stamp.known_senders import KnownSender, KnownSenders
from sdfstream.verbs.probing.datagrams_io import address_of
from sdfstream.verbs.probing.meeting_io import End, meet, same_address
from sdfstream.verbs.probing.ud_endpoint_io import UdAddress

_THREADS: Final = 4
_TIMEOUT_S: Final = 3.0
_SOME_PORT: Final = np.array([1], dtype=np.uint16)
"""Callers come from any TCP port; none is a reflector's."""

Met = Callable[[UdAddress | None, str], None]
"""What a far end said, or None and why it said nothing."""


class Askers:
    """Threads that meet far ends; `report` takes a call that hands the result over elsewhere."""

    def __init__(self, port: int, report: Callable[[Callable[[], None]], None]) -> None:
        self._port, self._report = port, report
        self._pool = ThreadPoolExecutor(_THREADS, "meetings", follow_in_priority)

    def ask(self, address: str, own: End, source: str, met: Met) -> None:
        """Meet the end at `address`, coming from the address `source`; once this is closed, nobody."""
        with contextlib.suppress(RuntimeError):
            self._pool.submit(self._meet, address, own, source, met)

    def _meet(self, address: str, own: End, source: str, met: Met) -> None:
        try:
            found, connection = meet(address, self._port, own, source=source, timeout_s=_TIMEOUT_S)
            connection.close()
        except UnavailableError as error:
            why = str(error)
            self._report(lambda: met(None, why))
            return
        if not same_address(address_of(found.address.gid), address):  # probes would go to somebody else
            self._report(lambda: met(None, f"its GID is {found.address.gid}, another address"))
            return
        self._report(lambda: met(found.address, ""))

    def close(self) -> None:
        """End; who is being met may still answer, and nobody listens."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class CallerAdmission:
    """Whether a caller is one whose probes the host's reflectors would answer; listeners' threads ask."""

    def __init__(self, config: AgentConfig, host: HostConfig, seed: int) -> None:
        self._known = KnownSenders(host, limits_of(config), seed)
        self._known.know("configuration", configured_senders(config, host))
        self._lock = threading.Lock()

    def know(self, group: str, senders: Mapping[str, KnownSender], networks: Iterable[str]) -> None:
        """These senders and networks are known from now on, instead of those of `group` before."""
        with self._lock:
            self._known.know(group, senders, networks)

    def admits(self, address: str) -> bool:
        """Whether this address is known, or strangers are answered."""
        octets = np.frombuffer(address_octets(address), dtype=np.uint8).reshape(1, 16)
        with self._lock:
            refused = self._known.admit(octets, _SOME_PORT).refused
        return not any(bool(rows.any()) for rows in refused.values())
