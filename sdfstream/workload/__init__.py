"""Jobs and their traffic: who runs where, over which queue pairs, and what they get.

Read `jobmap` first (jobs of this host, for the agent), then `stage` (throughput and delay in band). Neither knows the
bus, the archive or the probes.
"""
