"""RDMA devices seen from outside the programs that use them: nothing here touches a queue pair.

In reading order: `hw_counters` (one name for what every vendor counts), `gids` (address tables and their faults),
`observed_qps` (queue pairs of all processes), `presence` (why there is no device), `devices_io` (sysfs), `command_io`
(netlink, by the ``rdma`` command of iproute2).
"""
