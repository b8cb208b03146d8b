"""Sessions on the source ports that a device has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sdfstream.probes.config import SessionConfig
from sdfstream.verbs.probing.datagrams_io import REFLECTOR_PORT

MOST_PAIRS = 16
"""Queue pairs of a sender whose device gives each one source port."""


def pairs_wanted(sessions: Sequence[SessionConfig], planned: int) -> int:
    """How many queue pairs a sender needs where each has one source port; `planned`: how many the mesh plan may use."""
    return min(MOST_PAIRS, max([planned, *(len(s.source_ports) for s in sessions)], default=1))


def on_ports(sessions: Sequence[SessionConfig], ports: Sequence[int] | None) -> list[SessionConfig]:
    """The sessions as the engines take them.

    Parameters
    ----------
    sessions : sequence of SessionConfig
    ports : sequence of int, optional
        The device's own source ports: each session gets as many of them as it names, as far as there are, from the one
        that its first port falls on; a path that another session has already is left out. None: it takes any.

    Examples
    --------
    >>> s = SessionConfig("a/r0", "b/r0", "10.0.0.2", source_ports=(49153, 49154))
    >>> [one.source_ports for one in on_ports([s, s], [57236, 63494, 50000])], on_ports([s], None)[0].source_ports
    ([(63494, 50000)], (49153, 49154))
    """
    found: list[SessionConfig] = []
    taken: set[tuple[str, str, int, int]] = set()
    for session in sessions:
        wanted = session.source_ports
        if ports is not None:
            count, first = min(len(wanted), len(ports)), wanted[0] % len(ports)
            wanted = tuple(ports[(first + i) % len(ports)] for i in range(count))
        free = tuple(p for p in wanted if (session.src, session.dst, p, session.dscp) not in taken)
        if free:
            taken |= {(session.src, session.dst, p, session.dscp) for p in free}
            found.append(replace(session, dst_port=REFLECTOR_PORT, source_ports=free))
    return found
