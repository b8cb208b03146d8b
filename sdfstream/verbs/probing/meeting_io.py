"""How a Session-Sender and a Session-Reflector on queue pairs learn of each other: one JSON line each, over TCP.

A sender says its NIC, GID and key and gets the reflector's, with its queue pair's number; the connection then stays
open, and its end is the session's. What a sender says is not believed beyond this: probes are answered to the address
that their own packets carry.
"""

from __future__ import annotations

import contextlib
import ipaddress
import queue
import socket
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sdfstream.errors import FormatError, UnavailableError
from sdfstream.stats import Counters
from sdfstream.verbs.json_lines_io import as_unavailable, receive, send, text, whole
from sdfstream.verbs.probing.datagrams_io import address_of
from sdfstream.verbs.probing.ud_endpoint_io import UdAddress

PORT: Final = 18516
_KEYS: Final = 1 << 31
"""Keys of user programs are below."""
_QPNS: Final = 1 << 24
_TIMEOUT_S: Final = 10.0
_MOST_OPEN: Final = 256


class End(NamedTuple):
    """One end of a session."""

    nic: str
    address: UdAddress

    def as_data(self) -> dict[str, Any]:
        """What is said of it."""
        return {"nic": self.nic, "gid": self.address.gid, "qpn": self.address.qpn, "qkey": self.address.qkey}


def end_of(said: dict[str, Any]) -> End:
    """The end that an object describes. FormatError: it does not."""
    gid = text(said, "gid")
    address_of(gid)
    address = UdAddress(gid, whole(said, "qpn", _QPNS), whole(said, "qkey", _KEYS))
    return End(text(said, "nic", 128), address)


def meet(
    host: str, port: int, own: End, *, source: str = "", timeout_s: float = _TIMEOUT_S
) -> tuple[End, socket.socket]:
    """The reflector at `host`, and the connection to hold during the session. UnavailableError: it is not there.

    `source`: the address to come from.
    """
    with as_unavailable():
        connection = socket.create_connection((host, port), timeout_s, (source, 0) if source else None)
        try:
            send(connection, own.as_data())
            return end_of(receive(connection)), connection
        except (OSError, FormatError):
            connection.close()
            raise


class Meetings:
    """The reflector's side: a thread that takes connections; `arrived` has the ends that came, to be asked for.

    Parameters
    ----------
    listen : str
    port : int
        0: any.
    own : End
    admits : callable, optional
        Whether a caller's address is that of a known sender; where it is given, anybody else is not listened to, a
        caller speaks for its own address alone, and connections are not held.
    wake : callable
        Called when somebody has arrived.

    Raises
    ------
    UnavailableError
        The port cannot be listened on.

    Notes
    -----
    Counters, all ``refused``: ``stranger`` (`admits` says no), ``timeout`` (nothing whole came in time),
    ``connection`` (it broke), ``full`` (too many wait to be asked for), or why what was said is no end
    (`FormatError.reason`).
    """

    def __init__(
        self,
        listen: str,
        port: int,
        own: End,
        admits: Callable[[str], bool] | None = None,
        wake: Callable[[], object] = bool,
    ) -> None:
        self.counters = Counters("meetings")
        family = socket.AF_INET6 if ":" in listen else socket.AF_INET
        try:
            self._listener = socket.create_server((listen, port), family=family)
        except OSError as error:
            raise UnavailableError(f"{listen}:{port}: {error.strerror}") from error
        self.port = int(self._listener.getsockname()[1])
        self._own, self._admits, self._wake = own, admits, wake
        self._arrived: queue.Queue[End] = queue.Queue(_MOST_OPEN)
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, name="meetings", daemon=True)
        self._thread.start()

    def arrived(self) -> list[End]:
        """Those that came since the last call."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._arrived.get_nowait())
        return found

    def _serve(self) -> None:
        while True:
            try:
                connection, caller = self._listener.accept()
            except OSError:  # closed
                return
            connection.settimeout(_TIMEOUT_S)
            try:
                self._take_caller(connection, str(caller[0]))
            except (OSError, FormatError, queue.Full) as error:
                self.counters.add("refused", _reason(error))
                connection.close()
                continue
            if self._admits is not None:
                connection.close()
                continue
            self._open.append(connection)
            if len(self._open) > _MOST_OPEN:
                self._open.pop(0).close()

    def _take_caller(self, connection: socket.socket, caller: str) -> None:
        """Take what a caller says of itself, and answer."""
        if self._admits is not None and not self._admits(caller):
            raise FormatError("stranger", caller)
        said = end_of(receive(connection))
        if self._admits is not None and not same_address(address_of(said.address.gid), caller):
            raise FormatError("foreign-address", f"{caller} speaks for {said.address.gid}")
        self._arrived.put_nowait(said)
        send(connection, self._own.as_data())
        self._wake()

    def close(self) -> None:
        """End all."""
        _end(self._listener)
        if self._admits is None:
            self._thread.join(_TIMEOUT_S + 1)  # one may be about to be held open
        for one in self._open:
            _end(one)


def same_address(a: str, b: str) -> bool:
    """Whether two texts are one IP address.

    >>> same_address("fd00:0::1", "fd00::1"), same_address("10.0.0.1", "10.0.0.2")
    (True, False)
    """
    return ipaddress.ip_address(a) == ipaddress.ip_address(b)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


def _reason(error: OSError | FormatError | queue.Full) -> str:
    if isinstance(error, FormatError):
        return error.reason
    if isinstance(error, queue.Full):
        return "full"
    return "timeout" if isinstance(error, TimeoutError) else "connection"
