"""The agent's side of commands.

`control_io` receives them, `executor` decides what each may do and when, over `admission` (whom to trust, what a
command wants), `lease` (the life of one command), `host_state` (what holds for a command now) and `path_watch`
(which paths are dead or clean); `orders` is what the packet engine may order by itself, `watched_routes` what the
probes are told; `journal` outlives the agent; actuators stand behind `actuator`.
"""
