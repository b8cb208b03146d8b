"""Software probes: STAMP engines (sans-IO), their socket shells, port counters, the agent."""
