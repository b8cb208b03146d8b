"""Jobs of this host, from files in a drop directory and control sockets to ``sdf.state.job.v1``.

`drop_file` reads one file or answer, `jobmap` keeps the shards, `folder_io` reads folder and sockets.
"""
