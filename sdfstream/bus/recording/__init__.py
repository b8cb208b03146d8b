"""Recordings: folders with one file per topic, written and read. Start at `format`."""
