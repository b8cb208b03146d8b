"""The bus of one process. Start at `bus_io`."""
