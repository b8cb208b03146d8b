"""Program 1, on every host: probes peers, answers theirs, judges liveness, publishes, obeys. Start at `loop_io`."""
