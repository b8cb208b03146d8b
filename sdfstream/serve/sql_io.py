"""SQL over the embedded archive of a process, which no other process can open meanwhile."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from sdfstream.archive.http.endpoint_io import remove_endpoint, write_endpoint
from sdfstream.archive.http.server_io import SqlFront

if TYPE_CHECKING:
    from sdfstream.settings import Settings


def serve_sql(stack: AsyncExitStack, settings: Settings) -> SqlFront | None:
    """Answer SQL until `stack` closes, so that `sdfstream sql` finds it; None: a server answers for itself."""
    if settings.archive is not None:
        return None
    front = SqlFront.start(str(settings.data / "archive"), data=settings.data)
    stack.callback(front.close)
    write_endpoint(settings.data, front.port)
    stack.callback(remove_endpoint, settings.data)
    return front
