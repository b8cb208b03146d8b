"""The bus on Kafka. Start at `bus_io`; then `reader_io` (groups), `task_io` and `commit_io` (exactly once)."""
