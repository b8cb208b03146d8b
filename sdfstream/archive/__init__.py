"""Every topic into ClickHouse tables; SQL served while it runs.

Read in this order, from messages to the engine:

========================  =========================================================================================
messages → batches        `batching` gathers a topic's messages and cuts batches; `intent` names a batch on the bus
batches → rows            `rows` (bulk topics), `events` (event topics), by the rules of `tables` and `packing`
rows → inserts            `queues` holds every pending insert and says which is due; `insert_io` makes one;
                          `insert_file` is its form on disk, in `spill_io` (the engine is away) and in
                          `failed_inserts_io` (refused for good), written by `disk_io`
the loop                  `run_io` on one task of the bus, `round_io` in the engine's thread; `work_io.ArchiveWork`
                          holds what they share; `writer_io.Archive` archives messages added within one process
engine                    `engine_io` (chDB in process or a server, by `target`), `failures`, `memfile_io`, `sqltext`
tables                    `migration`, `migrate_io`, `migrate_lock_io`; ``migrations/*.sql``, the same for chDB and for
                          a server, are the tables and views (copies in ``schemas/clickhouse``)
upkeep                    `retention`, `upkeep`: roll-ups finished, rows around findings copied, old rows dropped
questions                 `query_io` asks whichever engine there is; `http` serves a stated subset of ClickHouse's
                          HTTP protocol over chDB
========================  =========================================================================================
"""
