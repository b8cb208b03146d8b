"""A stated subset of ClickHouse's HTTP protocol over the embedded engine."""
