"""State and counters of ports: netlink, sysfs, ethtool, optics. Start at `reading`."""
