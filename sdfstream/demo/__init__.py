"""What ``sdfstream demo`` and ``up`` run: a lab with its pipeline, jobs and faults, or the recording of one."""
