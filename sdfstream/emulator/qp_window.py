"""Congestion window of a queue pair: DCTCP's, in packets.

Slow start until the first congestion; then one packet more per round trip. Packets that arrive with CE give the
marked share F of a round, ``alpha ← (1 − g)·alpha + g·F``, and once per round with marks ``window ← window·(1 −
alpha/2)``; once per round with a loss the window is halved. Several queue pairs on one queue see the same marks or
losses and the same delay, so their windows converge to equal shares (additive increase, multiplicative decrease).

A time-out halves the window, a second one in a row leaves the smallest: few packets suffice to find out when a dead
path works again.

References
----------
.. [1] M. Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010; RFC 8257 sections 3.3 and 3.4.
"""

from __future__ import annotations

from typing import Final

_G: Final = 1 / 8
"""Weight of the newest round in alpha: with RFC 8257's 1/16 a window of ten packets takes 50 rounds to settle."""
FIRST: Final = 10.0
LEAST: Final = 2.0
MOST: Final = 400.0
"""A full 40 ms queue at 100 Mbit/s."""


class CongestionWindow:
    """The window of one queue pair on one path."""

    def __init__(self) -> None:
        self.packets = FIRST
        self._slow_start_until = MOST
        self._alpha = 1.0
        self._round_ends_tx = 0
        self._cut_until_tx = 0
        self._seen = 0
        self._marked = 0
        self._before_time_out = FIRST

    @property
    def in_slow_start(self) -> bool:
        """Whether the window still doubles every round trip."""
        return self.packets < self._slow_start_until

    def on_ack(self, acked: int, marked: int, newest_tx: int, next_tx: int, *, full: bool) -> None:
        """`acked` packets more have arrived, `marked` of those received had CE.

        `newest_tx` is the newest transmission known to have arrived, `next_tx` the number of the next one: a round
        is over when something sent after its beginning has arrived. `full`: the window was what held back more.
        """
        self._seen += acked
        self._marked += marked
        if marked and newest_tx >= self._cut_until_tx:
            self._cut(1.0 - self._alpha / 2.0, next_tx)
        if full:
            growth = acked if self.in_slow_start else acked / self.packets
            self.packets = min(self.packets + growth, MOST)
        if newest_tx >= self._round_ends_tx:
            self._alpha += _G * (min(1.0, self._marked / max(1, self._seen)) - self._alpha)
            self._seen = self._marked = 0
            self._round_ends_tx = next_tx

    def on_loss(self, newest_tx: int, next_tx: int) -> None:
        """Packets were lost while later ones arrived."""
        if newest_tx >= self._cut_until_tx:
            self._cut(0.5, next_tx)

    def on_time_out(self, times: int) -> None:
        """Nothing has arrived for a time-out, `times` in a row: the last packets were lost, or the path is dead."""
        if times == 1:
            self._before_time_out = max(self.packets, FIRST)
            self._slow_start_until = max(self.packets / 2.0, LEAST)
        self.packets = self._slow_start_until if times == 1 else LEAST

    def on_new_path(self, next_tx: int) -> None:
        """The next packets take another path: its load is not known, so half the old path's window."""
        self.packets = max(FIRST, max(self.packets, self._before_time_out) / 2.0)
        self._slow_start_until = max(self._slow_start_until, self.packets)
        self._before_time_out = FIRST
        self._round_ends_tx = self._cut_until_tx = next_tx
        self._seen = self._marked = 0

    def _cut(self, factor: float, next_tx: int) -> None:
        self.packets = max(self.packets * factor, LEAST)
        self._slow_start_until = self.packets
        self._cut_until_tx = next_tx
