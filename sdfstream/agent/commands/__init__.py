"""The agent's side of commands: what may be done (`executor`), for how long (`lease`), and by whom (`actuator`)."""
