"""Program 1, on every host: probes peers, answers their probes, publishes, and obeys commands.

Read in this order; the first file is the loop, and reads top to bottom:

========================  ==========================================================================================
the loop                  `loop_io`: sends probes, reads answers, assesses liveness, flushes rows
one host                  `host_io` decides; `packets` is the seam to what carries its packets; `nics_io`: which NICs
                          are there; `heartbeat`: when liveness is published; `priority_io`: how urgent all this is
its packets, in C         `engine`: packets, sockets and inbound paths of a host; one thread for all hosts, of the
                          size that `engine.room` says (`sdfstream.probes.engine`)
its packets, in Python    `numpy_packets_io` (`sdfstream.probes.stamp`), which answers when `answering_io` says
sessions                  `sessions` begins and ends those that come and go: `watches` (probes for queue pairs, of
                          which `quick_paths` makes as many fast as `watch_cover` says, with `spare_ports` where those
                          miss a segment) and `planned` (of the mesh plan), both in `slots` of the sender's arrays;
                          `senders`: whom the reflector answers
outputs → bus             `publish_io` numbers and buffers them in two `queues`, events and bulk; `spill` is their
                          form on disk; `bus_io` is the bus, also while its brokers are not there yet
beside the probes         `observer` is the seam by which liveness is seen in the pass that assessed it; `services_io`
                          is the observer of a real agent and wires the rest: `jobmap` (jobs here), `requests` (what
                          their queue pairs ask of the probes), `commands` (obeyed under leases), `mesh_io` (plans)
bus → agent               `downlink`, a protocol; `downlink_io`, a link or Kafka; `trusted_keys_io`, whose commands are
                          obeyed; `clockpage`, clock states for applications of the host
from the command line     `process_io` runs an agent configured by `config_file` (YAML) or `trial` (peers only);
                          `report` summarises its paths
========================  ==========================================================================================
"""
