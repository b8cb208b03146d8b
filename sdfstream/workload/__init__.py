"""The workload stage: what every queue pair carried, window by window, on reference time.

Read `stage` (a message's path through it), then `chunks` (rows in), `reference_time` (clock correction),
`queue_pairs`, `windows`, `lateness` (when a window closes), `publish` (rows out).
"""
