-- Queue and utilisation of each direction of a link.

-- sdf.derived.hop.v1
CREATE TABLE IF NOT EXISTS derived_hop
(
    at DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'begin of the span [reference time]',
    window_ns Int64 CODEC(ZSTD(1)) COMMENT 'length of the span [ns]',
    link LowCardinality(String) COMMENT 'link id a--b; NIC id where its cable is not declared',
    direction LowCardinality(String) COMMENT 'a->b; host/nic tx or rx where its cable is not declared',
    speed_bps Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'declared speed [bit/s]',
    queue_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'queueing delay, mean of the span [ns]',
    queue_err_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'its standard error [ns]',
    queue_bytes Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'queueing delay × rate at which it drains [bytes]',
    paths UInt32 CODEC(ZSTD(1)) COMMENT 'directed probe paths behind it',
    utilisation Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'share of the speed in use, mean [1]',
    utilisation_err Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'its standard error [1]',
    utilisation_at Nullable(DateTime64(9, 'UTC')) CODEC(Delta, ZSTD(1)) COMMENT 'from when it is [reference time]',
    utilisation_window_ns Nullable(Int64) CODEC(ZSTD(1)) COMMENT 'over how long [ns]',
    utilisation_by LowCardinality(Nullable(String)) COMMENT 'ports: counters of the host''s port; flows: queue pairs'' bytes',
    bus_at DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when the message entered the bus',
    bus_seq UInt64 CODEC(Delta, ZSTD(1)) COMMENT 'message number in its topic and bus; rows of one message share it',
    bus_key LowCardinality(String) COMMENT 'the message''s key: fabric',
    bus_id LowCardinality(String) COMMENT 'which bus numbered it: one run of the in-process bus, or a Kafka cluster',
    boot_id LowCardinality(Nullable(String)) COMMENT 'the producer''s run; NULL when not known',
    batch_seq Nullable(Int64) CODEC(Delta, ZSTD(1)) COMMENT 'the producer''s own message number; NULL when not known',
    bus_at_ns Int64 ALIAS toUnixTimestamp64Nano(bus_at),
    at_ns Int64 ALIAS toUnixTimestamp64Nano(at),
    utilisation_at_ns Nullable(Int64) ALIAS toUnixTimestamp64Nano(utilisation_at)
)
ENGINE = MergeTree
PARTITION BY toStartOfHour(bus_at)
ORDER BY (direction, at)
SETTINGS
    non_replicated_deduplication_window = 1000,
    min_bytes_for_wide_part = 268435456,
    ttl_only_drop_parts = 1,
    merge_with_ttl_timeout = 300
COMMENT 'Queue and utilisation of one direction of a link: one row per span (1 s).';

CREATE OR REPLACE VIEW v_hops AS
SELECT
    h.link AS link, h.direction AS direction,
    toStartOfMinute(h.at) AS minute,
    count() AS spans,
    max(h.speed_bps) AS speed_bps,
    avg(h.queue_ns) AS queue_ns,
    max(h.queue_ns) AS worst_queue_ns,
    argMax(h.queue_err_ns, h.queue_ns) AS worst_queue_err_ns,
    max(h.queue_bytes) AS worst_queue_bytes,
    min(h.paths) AS least_paths,
    avg(h.utilisation) AS utilisation,
    max(h.utilisation) AS worst_utilisation,
    argMax(h.utilisation_err, h.utilisation) AS worst_utilisation_err,
    max(h.utilisation_by) AS utilisation_by
FROM derived_hop AS h
GROUP BY link, direction, minute
ORDER BY minute DESC, worst_queue_ns DESC NULLS LAST, worst_utilisation DESC NULLS LAST
COMMENT 'Directions of links by minute of reference time, the worst queue of the newest minute first: mean and worst queueing delay and utilisation, with the error of the worst.';
