"""Whether an open device still has the GID that its queue pairs were made with. Steady clock, ns.

A NIC that is given another address, or whose GID table is filled anew after its link came back, shows the same device
and port; what is sent goes on with the old GID, and nobody answers it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sdfstream.records.units import NS_PER_S

ABSENT_NS: Final = 3 * NS_PER_S
"""A port that is up without its GID for so long is begun anew: the address may stand elsewhere in the table."""


@dataclass(slots=True)
class GidWatch:
    """The GID of one device's port."""

    opened: str
    """As the queue pairs were made."""
    _absent_since_ns: int = 0
    """0: it is there, or the port is down."""

    def why_lost(self, gid: str, *, active: bool, now_ns: int) -> str:
        """Why the NIC is to be begun anew; empty: it is not.

        Parameters
        ----------
        gid : str
            What stands at the GID's index now; empty: nothing.
        active : bool
            Whether the port is up.

        Examples
        --------
        >>> watch = GidWatch("a")
        >>> [watch.why_lost("", active=True, now_ns=s * NS_PER_S) for s in (1, 3, 4)]
        ['', '', 'is absent']
        >>> watch.why_lost("b", active=True, now_ns=5 * NS_PER_S)
        'is another address now'
        """
        if gid and gid != self.opened:
            return "is another address now"
        if gid or not active:
            self._absent_since_ns = 0
            return ""
        self._absent_since_ns = self._absent_since_ns or now_ns
        return "is absent" if now_ns - self._absent_since_ns >= ABSENT_NS else ""
