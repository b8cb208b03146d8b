"""Jobs of this host, from files in a drop directory and control sockets to ``sdf.state.job.v1``."""
