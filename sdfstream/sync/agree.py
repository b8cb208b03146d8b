"""One tick's messages, fused over the mesh into a measurement of every clock."""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.numeric.group import sums
from sdfstream.records.units import Float64s, Int64s
from sdfstream.sync import mesh
from sdfstream.sync.edges import Messages
from sdfstream.sync.nodes import Measured, Nodes

_ROUNDS: Final = 2
"""The second time liars and surprises weigh less."""
_SURPRISE: Final = 9.0
"""A message so many variances away has half the weight (Cauchy's law)."""


def agree(nodes: Nodes, m: Messages, a: Int64s, b: Int64s) -> Measured:
    """Robust least squares over the clocks; `a`, `b`: sender's and reflector's clock of each message."""
    known = nodes.table["variance"]
    weight = np.ones(a.size)
    for _ in range(_ROUNDS):
        precision = weight * m.news / m.variance
        value, variance = mesh.news(mesh.edges(a, b, precision, precision * m.value), known, nodes.label)
        left = m.value - (value[b] - value[a])
        weight = 1.0 / (1.0 + left**2 / (_SURPRISE * (m.variance + known[a] + known[b])))
    return _measured(m, a, b, weight, value, variance)


def _measured(
    m: Messages, a: Int64s, b: Int64s, weight: Float64s, value: Float64s, variance: Float64s
) -> Measured:
    """The measurements of all clocks: `news` about them, with the age and reach of the messages behind it."""
    clocks = value.size
    fresh, whole = weight * m.news / m.variance, weight / m.variance

    def both(column: Float64s) -> Float64s:
        return sums(a, column, clocks) + sums(b, column, clocks)

    total = both(fresh)
    safe = np.where(total > 0.0, total, 1.0)
    news = total / np.where(total > 0.0, both(whole), 1.0)
    return Measured(value, variance, news, both(fresh * m.age_s) / safe, both(fresh * m.span_s) / safe)


