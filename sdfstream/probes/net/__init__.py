"""Sockets and netlink: whole batches of datagrams in and out, with their stamps. Start at `socket_table_io`."""
