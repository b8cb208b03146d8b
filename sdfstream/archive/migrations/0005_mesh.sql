-- sdf.state.mesh.v1
CREATE TABLE IF NOT EXISTS state_mesh
(
    host LowCardinality(String) COMMENT 'the agent''s host',
    version Nullable(String) CODEC(ZSTD(1)) COMMENT 'changes when what is to be probed does',
    epoch Nullable(Int64) CODEC(ZSTD(1)) COMMENT 'which redraw of the graph it is of',
    drawn_at Nullable(DateTime64(9, 'UTC')) CODEC(Delta, ZSTD(1)) COMMENT 'when it was drawn [bus time]',
    sessions Nullable(UInt32) CODEC(ZSTD(1)) COMMENT 'sessions that the host sends; data lists them',
    budget_pps Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'what the host may send, probes and answers [packets/s]',
    send_pps Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'probes that it sends by this plan [packets/s]',
    answer_pps Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'answers that this plan asks of it [packets/s]',
    event_id String CODEC(ZSTD(1)) COMMENT 'CloudEvents id; a repeat carries the same',
    event_type LowCardinality(String) COMMENT 'CloudEvents type',
    event_source LowCardinality(String) COMMENT 'CloudEvents source: an agent''s host or a stage',
    event_time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'CloudEvents time',
    data String CODEC(ZSTD(3)) COMMENT 'the whole payload as JSON',
    bus_at DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when the message entered the bus',
    bus_seq UInt64 CODEC(Delta, ZSTD(1)) COMMENT 'message number in its topic and bus',
    bus_key String CODEC(ZSTD(1)) COMMENT 'the message''s key: the agent''s host',
    bus_id LowCardinality(String) COMMENT 'which bus numbered it: one run of the in-process bus, or a Kafka cluster',
    boot_id LowCardinality(Nullable(String)) COMMENT 'the producer''s run; NULL when not known',
    batch_seq Nullable(Int64) CODEC(Delta, ZSTD(1)) COMMENT 'the producer''s own message number; NULL when not known',
    bus_at_ns Int64 ALIAS toUnixTimestamp64Nano(bus_at),
    event_time_ns Int64 ALIAS toUnixTimestamp64Nano(event_time),
    drawn_at_ns Nullable(Int64) ALIAS toUnixTimestamp64Nano(drawn_at)
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(bus_at)
ORDER BY (host, bus_at, bus_seq)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'The mesh plan, one row per host and statement; the newest of a host is in force.';

CREATE OR REPLACE VIEW v_mesh AS
SELECT
    m.host AS host,
    m.at AS at,
    JSONExtractString(s, 'src') AS src,
    JSONExtractString(s, 'dst') AS dst,
    toUInt32(JSONExtractUInt(s, 'path')) AS path,
    toUInt8(JSONExtractUInt(s, 'dscp')) AS dscp,
    JSONExtractFloat(s, 'rate_hz') AS rate_hz,
    JSONExtractString(s, 'purpose') AS purpose
FROM
(
    SELECT host, argMax(data, (bus_at, bus_seq)) AS last, max(bus_at) AS at
    FROM state_mesh
    GROUP BY host
) AS m
ARRAY JOIN JSONExtractArrayRaw(m.last, 'sessions') AS s
COMMENT 'Who probes whom by the mesh plan in force: one row per session.';
