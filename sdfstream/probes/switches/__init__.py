"""Counters of switches, as gnmic writes them to Kafka, made into rows of ``sdf.raw.port.v1``.

In reading order: `leaves` (which leaf of OpenConfig is which column), `gnmic` (a message into updates), `readings`
(updates into rows, and which positions may be committed). All pure; ``runtime/switches_io.py`` reads and
publishes.
"""
