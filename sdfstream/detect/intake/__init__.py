"""Messages into the engines.

Read `dispatch` first: which engine takes what. `probe_rows` and `delay_rows` take the messages of a slice as one.
"""
