"""Measured against what it should be: a clock against its own line, queue pairs against the probes beside them."""
