"""The loop, closed on real packets, again and again: `python -m tests.trials`."""
