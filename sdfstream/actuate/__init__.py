"""From findings to guarded actions, and back: the controller's stage, and the agent's side that obeys it.

Agent side: `executor` (what a command may do and when), over `admission` (who is believed), `lease` (the life of one
command), `watch` (which paths are dead or clean), `journal` (what outlives the agent); actuators behind `actuator`.
"""
