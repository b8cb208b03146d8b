"""One timeline: per-edge floors, clock states, corrected one-way delay."""
