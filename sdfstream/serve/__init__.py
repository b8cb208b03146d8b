"""A running pipeline and who may ask it: local sockets, operator keys, what the archive knows of the past."""
