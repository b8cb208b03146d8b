"""Findings against the twin's truth over a corpus of scenarios: ``sdfstream score detect``.

`run` takes a scenario and a seed through the pipeline, `facts` says of each fault what was made of it, `card` adds
all up. Nothing is used but lines of ``truth/`` and output topics.
"""
