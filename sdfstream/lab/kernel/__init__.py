"""What the lab asks of the kernel: namespaces, netlink, queues, eBPF."""
