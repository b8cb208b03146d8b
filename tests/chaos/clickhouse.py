"""A ClickHouse that can be killed: the embedded engine behind its own HTTP protocol, in a process of its own.

``python -m tests.chaos.clickhouse FOLDER PORT TOKEN``. The folder outlives the process.
"""

from __future__ import annotations

import signal
import sys
import threading

from sdfstream.archive.http.front_io import FrontLimits
from sdfstream.archive.http.server_io import SqlFront

READY = "ready for questions"


def main() -> int:
    folder, port, token = sys.argv[1:4]
    front = SqlFront.start(folder, port=int(port), token=token, limits=FrontLimits(queries=8, wait_s=30.0))
    over = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: over.set())
    print(READY, flush=True)
    over.wait()
    front.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
