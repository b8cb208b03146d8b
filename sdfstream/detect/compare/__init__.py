"""Measured against what it should be: a clock against its line, queue pairs and marks against probes."""
