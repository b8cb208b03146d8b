-- raw_probe in parts that compress: 14 bytes a row before, 12 and less now (docs/archive.md has them by column). The
-- rules are in sdfstream/archive/packing.py; every column of the contract, and t1..t4 as instants, are ALIAS columns.
--
-- `high` and `low` columns are storage: read the ALIAS columns. bus_at is alike in all paths of a host and message, which
-- the codec finds again over 16 MiB; it costs 0.6 bytes a row without.
--
-- Rows move from the old table: first the tables change names, so that nothing more comes into the old one, then its
-- rows go to a table beside, then all at once into the new one. A crash in between repeats what is not done.

CREATE TABLE IF NOT EXISTS raw_probe_0007
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
ENGINE = MergeTree
PARTITION BY toStartOfHour(bus_at)
ORDER BY (src, dst, transport, path, dscp_sent, t1_slot, t1_low)
SETTINGS
    index_granularity = 16384,
    non_replicated_deduplication_window = 1000,
    min_bytes_for_wide_part = 268435456,
    ttl_only_drop_parts = 1,
    merge_with_ttl_timeout = 300
COMMENT 'One row per probe exchange, answered or timed out.';

-- only if: SELECT count() FROM system.columns WHERE database = currentDatabase() AND table = 'raw_probe' AND name = 't31_ns' AND default_kind = ''
EXCHANGE TABLES raw_probe AND raw_probe_0007;

CREATE TABLE IF NOT EXISTS raw_probe_moving AS raw_probe;

-- only if: SELECT count() FROM system.columns WHERE database = currentDatabase() AND table = 'raw_probe_0007' AND name = 't31_ns' AND default_kind = ''
TRUNCATE TABLE raw_probe_moving;

-- only if: SELECT count() FROM system.columns WHERE database = currentDatabase() AND table = 'raw_probe_0007' AND name = 't31_ns' AND default_kind = ''
INSERT INTO raw_probe_moving (src, dst, clock_src, clock_dst, transport, path, seq, t1_slot, t1_low, ahead_ns, turn_high, turn_low, rtt_high, rtt_low, t1_kind, t2_kind, t3_kind, t4_kind, dscp_sent, ecn_sent, dscp_fwd, ecn_fwd, dscp_rev, ecn_rev, size_bytes, ttl_fwd, ttl_rev, tx_high, tx_low, rx_high, rx_low, plane, bus_at, bus_seq, bus_key, bus_id, boot_id, batch_seq)
SELECT
    src,
    dst,
    clock_src,
    clock_dst,
    transport,
    path,
    seq,
    bitShiftRight(toUnixTimestamp64Nano(t1), 20),
    bitAnd(toUnixTimestamp64Nano(t1), 1048575),
    t21_ns - ifNull(bitShiftRight((t41_ns - ifNull(t31_ns - t21_ns, 0)), 1), 0),
    bitShiftRight((t31_ns - ifNull(t21_ns, 0)), 9),
    bitAnd(ifNull((t31_ns - ifNull(t21_ns, 0)), 0), 511),
    bitShiftRight((t41_ns - ifNull(t31_ns - t21_ns, 0)), 9),
    bitAnd(ifNull((t41_ns - ifNull(t31_ns - t21_ns, 0)), 0), 511),
    t1_kind,
    t2_kind,
    t3_kind,
    t4_kind,
    dscp_sent,
    ecn_sent,
    dscp_fwd,
    ecn_fwd,
    dscp_rev,
    ecn_rev,
    size_bytes,
    ttl_fwd,
    ttl_rev,
    bitShiftRight(toInt64(tx_host_ns), 9),
    bitAnd(ifNull(toInt64(tx_host_ns), 0), 511),
    bitShiftRight(toInt64(rx_host_ns), 9),
    bitAnd(ifNull(toInt64(rx_host_ns), 0), 511),
    plane,
    bus_at,
    bus_seq,
    bus_key,
    bus_id,
    boot_id,
    batch_seq
FROM raw_probe_0007
SETTINGS max_partitions_per_insert_block = 0;

-- only if: SELECT (SELECT count() FROM raw_probe_moving) > 0 AND (SELECT count() FROM raw_probe WHERE (bus_id, bus_seq, t1_ns) IN (SELECT bus_id, bus_seq, t1_ns FROM raw_probe_moving LIMIT 1)) = 0
ALTER TABLE raw_probe ATTACH PARTITION ALL FROM raw_probe_moving;

-- what an insert of an older sdfstream left there meanwhile stays there
-- only if: SELECT sumIf(total_rows, name = 'raw_probe_0007') <= sumIf(total_rows, name = 'raw_probe_moving') FROM system.tables WHERE database = currentDatabase()
DROP TABLE IF EXISTS raw_probe_0007;

DROP TABLE IF EXISTS raw_probe_moving;
