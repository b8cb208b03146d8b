"""HTTP over a Unix socket for clickhouse-connect: a pool of urllib3 whose connections all lead to one path."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from urllib3 import HTTPConnectionPool, PoolManager
from urllib3.connection import HTTPConnection

from sdfstream.archive.http.short_path_io import short_path


def unix_pool(path: Path) -> PoolManager:
    """A pool manager whose ``http://`` connections lead to the socket at `path`, whatever their host."""

    class Connection(HTTPConnection):
        """A connection to that socket."""

        default_socket_options = None  # Nagle's algorithm is TCP's

        def _new_conn(self) -> socket.socket:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                link.settimeout(self.timeout if isinstance(self.timeout, int | float) else None)
                with short_path(path) as name:
                    link.connect(name)
            except BaseException:
                link.close()
                raise
            return link

    class Pool(HTTPConnectionPool):
        """Connections to that socket."""

        ConnectionCls = Connection  # type: ignore[assignment]  # urllib3 asks for both of its kinds in one

    manager: Any = PoolManager(num_pools=1, maxsize=2)
    manager.pool_classes_by_scheme = {"http": Pool}
    return manager  # type: ignore[no-any-return]
