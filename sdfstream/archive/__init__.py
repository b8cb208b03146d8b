"""Every topic into ClickHouse tables; SQL served while it runs.

`config` says where to; `rows` and `events` turn messages into Arrow tables (pure); `batching` says when to insert
(pure); `writer_io.Archive` is the shell around them: one worker thread, one engine handle. `migrations/*.sql` are
the tables and views, the same for chDB and for a server; ``schemas/clickhouse`` publishes copies of them.
`http_io` serves a stated subset of ClickHouse's HTTP protocol over chDB; `query_io` asks whichever engine there is.
"""
