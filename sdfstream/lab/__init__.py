"""A leaf-spine of network namespaces: real packets, real kernel ECMP, real queues."""
