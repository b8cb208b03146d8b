"""The routes of a host's own packets by its latest whole traces: those of its probe paths, and of flows that it sends.

A hop without an answer is no news: a trace with gaps that agrees with the route before it leaves that route known; one
that contradicts it makes the route unknown until it is traced whole again.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from sdfstream.records.fabric import Flow, PathId

MOST: Final = 16_384
"""Routes held; the one that was noted first gives way."""
Subject: TypeAlias = "Flow | PathId"


class ForwardRoutes:
    """Hops by flow and probe path; the first hop is met over the sending NIC's own cable."""

    def __init__(self) -> None:
        self._known: dict[Subject, tuple[str, ...]] = {}
        self.version = 0
        """Grows whenever a route changes."""

    def __len__(self) -> int:
        return len(self._known)

    def note(self, subject: Subject, hops: tuple[str | None, ...], *, complete: bool) -> None:
        """Take a finished trace."""
        known = self._known.get(subject)
        whole = tuple(hop for hop in hops if hop is not None) if complete and None not in hops else None
        if whole == known or (whole is None and known is not None and _agree(known, hops)):
            return
        self.version += 1
        self._known.pop(subject, None)
        if whole is not None:
            self._known[subject] = whole
            if len(self._known) > MOST:
                del self._known[next(iter(self._known))]

    def probe(self, src: str, dst: str, port: int, dscp: int) -> tuple[str, ...] | None:
        """The route of a probe path to its reflector; None: not known."""
        return self._known.get(PathId(src, dst, "udp", port, dscp, "fwd"))

    def flow(self, flow: Flow) -> tuple[str, ...] | None:
        """The route of a flow; None: not known."""
        return self._known.get(flow)


def _agree(known: tuple[str, ...], hops: tuple[str | None, ...]) -> bool:
    return len(known) == len(hops) and all(hop in (None, was) for hop, was in zip(hops, known, strict=True))
