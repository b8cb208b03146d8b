"""Traceroute: which routers packets pass.

`tracer` schedules probes hop by hop for any subject; `paths` (probe paths) and `flows` (flows of queue pairs, answers
to probes) request traces; `packets` are the probes and ICMP quotes; `raw_io` and `trace_io` send and receive.
"""
