"""Real queue pairs, of any program that uses pyverbs: moved, limited and taken back by signed commands.

In reading order:

- what can be done: `udp_port` (flow label and source port), `capabilities`, `library_io` (pyverbs, wherever it is);
- one queue pair: `move` (a live change of its source port, step by step), `pacer`, `live_qp_io`;
- its process: `description`, `owner_io` (control socket, file for the agent), `steerable_io` (the public call);
- a stream of chunks that survives its device: `chunks` (exactly once), `endpoint_io`, `stream_io`.
"""
