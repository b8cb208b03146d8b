"""The RoCEv2 sessions of an agent: what fulfils the seam `RoceProbes` of `sdfstream.agent.packets`.

One thread carries the queue pairs of all NICs, since every call of pyverbs holds the interpreter's lock: it makes short
calls only, waits outside pyverbs for what the devices' completion channels say, and hands the agent's loop what it has
found. In reading order: `ports` (sessions on the source ports that a device has), `peers` (who has been met, and whom
to meet when), `mail` (from the thread to the loop), `nic_io` (queue pairs and engines of one NIC), `askers_io`
(meetings), `devices_io` (sysfs and pyverbs), `host_io` (a host: devices come and go), `thread_io` (the thread).
"""
