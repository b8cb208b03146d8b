"""The page's files, as they are answered: read once, compressed once, and never anything from another host.

They hold no data and need no token: what the page shows it asks of ``/v1``, by the rules of every caller.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from sdfstream.serve.api.problem import ProblemError

FOLDER: Final = Path(__file__).resolve().parent.parent / "page"
START: Final = "index.html"
MEDIA: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Media type by suffix; files of any other are not answered."""
HEADERS: Final = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
"""A script that is not a file of ours does not run, and nothing is asked of another host."""


@dataclass(frozen=True, slots=True)
class WebFile:
    """One file of the page."""

    media_type: str
    body: bytes
    packed: bytes
    """With gzip."""
    etag: str


class WebPage:
    """The files of a folder, by the name below ``/page/``."""

    def __init__(self, folder: Path = FOLDER) -> None:
        paths = [path for path in sorted(folder.rglob("*")) if path.suffix in MEDIA]
        self._files = {path.relative_to(folder).as_posix(): _read(path) for path in paths}

    @property
    def files(self) -> dict[str, WebFile]:
        """Every file."""
        return dict(self._files)

    async def start(self, request: Request) -> Response:
        """``/``: the start page."""
        return self._answer(START, request)

    async def file(self, request: Request) -> Response:
        """``/page/{name}``; ProblemError 404 where there is none of the name."""
        return self._answer(str(request.path_params["name"]), request)

    def _answer(self, name: str, request: Request) -> Response:
        file = self._files.get(name)
        if file is None:
            raise ProblemError(404, "the page has no such file; it begins at /")
        said = HEADERS | {"ETag": file.etag, "Vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=said)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.packed, headers=said | {"Content-Encoding": "gzip"}, media_type=file.media_type)
        return Response(file.body, headers=said, media_type=file.media_type)


def _read(path: Path) -> WebFile:
    body = path.read_bytes()
    etag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
    return WebFile(MEDIA[path.suffix], body, gzip.compress(body, 9, mtime=0), etag)
