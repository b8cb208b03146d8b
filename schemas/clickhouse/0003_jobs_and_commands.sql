-- Jobs, queue pairs in band, and what was commanded; the rules are those of 0001_tables.sql.
--
-- The instants of a chunk are kept as sent_at and the differences to it, exactly; arrived_at, completed_at and
-- acknowledged_at (and the same with _ns) are ALIAS columns. Raw and derived rows age. What was commanded, what became
-- of it and an operator's hand never do: they are the record of who did what and why.

-- sdf.raw.qp.v1
CREATE TABLE IF NOT EXISTS raw_qp
(
    sent_at DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'first packet leaves the sender [clock_src]',
    job LowCardinality(String) COMMENT 'job id',
    rank UInt32 CODEC(ZSTD(1)) COMMENT 'rank that sends',
    peer_rank UInt32 CODEC(ZSTD(1)) COMMENT 'rank that receives',
    qp LowCardinality(String) COMMENT 'QP id host/nic#number',
    src LowCardinality(String) COMMENT 'NIC id that sends',
    dst LowCardinality(String) COMMENT 'NIC id that receives',
    clock_src LowCardinality(String) COMMENT 'clock that made sent_at, acknowledged_at',
    clock_dst LowCardinality(String) COMMENT 'clock that made arrived_at, completed_at',
    transport LowCardinality(String) COMMENT 'udp, rocev2, ib, tcp',
    path UInt32 CODEC(ZSTD(1)) COMMENT 'source port that the chunk''s last packet left with',
    dst_port UInt16 CODEC(ZSTD(1)) COMMENT 'destination port',
    dscp UInt8 CODEC(ZSTD(1)) COMMENT 'class, DSCP as sent',
    collective LowCardinality(Nullable(String)) COMMENT 'all-reduce, all-to-all, …; null: not told',
    collective_id Nullable(UInt64) CODEC(Delta, ZSTD(1)) COMMENT 'which of the job''s collectives',
    chunk UInt64 CODEC(Delta, ZSTD(1)) COMMENT 'number within the queue pair',
    bytes UInt64 CODEC(ZSTD(1)) COMMENT 'payload [bytes]',
    packets UInt32 CODEC(ZSTD(1)) COMMENT 'packets that the payload needs',
    arrived_after_ns Nullable(Int64) CODEC(T64('bit'), ZSTD(1)) COMMENT 'arrived_at - sent_at as stamped, two clocks [ns]',
    completed_after_ns Nullable(Int64) CODEC(T64('bit'), ZSTD(1)) COMMENT 'completed_at - sent_at as stamped, two clocks [ns]',
    acknowledged_after_ns Nullable(Int64) CODEC(T64('bit'), ZSTD(1)) COMMENT 'acknowledged_at - sent_at as stamped, one clock [ns]',
    ce Nullable(UInt32) CODEC(ZSTD(1)) COMMENT 'packets that arrived with CE',
    retransmits Nullable(UInt32) CODEC(ZSTD(1)) COMMENT 'packets sent again',
    bus_at DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when the message entered the bus',
    bus_seq UInt64 CODEC(Delta, ZSTD(1)) COMMENT 'message number in its topic and bus; rows of one message share it',
    bus_key LowCardinality(String) COMMENT 'the message''s key: the sender''s host',
    bus_id LowCardinality(String) COMMENT 'which bus numbered it: one run of the in-process bus, or a Kafka cluster',
    boot_id LowCardinality(Nullable(String)) COMMENT 'the producer''s run; NULL when not known',
    batch_seq Nullable(Int64) CODEC(Delta, ZSTD(1)) COMMENT 'the producer''s own message number; NULL when not known',
    bus_at_ns Int64 ALIAS toUnixTimestamp64Nano(bus_at),
    sent_at_ns Int64 ALIAS toUnixTimestamp64Nano(sent_at),
    arrived_at Nullable(DateTime64(9, 'UTC')) ALIAS fromUnixTimestamp64Nano(toUnixTimestamp64Nano(sent_at) + arrived_after_ns, 'UTC') COMMENT 'first packet arrives [clock_dst]',
    arrived_at_ns Nullable(Int64) ALIAS toUnixTimestamp64Nano(sent_at) + arrived_after_ns,
    completed_at Nullable(DateTime64(9, 'UTC')) ALIAS fromUnixTimestamp64Nano(toUnixTimestamp64Nano(sent_at) + completed_after_ns, 'UTC') COMMENT 'last one arrives [clock_dst]',
    completed_at_ns Nullable(Int64) ALIAS toUnixTimestamp64Nano(sent_at) + completed_after_ns,
    acknowledged_at Nullable(DateTime64(9, 'UTC')) ALIAS fromUnixTimestamp64Nano(toUnixTimestamp64Nano(sent_at) + acknowledged_after_ns, 'UTC') COMMENT 'sender knows [clock_src]',
    acknowledged_at_ns Nullable(Int64) ALIAS toUnixTimestamp64Nano(sent_at) + acknowledged_after_ns
)
ENGINE = MergeTree
PARTITION BY toStartOfHour(bus_at)
ORDER BY (job, qp, sent_at)
SETTINGS
    non_replicated_deduplication_window = 1000,
    min_bytes_for_wide_part = 268435456,
    ttl_only_drop_parts = 1,
    merge_with_ttl_timeout = 300
COMMENT 'In band: one row per chunk that a queue pair carried; of a kernel flow one row per interval.';

-- sdf.derived.qp.v1
CREATE TABLE IF NOT EXISTS derived_qp
(
    at DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'window start [reference time]',
    window_ns Int64 CODEC(ZSTD(1)) COMMENT 'window length [ns]',
    job LowCardinality(String) COMMENT 'job id',
    rank UInt32 CODEC(ZSTD(1)) COMMENT 'rank that sends',
    peer_rank UInt32 CODEC(ZSTD(1)) COMMENT 'rank that receives',
    qp LowCardinality(String) COMMENT 'QP id host/nic#number',
    src LowCardinality(String) COMMENT 'NIC id that sends',
    dst LowCardinality(String) COMMENT 'NIC id that receives',
    transport LowCardinality(String) COMMENT 'udp, rocev2, ib, tcp',
    path UInt32 CODEC(ZSTD(1)) COMMENT 'source port of the window''s last chunk',
    dst_port UInt16 CODEC(ZSTD(1)) COMMENT 'destination port',
    dscp UInt8 CODEC(ZSTD(1)) COMMENT 'class, DSCP as sent',
    n UInt32 CODEC(ZSTD(1)) COMMENT 'chunks acknowledged in the window',
    bytes UInt64 CODEC(ZSTD(1)) COMMENT 'their payload [bytes]',
    packets UInt32 CODEC(ZSTD(1)) COMMENT 'packets that it needs',
    ce Nullable(UInt32) CODEC(ZSTD(1)) COMMENT 'packets that arrived with CE',
    retransmits Nullable(UInt32) CODEC(ZSTD(1)) COMMENT 'packets sent again',
    owd_min_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'smallest one-way delay of a first packet [ns]',
    owd_p50_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'median one-way delay of first packets [ns]',
    owd_max_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'largest [ns]',
    duration_p50_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'median from first send to acknowledgement [ns]',
    duration_max_ns Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'longest [ns]',
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
ENGINE = MergeTree
PARTITION BY toStartOfHour(bus_at)
ORDER BY (job, qp, at)
SETTINGS
    non_replicated_deduplication_window = 1000,
    min_bytes_for_wide_part = 268435456,
    ttl_only_drop_parts = 1,
    merge_with_ttl_timeout = 300
COMMENT 'What a queue pair got: one row per queue pair and window (100 ms by default).';

-- sdf.state.job.v1
CREATE TABLE IF NOT EXISTS state_job
(
    job LowCardinality(String) COMMENT 'job id',
    host LowCardinality(String) COMMENT 'whose share of the job it is',
    state LowCardinality(String) COMMENT 'running, ended',
    name Nullable(String) CODEC(ZSTD(1)) COMMENT 'what a person calls it',
    since_at Nullable(DateTime64(9, 'UTC')) CODEC(Delta, ZSTD(1)) COMMENT 'in this state since [the host''s clock]',
    seen_at Nullable(DateTime64(9, 'UTC')) CODEC(Delta, ZSTD(1)) COMMENT 'when the agent said so [the host''s clock]',
    source LowCardinality(Nullable(String)) COMMENT 'dropdir, process',
    ranks Nullable(UInt32) CODEC(ZSTD(1)) COMMENT 'ranks on this host; data lists them',
    qps Nullable(UInt32) CODEC(ZSTD(1)) COMMENT 'queue pairs that send from this host; data lists them',
    receives Nullable(UInt32) CODEC(ZSTD(1)) COMMENT 'queue pairs that end on this host; data lists them',
    control Nullable(String) CODEC(ZSTD(1)) COMMENT 'control socket of the process that owns the queue pairs; empty: none',
    event_id String CODEC(ZSTD(1)) COMMENT 'CloudEvents id; a repeat carries the same',
    event_type LowCardinality(String) COMMENT 'CloudEvents type',
    event_source LowCardinality(String) COMMENT 'CloudEvents source: an agent''s host or a stage',
    event_time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'CloudEvents time',
    data String CODEC(ZSTD(3)) COMMENT 'the whole payload as JSON',
    bus_at DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when the message entered the bus',
    bus_seq UInt64 CODEC(Delta, ZSTD(1)) COMMENT 'message number in its topic and bus',
    bus_key String CODEC(ZSTD(1)) COMMENT 'the message''s key: job@host',
    bus_id LowCardinality(String) COMMENT 'which bus numbered it: one run of the in-process bus, or a Kafka cluster',
    boot_id LowCardinality(Nullable(String)) COMMENT 'the producer''s run; NULL when not known',
    batch_seq Nullable(Int64) CODEC(Delta, ZSTD(1)) COMMENT 'the producer''s own message number; NULL when not known',
    bus_at_ns Int64 ALIAS toUnixTimestamp64Nano(bus_at),
    event_time_ns Int64 ALIAS toUnixTimestamp64Nano(event_time),
    since_at_ns Nullable(Int64) ALIAS toUnixTimestamp64Nano(since_at),
    seen_at_ns Nullable(Int64) ALIAS toUnixTimestamp64Nano(seen_at)
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(bus_at)
ORDER BY (job, host, bus_at, bus_seq)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'One host''s share of a job, one row per statement. A job is the union of its parts.';

-- sdf.control.command.v1
CREATE TABLE IF NOT EXISTS control_command
(
    id String CODEC(ZSTD(1)) COMMENT 'command id; a renewal repeats it',
    epoch Nullable(Int64) CODEC(ZSTD(1)) COMMENT 'fencing: the controller''s run',
    issued_at Nullable(DateTime64(9, 'UTC')) CODEC(Delta, ZSTD(1)) COMMENT 'when this statement was issued [bus time]',
    expires_at Nullable(DateTime64(9, 'UTC')) CODEC(Delta, ZSTD(1)) COMMENT 'end of the lease [bus time]',
    mode LowCardinality(Nullable(String)) COMMENT 'observe, dry-run, approve, enforce',
    action LowCardinality(Nullable(String)) COMMENT 'steer, failover, failback, throttle, slice, undo',
    target_type LowCardinality(Nullable(String)) COMMENT 'qp, job, command',
    target_id Nullable(String) CODEC(ZSTD(1)) COMMENT 'what it is done to',
    target_host LowCardinality(Nullable(String)) COMMENT 'where it is done',
    job LowCardinality(Nullable(String)) COMMENT 'job id',
    reason Array(String) CODEC(ZSTD(1)) COMMENT 'ids of the findings behind it',
    key_id LowCardinality(Nullable(String)) COMMENT 'whose key signed it; the signature is in data',
    event_id String CODEC(ZSTD(1)) COMMENT 'CloudEvents id; a repeat carries the same',
    event_type LowCardinality(String) COMMENT 'CloudEvents type',
    event_source LowCardinality(String) COMMENT 'CloudEvents source: an agent''s host or a stage',
    event_time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'CloudEvents time',
    data String CODEC(ZSTD(3)) COMMENT 'the whole payload as JSON',
    bus_at DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when the message entered the bus',
    bus_seq UInt64 CODEC(Delta, ZSTD(1)) COMMENT 'message number in its topic and bus',
    bus_key String CODEC(ZSTD(1)) COMMENT 'the message''s key: the target''s host',
    bus_id LowCardinality(String) COMMENT 'which bus numbered it: one run of the in-process bus, or a Kafka cluster',
    boot_id LowCardinality(Nullable(String)) COMMENT 'the producer''s run; NULL when not known',
    batch_seq Nullable(Int64) CODEC(Delta, ZSTD(1)) COMMENT 'the producer''s own message number; NULL when not known',
    bus_at_ns Int64 ALIAS toUnixTimestamp64Nano(bus_at),
    event_time_ns Int64 ALIAS toUnixTimestamp64Nano(event_time),
    issued_at_ns Nullable(Int64) ALIAS toUnixTimestamp64Nano(issued_at),
    expires_at_ns Nullable(Int64) ALIAS toUnixTimestamp64Nano(expires_at)
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(bus_at)
ORDER BY (id, bus_at, bus_seq)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'Leased, signed commands: one row per statement; a renewal is a further row of the same id.';

-- sdf.control.outcome.v1
CREATE TABLE IF NOT EXISTS control_outcome
(
    command String CODEC(ZSTD(1)) COMMENT 'command id',
    state LowCardinality(String) COMMENT 'accepted, refused, applied, held, expired, undone, failed',
    why Nullable(String) CODEC(ZSTD(1)) COMMENT 'the reason in words; of a refusal: reason: sentence',
    host LowCardinality(Nullable(String)) COMMENT 'who says so: an agent''s host, or controller',
    at Nullable(DateTime64(9, 'UTC')) CODEC(Delta, ZSTD(1)) COMMENT 'when it was said [the agent''s clock, or bus time from the controller]',
    action LowCardinality(Nullable(String)) COMMENT 'steer, failover, failback, throttle, slice, undo',
    target_type LowCardinality(Nullable(String)) COMMENT 'qp, job, command',
    target_id Nullable(String) CODEC(ZSTD(1)) COMMENT 'what it is done to',
    job LowCardinality(Nullable(String)) COMMENT 'job id',
    applied_at Nullable(DateTime64(9, 'UTC')) CODEC(Delta, ZSTD(1)) COMMENT 'when it was done [the agent''s clock]',
    reason Array(String) CODEC(ZSTD(1)) COMMENT 'ids of the findings behind it',
    event_id String CODEC(ZSTD(1)) COMMENT 'CloudEvents id; a repeat carries the same',
    event_type LowCardinality(String) COMMENT 'CloudEvents type',
    event_source LowCardinality(String) COMMENT 'CloudEvents source: an agent''s host or a stage',
    event_time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'CloudEvents time',
    data String CODEC(ZSTD(3)) COMMENT 'the whole payload as JSON',
    bus_at DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when the message entered the bus',
    bus_seq UInt64 CODEC(Delta, ZSTD(1)) COMMENT 'message number in its topic and bus',
    bus_key String CODEC(ZSTD(1)) COMMENT 'the message''s key: command id',
    bus_id LowCardinality(String) COMMENT 'which bus numbered it: one run of the in-process bus, or a Kafka cluster',
    boot_id LowCardinality(Nullable(String)) COMMENT 'the producer''s run; NULL when not known',
    batch_seq Nullable(Int64) CODEC(Delta, ZSTD(1)) COMMENT 'the producer''s own message number; NULL when not known',
    bus_at_ns Int64 ALIAS toUnixTimestamp64Nano(bus_at),
    event_time_ns Int64 ALIAS toUnixTimestamp64Nano(event_time),
    at_ns Nullable(Int64) ALIAS toUnixTimestamp64Nano(at),
    applied_at_ns Nullable(Int64) ALIAS toUnixTimestamp64Nano(applied_at)
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(bus_at)
ORDER BY (command, bus_at, bus_seq)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'What became of a command, one row per statement; before and after are in data.';

-- sdf.control.override.v1
CREATE TABLE IF NOT EXISTS control_override
(
    id String CODEC(ZSTD(1)) COMMENT 'override id',
    what LowCardinality(String) COMMENT 'approve, refuse, undo, mode, hold',
    operator LowCardinality(String) COMMENT 'who',
    issued_at Nullable(DateTime64(9, 'UTC')) CODEC(Delta, ZSTD(1)) COMMENT 'when it was issued [bus time]',
    expires_at Nullable(DateTime64(9, 'UTC')) CODEC(Delta, ZSTD(1)) COMMENT 'after this it has no force [bus time]',
    command Nullable(String) CODEC(ZSTD(1)) COMMENT 'command id; empty where it is about none',
    target_type LowCardinality(Nullable(String)) COMMENT 'qp, job, command',
    target_id Nullable(String) CODEC(ZSTD(1)) COMMENT 'what it is done to',
    key_id LowCardinality(Nullable(String)) COMMENT 'whose key signed it; the signature is in data',
    event_id String CODEC(ZSTD(1)) COMMENT 'CloudEvents id; a repeat carries the same',
    event_type LowCardinality(String) COMMENT 'CloudEvents type',
    event_source LowCardinality(String) COMMENT 'CloudEvents source: an agent''s host or a stage',
    event_time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'CloudEvents time',
    data String CODEC(ZSTD(3)) COMMENT 'the whole payload as JSON',
    bus_at DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when the message entered the bus',
    bus_seq UInt64 CODEC(Delta, ZSTD(1)) COMMENT 'message number in its topic and bus',
    bus_key String CODEC(ZSTD(1)) COMMENT 'the message''s key: operator',
    bus_id LowCardinality(String) COMMENT 'which bus numbered it: one run of the in-process bus, or a Kafka cluster',
    boot_id LowCardinality(Nullable(String)) COMMENT 'the producer''s run; NULL when not known',
    batch_seq Nullable(Int64) CODEC(Delta, ZSTD(1)) COMMENT 'the producer''s own message number; NULL when not known',
    bus_at_ns Int64 ALIAS toUnixTimestamp64Nano(bus_at),
    event_time_ns Int64 ALIAS toUnixTimestamp64Nano(event_time),
    issued_at_ns Nullable(Int64) ALIAS toUnixTimestamp64Nano(issued_at),
    expires_at_ns Nullable(Int64) ALIAS toUnixTimestamp64Nano(expires_at)
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(bus_at)
ORDER BY (operator, bus_at, bus_seq)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'An operator''s hand, signed: one row per statement.';

-- sdf.state.topology.v1 also carries the way of a flow (event_type …flow.v1): src, dst, dscp, hops and these
ALTER TABLE state_topology
    ADD COLUMN IF NOT EXISTS protocol LowCardinality(Nullable(String)) COMMENT 'of a flow: udp, tcp' AFTER dir,
    ADD COLUMN IF NOT EXISTS source_port Nullable(UInt16) COMMENT 'of a flow' AFTER protocol,
    ADD COLUMN IF NOT EXISTS destination_port Nullable(UInt16) COMMENT 'of a flow' AFTER source_port;
