"""STAMP over RDMA: probes in RoCEv2 packets, which hash and queue as the workload's own do.

The engines are those of `probes.stamp`; they see what a UD queue pair sent and received in the shapes of
`probes.stamp.datagrams`. The immediate data of every packet is the session's source port: with it the far end takes
the same path selector for its answer, and the sender knows the path.

In reading order: `arrival` (what stands before a received message), `routes` (RoCEv2 and InfiniBand addressing),
`device_events`, `completions_io` (with or without the device's stamps), `ud_endpoint_io` (the queue pair),
`datagrams_io` (the seam to the engines), `meeting_io` (how two ends learn of each other), `session_io` (the two
loops), `report`.
"""
