"""Measured against what it should be: clocks, queue pairs and marks; a link against those that are equal to it."""
