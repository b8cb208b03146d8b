"""Probes as large as the MTU: one session a pair of NICs that tells whether large packets pass where small ones do."""
