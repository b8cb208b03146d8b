"""The control socket of a process that owns queue pairs: emulated ones (`emulator`) and real ones (`verbs`).

In reading order: `rules` (which commands are obeyed), `server_io` (the socket).
"""
