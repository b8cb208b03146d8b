"""The agent's side of commands.

`control_io` receives them, `executor` decides what each may do and when, over `admission` (whom to trust, what a
command wants), `lease` (the life of one command), `conditions` (what holds for a lease now), `host_state` and
`path_watch` (which paths are dead or clean); `journal` outlives the agent; actuators stand behind `actuator`.
"""
