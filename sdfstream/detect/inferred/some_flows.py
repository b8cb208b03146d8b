r"""Whether an inferred link passes nothing, or drops every packet of some five-tuples, by how many paths are dead.

Of the n paths that enter (or leave) a switch with w uplinks each crosses one of them with probability 1/w. If one
passes nothing, k of them are dead with the likelihood C(n, k) (1/w)^k (1 − 1/w)^(n − k). If it drops a share of all
five-tuples, any share as likely as any other, a path is dead with any probability up to 1/w,

.. math::

    w \int_0^{1/w} \binom{n}{k} p^k (1 - p)^{n - k} dp = \frac{w}{n + 1} P(B > k), \quad B \sim Bin(n + 1, 1/w).

Nothing says how many uplinks there are, but a switch has hardly more than eight, or than twice as many as NICs: every
number up to that is as likely. Both faults are equally likely before anything is seen. What is dead in both directions
is no such hole, since forwarding tables and bundles are each direction's own.
"""

from __future__ import annotations

import numpy as np

from sdfstream.records.units import Float64s

_MOST, _MOST_PER_NIC = 8, 2
"""Uplinks of a switch, of one speed with its NICs, that are believed of any; NICs that nobody probes are not known."""


def drops_some(dead: int, paths: int, nics: int) -> float:
    """Probability that a link drops some flows rather than all.

    Parameters
    ----------
    dead, paths : int
        Dead paths, and all that cross some uplink of the switch in that direction.
    nics : int
        Known NICs of the switch, 1 or more.

    Examples
    --------
    Of 92 paths into a switch of four NICs four are dead, then 22:

    >>> round(drops_some(4, 92, 4), 2), round(drops_some(22, 92, 4), 2)
    (0.98, 0.33)
    """
    uplinks = np.arange(1, max(_MOST, _MOST_PER_NIC * nics) + 1)
    share = np.clip(1.0 / uplinks, 0.0, 1.0 - 1e-12)
    none = _binomial(dead, paths, share)[:, -1].sum()
    fewer = _binomial(dead, paths + 1, share).sum(axis=1)
    some = (uplinks / (paths + 1) * np.maximum(0.0, 1.0 - fewer)).sum()
    return float(some / (some + none)) if some + none > 0 else 0.0


def _binomial(most: int, n: int, p: Float64s) -> Float64s:
    """(shares, most + 1) probabilities of 0 to `most` of `n`."""
    k = np.arange(most + 1)
    log_choices = np.append(0.0, np.cumsum(np.log((n - k[:-1]) / (k[:-1] + 1.0))))
    result: Float64s = np.exp(log_choices + k * np.log(p)[:, None] + (n - k) * np.log1p(-p)[:, None])
    return result
