-- What stays when raw rows go: roll-ups by second, minute and hour, and raw rows around findings.
--
-- owd_1s is made on insert, by a materialized view: an insert repeated with its token changes neither table. owd_1m,
-- owd_1h and clock_1m are finished by sdfstream once their time is over (sdfstream/archive/upkeep.py), which may happen
-- twice: the later row replaces the earlier one. Unknown stays NULL everywhere: a second without a delay has a count of 0
-- and no delays.
--
-- How long each table keeps its rows is no matter of this file but of the settings (retention).

CREATE TABLE IF NOT EXISTS owd_1s_making
(
    at DateTime('UTC') CODEC(Delta, ZSTD(1)) COMMENT 'the second [reference time]',
    src LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'NIC id of the session''s sender',
    dst LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'NIC id of the session''s reflector',
    transport LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'udp, rocev2, ib',
    path UInt32 CODEC(ZSTD(1)) COMMENT 'path selector (UDP source port)',
    dscp UInt8 CODEC(ZSTD(1)) COMMENT 'class, DSCP as sent',
    dir LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'fwd: sender to reflector; rev: reflector to sender',
    n SimpleAggregateFunction(sum, UInt64) CODEC(T64('bit'), ZSTD(1)) COMMENT 'delays in the second',
    lost SimpleAggregateFunction(sum, UInt64) CODEC(T64('bit'), ZSTD(1)) COMMENT 'exchanges that timed out (direction not known)',
    ce SimpleAggregateFunction(sum, UInt64) CODEC(T64('bit'), ZSTD(1)) COMMENT 'packets that arrived with CE',
    owd_min_ns SimpleAggregateFunction(min, Nullable(Int64)) CODEC(Delta, T64('bit'), ZSTD(1)) COMMENT 'smallest delay, to the ns [ns]',
    owd_p50_sum_ns SimpleAggregateFunction(sum, Nullable(Int64)) CODEC(Delta, T64('bit'), ZSTD(1)) COMMENT 'storage: sum of n times the median of each window [ns]',
    owd_p99_ns SimpleAggregateFunction(max, Nullable(Int64)) CODEC(Delta, T64('bit'), ZSTD(1)) COMMENT 'largest 99th percentile of a window, to the ns [ns]',
    owd_max_ns SimpleAggregateFunction(max, Nullable(Int64)) CODEC(Delta, T64('bit'), ZSTD(1)) COMMENT 'largest delay, to the ns [ns]',
    floor_ns SimpleAggregateFunction(min, Nullable(Int64)) CODEC(Delta, T64('bit'), ZSTD(1)) COMMENT 'smallest floor that a window was measured against [ns]',
    err_ns SimpleAggregateFunction(max, Nullable(Int64)) CODEC(Delta, T64('bit'), ZSTD(1)) COMMENT 'widest error bar of a window, to the ns [ns]'
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(at)
ORDER BY (src, dst, transport, path, dscp, dir, at)
SETTINGS
    index_granularity = 16384,
    non_replicated_deduplication_window = 1000,
    min_bytes_for_wide_part = 268435456,
    ttl_only_drop_parts = 1,
    merge_with_ttl_timeout = 300
COMMENT 'derived_owd by second, made on insert. Read v_path_1s: a second may lie here in parts until a merge.';

-- rows that are there already, before anything new comes in by the view
-- only if: SELECT count() = 0 FROM system.tables WHERE database = currentDatabase() AND name = 'owd_1s'
TRUNCATE TABLE owd_1s_making;

-- only if: SELECT count() = 0 FROM system.tables WHERE database = currentDatabase() AND name = 'owd_1s'
INSERT INTO owd_1s_making
(at, src, dst, transport, path, dscp, dir, n, lost, ce, owd_min_ns, owd_p50_sum_ns, owd_p99_ns, owd_max_ns, floor_ns, err_ns)
SELECT
    toDateTime(toStartOfSecond(o.at), 'UTC') AS at,
    o.src AS src, o.dst AS dst, o.transport AS transport, o.path AS path, o.dscp AS dscp, o.dir AS dir,
    sum(toUInt64(o.n)) AS n,
    sum(toUInt64(o.lost)) AS lost,
    sum(toUInt64(o.ce)) AS ce,
    min(if(isFinite(o.owd_min_ns), toInt64(round(o.owd_min_ns)), NULL)) AS owd_min_ns,
    sum(if(isFinite(o.owd_p50_ns * o.n), toInt64(round(o.owd_p50_ns * o.n)), NULL)) AS owd_p50_sum_ns,
    max(if(isFinite(o.owd_p99_ns), toInt64(round(o.owd_p99_ns)), NULL)) AS owd_p99_ns,
    max(if(isFinite(o.owd_max_ns), toInt64(round(o.owd_max_ns)), NULL)) AS owd_max_ns,
    min(if(isFinite(o.owd_p50_ns - o.excess_p50_ns), toInt64(round(o.owd_p50_ns - o.excess_p50_ns)), NULL)) AS floor_ns,
    max(if(isFinite(o.err_ns), toInt64(ceil(o.err_ns)), NULL)) AS err_ns
FROM derived_owd AS o
GROUP BY src, dst, transport, path, dscp, dir, at
SETTINGS max_partitions_per_insert_block = 0;

-- only if: SELECT count() = 0 FROM system.tables WHERE database = currentDatabase() AND name = 'owd_1s'
RENAME TABLE owd_1s_making TO owd_1s;

DROP TABLE IF EXISTS owd_1s_making;

CREATE MATERIALIZED VIEW IF NOT EXISTS owd_1s_of TO owd_1s AS
SELECT
    toDateTime(toStartOfSecond(o.at), 'UTC') AS at,
    o.src AS src, o.dst AS dst, o.transport AS transport, o.path AS path, o.dscp AS dscp, o.dir AS dir,
    sum(toUInt64(o.n)) AS n,
    sum(toUInt64(o.lost)) AS lost,
    sum(toUInt64(o.ce)) AS ce,
    min(if(isFinite(o.owd_min_ns), toInt64(round(o.owd_min_ns)), NULL)) AS owd_min_ns,
    sum(if(isFinite(o.owd_p50_ns * o.n), toInt64(round(o.owd_p50_ns * o.n)), NULL)) AS owd_p50_sum_ns,
    max(if(isFinite(o.owd_p99_ns), toInt64(round(o.owd_p99_ns)), NULL)) AS owd_p99_ns,
    max(if(isFinite(o.owd_max_ns), toInt64(round(o.owd_max_ns)), NULL)) AS owd_max_ns,
    min(if(isFinite(o.owd_p50_ns - o.excess_p50_ns), toInt64(round(o.owd_p50_ns - o.excess_p50_ns)), NULL)) AS floor_ns,
    max(if(isFinite(o.err_ns), toInt64(ceil(o.err_ns)), NULL)) AS err_ns
FROM derived_owd AS o
GROUP BY src, dst, transport, path, dscp, dir, at;

-- the finisher looks for rows of a minute, wherever their path is
ALTER TABLE derived_owd ADD INDEX IF NOT EXISTS at_range at TYPE minmax GRANULARITY 1;

CREATE TABLE IF NOT EXISTS owd_1m
(
    minute DateTime('UTC') CODEC(Delta, ZSTD(1)) COMMENT 'the minute [reference time]',
    src LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'NIC id of the session''s sender',
    dst LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'NIC id of the session''s reflector',
    transport LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'udp, rocev2, ib',
    path UInt32 CODEC(ZSTD(1)) COMMENT 'path selector (UDP source port)',
    dscp UInt8 CODEC(ZSTD(1)) COMMENT 'class, DSCP as sent',
    dir LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'fwd: sender to reflector; rev: reflector to sender',
    n UInt64 CODEC(T64('bit'), ZSTD(1)) COMMENT 'delays in the minute',
    lost UInt64 CODEC(T64('bit'), ZSTD(1)) COMMENT 'exchanges that timed out (direction not known)',
    ce UInt64 CODEC(T64('bit'), ZSTD(1)) COMMENT 'packets that arrived with CE',
    owd_min_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'smallest delay [ns]',
    owd_p50_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'median of the windows'' medians, weighted by n [ns]',
    owd_p99_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT '99th percentile of the windows'' 99th percentiles, weighted by n [ns]',
    owd_max_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'largest delay [ns]',
    excess_p50_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'median over the path''s own floor, weighted by n [ns]',
    err_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'widest error bar [ns]',
    finished_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when this row was made; the later one counts'
)
ENGINE = ReplacingMergeTree(finished_at)
PARTITION BY toDate(minute)
ORDER BY (src, dst, transport, path, dscp, dir, minute)
SETTINGS index_granularity = 16384, ttl_only_drop_parts = 1, merge_with_ttl_timeout = 3600
COMMENT 'derived_owd by minute, finished. Read v_path_1m, which adds the minutes that are not finished yet.';

CREATE TABLE IF NOT EXISTS owd_1h
(
    hour DateTime('UTC') CODEC(Delta, ZSTD(1)) COMMENT 'the hour [reference time]',
    src LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'NIC id of the session''s sender',
    dst LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'NIC id of the session''s reflector',
    transport LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'udp, rocev2, ib',
    path UInt32 CODEC(ZSTD(1)) COMMENT 'path selector (UDP source port)',
    dscp UInt8 CODEC(ZSTD(1)) COMMENT 'class, DSCP as sent',
    dir LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'fwd: sender to reflector; rev: reflector to sender',
    n UInt64 CODEC(T64('bit'), ZSTD(1)) COMMENT 'delays in the hour',
    lost UInt64 CODEC(T64('bit'), ZSTD(1)) COMMENT 'exchanges that timed out (direction not known)',
    ce UInt64 CODEC(T64('bit'), ZSTD(1)) COMMENT 'packets that arrived with CE',
    seconds UInt16 CODEC(ZSTD(1)) COMMENT 'seconds with at least one delay',
    owd_min_ns Nullable(Int64) CODEC(T64('bit'), ZSTD(1)) COMMENT 'smallest delay [ns]',
    owd_max_ns Nullable(Int64) CODEC(T64('bit'), ZSTD(1)) COMMENT 'largest delay [ns]',
    err_ns Nullable(Int64) CODEC(T64('bit'), ZSTD(1)) COMMENT 'widest error bar [ns]',
    typical AggregateFunction(quantilesDD(0.01, 0.5, 0.9, 0.99), Float64) CODEC(ZSTD(3)) COMMENT 'sketch of the seconds'' typical delay: quantilesDDMerge(0.01, 0.5, 0.9, 0.99)(typical)',
    worst AggregateFunction(quantilesDD(0.01, 0.5, 0.9, 0.99), Float64) CODEC(ZSTD(3)) COMMENT 'sketch of the seconds'' largest delay',
    finished_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when this row was made; the later one counts'
)
ENGINE = ReplacingMergeTree(finished_at)
PARTITION BY toYYYYMM(hour)
ORDER BY (src, dst, transport, path, dscp, dir, hour)
SETTINGS ttl_only_drop_parts = 1, merge_with_ttl_timeout = 3600
COMMENT 'owd_1s by hour, with sketches that can be merged over hours and paths (v_path_1h).';

CREATE TABLE IF NOT EXISTS clock_1m
(
    clock LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'clock id',
    kind LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'causal, smoothed',
    minute DateTime('UTC') CODEC(Delta, ZSTD(1)) COMMENT 'the minute [bus time]',
    updates UInt64 CODEC(ZSTD(1)) COMMENT 'rows of state_clock',
    offset_avg_ns Float64 CODEC(ZSTD(1)) COMMENT 'that clock − reference, mean [ns]',
    offset_min_ns Float64 CODEC(ZSTD(1)) COMMENT 'smallest [ns]',
    offset_max_ns Float64 CODEC(ZSTD(1)) COMMENT 'largest [ns]',
    skew_avg_ppb Float64 CODEC(ZSTD(1)) COMMENT 'positive: that clock runs fast, mean [ppb]',
    err_p50_ns Float64 CODEC(ZSTD(1)) COMMENT 'error bar, median [ns]',
    err_max_ns Float64 CODEC(ZSTD(1)) COMMENT 'error bar, widest [ns]',
    synced_share Float64 CODEC(ZSTD(1)) COMMENT 'share of rows with status synced',
    statuses Array(LowCardinality(String)) CODEC(ZSTD(1)) COMMENT 'every status of the minute',
    finished_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when this row was made; the later one counts'
)
ENGINE = ReplacingMergeTree(finished_at)
PARTITION BY toYYYYMM(minute)
ORDER BY (clock, kind, minute)
SETTINGS ttl_only_drop_parts = 1, merge_with_ttl_timeout = 3600
COMMENT 'state_clock by minute, finished. Read v_clock_1m, which adds the minutes that are not finished yet.';

-- state_clock grows with every clock ten times a second: by the hour now, so that it can age
CREATE TABLE IF NOT EXISTS state_clock_0008
(
    clock LowCardinality(String) COMMENT 'clock id',
    at DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'the instant the row speaks of [that clock''s reading]',
    offset_ns Float64 CODEC(ZSTD(1)) COMMENT 'that clock − reference [ns]',
    skew_ppb Float64 CODEC(ZSTD(1)) COMMENT 'positive: that clock runs fast [ppb]',
    err_ns Float64 CODEC(ZSTD(1)) COMMENT '|true offset error| is at most this at 99.9 % [ns]',
    n UInt32 CODEC(ZSTD(1)) COMMENT 'samples behind the row',
    status LowCardinality(String) COMMENT 'synced, holdover, unsynced, faulty',
    kind LowCardinality(String) COMMENT 'causal, smoothed',
    bus_at DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when the message entered the bus',
    bus_seq UInt64 CODEC(Delta, ZSTD(1)) COMMENT 'message number in its topic and bus; rows of one message share it',
    bus_key LowCardinality(String) COMMENT 'the message''s key: mesh',
    bus_id LowCardinality(String) COMMENT 'which bus numbered it: one run of the in-process bus, or a Kafka cluster',
    boot_id LowCardinality(Nullable(String)) COMMENT 'the producer''s run; NULL when not known',
    batch_seq Nullable(Int64) CODEC(Delta, ZSTD(1)) COMMENT 'the producer''s own message number; NULL when not known',
    bus_at_ns Int64 ALIAS toUnixTimestamp64Nano(bus_at),
    at_ns Int64 ALIAS toUnixTimestamp64Nano(at)
)
ENGINE = MergeTree
PARTITION BY toStartOfHour(bus_at)
ORDER BY (kind, clock, at)
SETTINGS
    non_replicated_deduplication_window = 1000,
    min_bytes_for_wide_part = 268435456,
    ttl_only_drop_parts = 1,
    merge_with_ttl_timeout = 300
COMMENT 'One row per clock and update. causal rows come every 100 ms of bus time; smoothed rows lie 2–4 s back.';

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'state_clock' AND partition_key = 'toYYYYMM(bus_at)'
EXCHANGE TABLES state_clock AND state_clock_0008;

CREATE TABLE IF NOT EXISTS state_clock_moving AS state_clock;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'state_clock_0008' AND partition_key = 'toYYYYMM(bus_at)'
TRUNCATE TABLE state_clock_moving;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'state_clock_0008' AND partition_key = 'toYYYYMM(bus_at)'
INSERT INTO state_clock_moving (clock, at, offset_ns, skew_ppb, err_ns, n, status, kind, bus_at, bus_seq, bus_key, bus_id, boot_id, batch_seq)
SELECT clock, at, offset_ns, skew_ppb, err_ns, n, status, kind, bus_at, bus_seq, bus_key, bus_id, boot_id, batch_seq
FROM state_clock_0008
SETTINGS max_partitions_per_insert_block = 0;

-- only if: SELECT (SELECT count() FROM state_clock_moving) > 0 AND (SELECT count() FROM state_clock WHERE (bus_id, bus_seq, at) IN (SELECT bus_id, bus_seq, at FROM state_clock_moving LIMIT 1)) = 0
ALTER TABLE state_clock ATTACH PARTITION ALL FROM state_clock_moving;

-- what an insert of an older sdfstream left there meanwhile stays there
-- only if: SELECT sumIf(total_rows, name = 'state_clock_0008') <= sumIf(total_rows, name = 'state_clock_moving') FROM system.tables WHERE database = currentDatabase()
DROP TABLE IF EXISTS state_clock_0008;

DROP TABLE IF EXISTS state_clock_moving;

-- raw rows around findings: copied there before they age, any number of times
CREATE TABLE IF NOT EXISTS raw_probe_kept
(
    src LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'NIC id of the Session-Sender',
    dst LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'NIC id of the Session-Reflector',
    clock_src LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'clock that made t1 and t4',
    clock_dst LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'clock that made t2 and t3',
    transport LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'udp, rocev2, ib',
    path UInt32 CODEC(ZSTD(1)) COMMENT 'path selector (UDP source port)',
    seq UInt32 CODEC(Delta, ZSTD(1)) COMMENT 'sequence number',
    t1_slot Int64 CODEC(Delta, T64('byte'), ZSTD(1)) COMMENT 'storage: t1 >> 20, slots of 1.05 ms',
    t1_low UInt32 CODEC(T64('bit')) COMMENT 'storage: the last 20 bits of t1',
    ahead_ns Nullable(Int64) CODEC(Delta, T64('bit'), ZSTD(1)) COMMENT 't2 - t1 - half the round trip: how far clock_dst seems ahead; t2 - t1 where that is unknown [ns]',
    turn_high Nullable(Int64) CODEC(T64('byte'), ZSTD(1)) COMMENT 'storage: t3 - t2; t3 - t1 where t2 is unknown; >> 9',
    turn_low UInt16 CODEC(T64('bit')) COMMENT 'storage: its last 9 bits',
    rtt_high Nullable(Int64) CODEC(T64('byte'), ZSTD(1)) COMMENT 'storage: t4 - t1 - turn; t4 - t1 where t2 or t3 is unknown; >> 9',
    rtt_low UInt16 CODEC(T64('bit')) COMMENT 'storage: its last 9 bits',
    t1_kind UInt8 CODEC(ZSTD(1)) COMMENT '0 user space, 1 kernel, 2 NIC hardware, 255 none',
    t2_kind UInt8 CODEC(ZSTD(1)) COMMENT '0 user space, 1 kernel, 2 NIC hardware, 255 none',
    t3_kind UInt8 CODEC(ZSTD(1)) COMMENT '0 user space, 1 kernel, 2 NIC hardware, 255 none',
    t4_kind UInt8 CODEC(ZSTD(1)) COMMENT '0 user space, 1 kernel, 2 NIC hardware, 255 none',
    dscp_sent UInt8 CODEC(ZSTD(1)) COMMENT 'DSCP as sent',
    ecn_sent UInt8 CODEC(ZSTD(1)) COMMENT 'ECN as sent: 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE',
    dscp_fwd Nullable(UInt8) CODEC(ZSTD(1)) COMMENT 'DSCP on arrival at the reflector',
    ecn_fwd Nullable(UInt8) CODEC(ZSTD(1)) COMMENT 'ECN on arrival at the reflector',
    dscp_rev Nullable(UInt8) CODEC(ZSTD(1)) COMMENT 'DSCP on arrival at the sender',
    ecn_rev Nullable(UInt8) CODEC(ZSTD(1)) COMMENT 'ECN on arrival at the sender',
    size_bytes UInt16 CODEC(ZSTD(1)) COMMENT 'IP packet size [bytes]',
    ttl_fwd Nullable(UInt8) CODEC(ZSTD(1)) COMMENT 'TTL or hop limit on arrival at the reflector',
    ttl_rev Nullable(UInt8) CODEC(ZSTD(1)) COMMENT 'TTL or hop limit on arrival at the sender',
    tx_high Nullable(Int64) CODEC(ZSTD(3)) COMMENT 'storage: tx_host_ns >> 9',
    tx_low UInt16 CODEC(T64('bit')) COMMENT 'storage: its last 9 bits',
    rx_high Nullable(Int64) CODEC(ZSTD(3)) COMMENT 'storage: rx_host_ns >> 9',
    rx_low UInt16 CODEC(T64('bit')) COMMENT 'storage: its last 9 bits',
    plane LowCardinality(Nullable(String)) CODEC(ZSTD(1)) COMMENT 'backend, frontend, …',
    bus_at DateTime64(9, 'UTC') CODEC(Delta, ZSTD(3, 24)) COMMENT 'when the message entered the bus' SETTINGS (min_compress_block_size = 16777216, max_compress_block_size = 16777216),
    bus_seq UInt64 CODEC(Delta, ZSTD(3)) COMMENT 'message number in its topic and bus; rows of one message share it',
    bus_key LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'the message''s key: the agent''s host',
    bus_id LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'which bus numbered it: one run of the in-process bus, or a Kafka cluster',
    boot_id LowCardinality(Nullable(String)) CODEC(ZSTD(1)) COMMENT 'the producer''s run; NULL when not known',
    batch_seq Nullable(Int64) CODEC(Delta, ZSTD(3)) COMMENT 'the producer''s own message number; NULL when not known',
    bus_at_ns Int64 ALIAS toUnixTimestamp64Nano(bus_at),
    t1_ns Int64 ALIAS bitShiftLeft(t1_slot, 20) + t1_low,
    t1 DateTime64(9, 'UTC') ALIAS fromUnixTimestamp64Nano(bitShiftLeft(t1_slot, 20) + t1_low, 'UTC') COMMENT 'probe leaves the sender [clock_src]',
    t21_ns Nullable(Int64) ALIAS ahead_ns + ifNull(bitShiftRight(bitShiftLeft(rtt_high, 9) + rtt_low, 1), 0) COMMENT 't2 - t1 as stamped, two clocks [ns]',
    t31_ns Nullable(Int64) ALIAS bitShiftLeft(turn_high, 9) + turn_low + ifNull(t21_ns, 0) COMMENT 't3 - t1 as stamped, two clocks [ns]',
    t41_ns Nullable(Int64) ALIAS bitShiftLeft(rtt_high, 9) + rtt_low + ifNull(t31_ns - t21_ns, 0) COMMENT 't4 - t1, one clock [ns]',
    tx_host_ns Nullable(Int32) ALIAS toInt32(bitShiftLeft(tx_high, 9) + tx_low) COMMENT 'delay inside the sending host: kernel − user [ns]',
    rx_host_ns Nullable(Int32) ALIAS toInt32(bitShiftLeft(rx_high, 9) + rx_low) COMMENT 'delay inside the receiving host: user − kernel [ns]',
    t2 Nullable(DateTime64(9, 'UTC')) ALIAS fromUnixTimestamp64Nano(t1_ns + t21_ns, 'UTC') COMMENT 'arrives at the reflector [clock_dst]',
    t2_ns Nullable(Int64) ALIAS t1_ns + t21_ns,
    t3 Nullable(DateTime64(9, 'UTC')) ALIAS fromUnixTimestamp64Nano(t1_ns + t31_ns, 'UTC') COMMENT 'leaves the reflector [clock_dst]',
    t3_ns Nullable(Int64) ALIAS t1_ns + t31_ns,
    t4 Nullable(DateTime64(9, 'UTC')) ALIAS fromUnixTimestamp64Nano(t1_ns + t41_ns, 'UTC') COMMENT 'answer arrives [clock_src]',
    t4_ns Nullable(Int64) ALIAS t1_ns + t41_ns,
    turn_ns Nullable(Int64) ALIAS t31_ns - t21_ns COMMENT 'time inside the reflector: t3 - t2 [ns]',
    rtt_ns Nullable(Int64) ALIAS t41_ns - (t31_ns - t21_ns) COMMENT 'round trip without the reflector''s turn [ns]'
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(bus_at)
ORDER BY (src, dst, transport, path, dscp_sent, t1_slot, t1_low, seq, bus_id, bus_seq)
PRIMARY KEY (src, dst, transport, path, dscp_sent, t1_slot)
SETTINGS
    index_granularity = 16384,
    non_replicated_deduplication_window = 1000,
    min_bytes_for_wide_part = 268435456,
    ttl_only_drop_parts = 1,
    merge_with_ttl_timeout = 300
COMMENT 'Rows of raw_probe around findings, kept longer. Read v_probe_kept: a row may lie here twice until a merge.';

CREATE TABLE IF NOT EXISTS derived_owd_kept
(
    at DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'window start [reference time]',
    window_ns Int64 CODEC(ZSTD(1)) COMMENT 'window length [ns]',
    src LowCardinality(String) COMMENT 'NIC id of the session''s sender',
    dst LowCardinality(String) COMMENT 'NIC id of the session''s reflector',
    transport LowCardinality(String) COMMENT 'udp, rocev2, ib',
    path UInt32 CODEC(ZSTD(1)) COMMENT 'path selector (UDP source port)',
    dscp UInt8 CODEC(ZSTD(1)) COMMENT 'class, DSCP as sent',
    dir LowCardinality(String) COMMENT 'fwd: sender to reflector; rev: reflector to sender',
    n UInt32 CODEC(ZSTD(1)) COMMENT 'delays in the window',
    lost UInt32 CODEC(ZSTD(1)) COMMENT 'exchanges of the window that timed out (direction not known)',
    ce UInt32 CODEC(ZSTD(1)) COMMENT 'packets that arrived with CE',
    owd_min_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'smallest delay [ns]',
    owd_p50_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'median delay [ns]',
    owd_p99_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT '99th percentile [ns]',
    owd_max_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'largest delay [ns]',
    excess_p50_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'median over the path''s own floor [ns]',
    err_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'error bar of the delays: clocks of both ends [ns]',
    bus_at DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when the message entered the bus',
    bus_seq UInt64 CODEC(Delta, ZSTD(1)) COMMENT 'message number in its topic and bus; rows of one message share it',
    bus_key LowCardinality(String) COMMENT 'the message''s key: the sender''s host',
    bus_id LowCardinality(String) COMMENT 'which bus numbered it: one run of the in-process bus, or a Kafka cluster',
    boot_id LowCardinality(Nullable(String)) COMMENT 'the producer''s run; NULL when not known',
    batch_seq Nullable(Int64) CODEC(Delta, ZSTD(1)) COMMENT 'the producer''s own message number; NULL when not known',
    bus_at_ns Int64 ALIAS toUnixTimestamp64Nano(bus_at),
    at_ns Int64 ALIAS toUnixTimestamp64Nano(at)
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(bus_at)
ORDER BY (src, dst, transport, path, dscp, dir, at, bus_id, bus_seq)
PRIMARY KEY (src, dst, transport, path, dscp, dir, at)
SETTINGS
    non_replicated_deduplication_window = 1000,
    min_bytes_for_wide_part = 268435456,
    ttl_only_drop_parts = 1,
    merge_with_ttl_timeout = 300
COMMENT 'Rows of derived_owd around findings, kept longer. Read v_owd_kept: a row may lie here twice until a merge.';

CREATE TABLE IF NOT EXISTS kept_window
(
    finding String CODEC(ZSTD(1)) COMMENT 'finding id',
    status LowCardinality(String) COMMENT 'which statement: open, resolved',
    subject String CODEC(ZSTD(1)) COMMENT 'type and id of what the finding is about',
    from_at DateTime64(9, 'UTC') COMMENT 'rows from here [bus time]',
    to_at DateTime64(9, 'UTC') COMMENT 'to here [bus time]',
    paths UInt32 COMMENT 'path ids kept',
    left_out UInt32 COMMENT 'path ids that the finding is about as well, beyond the limit',
    probes UInt64 COMMENT 'rows of raw_probe copied',
    windows UInt64 COMMENT 'rows of derived_owd copied',
    kept_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'when'
)
ENGINE = ReplacingMergeTree(kept_at)
PARTITION BY toYYYYMM(to_at)
ORDER BY (finding, status, to_at)
COMMENT 'What was kept of raw rows, by finding and statement.';

CREATE TABLE IF NOT EXISTS replayed
(
    bus_id String COMMENT 'the replay',
    at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'when'
)
ENGINE = MergeTree
ORDER BY at
COMMENT 'Replays into this archive: where there is one, no row ages, since time to live goes by the wall clock.';
