"""Tracing: which routers packets pass. Start at `tracer`."""
