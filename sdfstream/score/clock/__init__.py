"""Score card of the clocks, on simulated delays.

In reading order: `model` (a simulated clock), `delays` (laws of one-way delay), `sim` (probes between clocks), `worlds`
(one trouble each), `cases` (world, metric and limits), `tracks` (published rows against truth), `metrics`; other
estimators: `margin`, `peers`, `quoted`; output: `report`, `plots`, `truth`.
"""
