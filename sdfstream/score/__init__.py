"""Estimates and findings against known truth.

- a recording with its truth: `match` and `location` (findings against injected faults), `clock_errors` (clock
  estimates against true clocks), `report`;
- the score card of the clocks, on simulated delays: `clock`.
"""
