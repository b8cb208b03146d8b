"""The twin: a seeded, vectorised simulation of a fabric whose truth is known; it speaks the topics that agents speak.

Read in this order: `scenario` (what a person writes), `fabric` (switches, cables, routes), `load` and `queues` (bytes),
`faults` (what goes wrong, and when; `fault_kinds`: how), `probing` (exchanges), `agents` (messages), `simulation` (all
of it along time). Its truth lies apart (`truth`), and no stage reads it.
"""
