"""The vocabulary every stage speaks: units and signs, topics and their columns, messages, events, findings.

Read `units` first (signs), `fabric` (what NICs, links, flows and queue pairs are called), then `topics` (what is on the
bus) and `message` (how it travels; `slices`: which are taken as one).
This package knows names and Arrow schemas; it knows no arithmetic (that is `sdfstream.numeric`) and no I/O.
"""
