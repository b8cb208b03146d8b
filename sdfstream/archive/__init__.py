"""Every topic into ClickHouse tables; SQL served while it runs.

`config` says where to; `rows` and `events` turn messages into Arrow tables (pure); `batching`, `intent` and `lanes`
say what goes into one insert, when, and where every row on its way stands (pure); `work_io.ArchiveWork` is the shell
around them, on a task of the bus, and `writer_io.Archive` the same for messages handed in within one process.
`spill_io` holds rows while the engine is away, `kept_io` those that it refuses for good. `migrations/*.sql` are the
tables and views, the same for chDB and for a server; ``schemas/clickhouse`` publishes copies of them.
`server_io` serves a stated subset of ClickHouse's HTTP protocol over chDB; `query_io` asks whichever engine there is.
"""
