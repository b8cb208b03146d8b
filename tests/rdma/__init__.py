"""Queue pairs on a real RDMA stack: Linux Soft-RoCE in a small emulated machine (`guest`), tested from `inside` it.

``python -m tests.rdma.guest build`` makes the boot files, ``… run COMMAND`` runs a command in a guest.
"""
