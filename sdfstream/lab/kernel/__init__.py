"""The lab's interface to the kernel: namespaces, netlink, queues, eBPF."""
