"""Joins the hosts of an agent to the packet engine: their numbers in it, their sockets, its thread (`thread_io`)."""
