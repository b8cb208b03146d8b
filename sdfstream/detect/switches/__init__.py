"""What switches say of their own ports, told of the cables that hang there.

Rows that a switch's management gave (`records.switches`) are evidence about cables, never a sign of life of an agent
nor a NIC of the mesh. `intake.dispatch` hands them to these engines alone:

==========================================  ====================================================================
counter                                     what becomes of it
==========================================  ====================================================================
errors, discards, FEC                       `errors`: ``port-errors`` of the cable
state down, disabled or absent after up     `carriers`: evidence of a link or NIC that is down, or a finding itself
pause frames received from a NIC            `root.pauses`: as if the NIC had counted them as sent
the others                                  archived only
==========================================  ====================================================================

`cables` says which cable hangs in which port.
"""
