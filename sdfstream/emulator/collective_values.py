"""The numbers that collectives carry: every rank's depend on rank, collective and index, and their sum is known.

A chunk that is missing, doubled, misplaced, corrupted, or left over from an earlier collective makes the result
differ. Numbers are uint32 and sums are modulo 2³², so they are exact in any order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from sdfstream.records.units import UInt32s

_INDEX: Final = 2_654_435_761
_RANK: Final = 2_246_822_519
_COLLECTIVE: Final = 3_266_489_917
_PEER: Final = 668_265_263
_MASK: Final = 0xFFFFFFFF


def brought(rank: int, collective: int, n: int) -> UInt32s:
    """(n,) the input of `rank` to an all-reduce."""
    return _index_terms(n) + np.uint32((rank * _RANK + collective * _COLLECTIVE) & _MASK)


def total(ranks: int, collective: int, n: int) -> UInt32s:
    """(n,) the sum of the inputs of ranks 0…`ranks` − 1, modulo 2³².

    >>> bool((total(2, 5, 3) == brought(0, 5, 3) + brought(1, 5, 3)).all())
    True
    """
    constant = ranks * (ranks - 1) // 2 * _RANK + ranks * collective * _COLLECTIVE
    return _index_terms(n) * np.uint32(ranks) + np.uint32(constant & _MASK)


def sent_to(rank: int, peer: int, collective: int, n: int) -> UInt32s:
    """(n,) the block from `rank` to `peer` in an all-to-all."""
    return _index_terms(n) + np.uint32((rank * _RANK + peer * _PEER + collective * _COLLECTIVE) & _MASK)


@lru_cache(maxsize=4)
def _index_terms(n: int) -> UInt32s:
    terms: UInt32s = np.arange(n, dtype=np.uint32) * np.uint32(_INDEX)
    terms.flags.writeable = False
    return terms
