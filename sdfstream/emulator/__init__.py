"""An emulated training job: real packets over UDP queue pairs that can be steered, all ranks in one process.

In reading order:

- plan: `rank_plan` (ranks, queue pairs, source ports);
- one queue pair: `qp_chunk`, `qp_header` (wire form), `qp_send` with `qp_window`, `qp_pacer` and `qp_round_trip`,
  `qp_receive`, `qp_stripe` (several queue pairs between two ranks);
- collectives: `collective_values`, `collective`, `rank` (one rank), `rank_job` (all ranks, sans-IO);
- data plane (`process_plane` is the seam): `process_nic_io` and `process_net_io` (sockets), `plane_io` (in Python),
  `engine` (the same in C, in a thread of its own);
- process: `process_rows`, `process_files_io`, `process_io` (the loop), `main_io`;
- control socket: `sdfstream.qpcontrol`.
"""
