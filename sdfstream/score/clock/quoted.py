"""Figures of programs that do not run here: chrony and ptp4l, each on a simulated clock and the same delay laws.

From runs of chrony 4.3 and linuxptp 3.1.1 (as packaged by Debian 12), unmodified, under clknetsim (mlichvar/clknetsim,
commit 134028fb), with ideal stamps: seeds 1 to 3 (``CLKNETSIM_RANDOM_SEED``), the true offset once a second after a
skip. Not the same draws as ours, the same laws: see `CONDITIONS`.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class QuotedResult(NamedTuple):
    """One program under one law; ns, the range over seeds where several were run."""

    case: str
    program: str
    options: str
    rms: str
    p99: str
    max: str


CHRONY: Final = "`minpoll N maxpoll N xleave`, server `local stratum 1`; N = −4 is 16/s, −6 is 64/s"
QUOTES: Final = (
    QuotedResult("pair-B-64", "chrony", "N = −6, maxdelayquant 0.02", "148-157", "405-440", "657-1072"),
    QuotedResult("pair-B-64", "chrony", "N = −6, filter 64", "171", "520", "825"),
    QuotedResult("pair-B-64", "chrony", "N = −6", "855-996", "3.3k", "13.4k"),
    QuotedResult("pair-B-16", "chrony", "N = −4, maxdelayquant 0.03", "177-183", "507-584", "1165"),
    QuotedResult("pair-B-16", "chrony", "N = −4, filter 16", "298-360", "982", "3791"),
    QuotedResult("pair-B-16", "ptp4l", "logSyncInterval −4, servo gains 0.01 / 0.0001", "525-661", "1394-1617", "1842"),
    QuotedResult("pair-B-16", "ptp4l", "logSyncInterval −4", "3.1k-3.2k", "8.5k-9.1k", "16.2k"),
    QuotedResult("pair-B-64-wander", "chrony", "N = −6, maxdelayquant 0.02", "182", "505", "740"),
    QuotedResult("pair-B-64-wander", "chrony", "N = −6, filter 64", "337", "918", "–"),
    QuotedResult("pair-A-16", "ptp4l", "logSyncInterval −4", "1.6", "4", "6"),
    QuotedResult("pair-A-16", "chrony", "N = −4", "11", "33", "94"),
    QuotedResult("pair-L40-64", "chrony", "N = −6, maxdelayquant 0.02", "16", "45", "86"),
    QuotedResult("pair-L40-64", "chrony", "N = −6, filter 64", "46", "125", "240"),
    QuotedResult("pair-L90-64", "chrony", "N = −6, filter 64", "712", "2.1k", "3.0k"),
    QuotedResult("pair-L90-64", "chrony", "N = −6, maxdelayquant 0.02", "1220", "3.5k", "8.6k"),
)
CONDITIONS: Final = f"""\
chrony 4.3 and linuxptp 3.1.1 (Debian 12), unmodified, under clknetsim (commit 134028fb), ideal stamps, seeds
1-3 (single figures: seed 1). Two nodes; the second starts 1 ms and 10 ppm off, frequency walk 1e-9 per 1 s
step (wander case: 1e-8), the same law both ways. One sample of the true offset per second: chrony 16/s 5-8k s
after a skip of 2k s, 64/s 4-6k s after 1.5-2k s, ptp4l 5-6k s after 2-3k s. chrony: client options {CHRONY}.
ptp4l: `-i eth0`, E2E, server `clockClass 6`, client `slaveOnly 1`, `logMinDelayReqInterval` as
`logSyncInterval`; with the changed servo gains also `tsproc_mode filter_weight`, `delay_filter_length 64`.
Their runs are longer than ours, their draws are the simulator's own, and they steer a clock instead of
estimating one."""
