"""Traceroute: which routers packets pass.

`tracer` schedules probes hop by hop for any subject; `paths` (probe paths), `flows` (of queue pairs) and `answers`
(to probes of peers) request traces; `packets` are the probes and ICMP quotes; `raw_io` and `trace_io` send and receive.
"""
