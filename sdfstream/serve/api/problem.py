"""Why a request is refused: an HTTP status and a sentence, as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

from typing import Any, Final

from sdfstream.errors import SdfError

MEDIA_TYPE: Final = "application/problem+json"
TITLES: Final[dict[int, str]] = {
    400: "The request cannot be read",
    401: "A token is needed",
    403: "This is not allowed",
    404: "There is no such thing",
    405: "This method is not known here",
    406: "This form is not made here",
    408: "The request came too slowly",
    413: "The request is too large",
    415: "This form is not read here",
    421: "This address is not known by that name",
    429: "Too many requests at once",
    500: "A defect of sdfstream",
    503: "This cannot be answered now",
}


class ProblemError(SdfError):
    """A request that is refused.

    Parameters
    ----------
    status : int
        One of `TITLES`.
    detail : str
        A sentence; it may quote the request, never a secret.
    """

    def __init__(self, status: int, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.more = more

    @property
    def body(self) -> dict[str, Any]:
        """The members of the problem object."""
        title = TITLES.get(self.status, "The request is refused")
        return {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail, **self.more}
