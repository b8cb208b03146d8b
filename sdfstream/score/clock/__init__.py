"""Score card of the clocks: worlds, laws, other estimators, figures. Start at `laws`."""
