-- Rows go by the archive's own time, and when what is made of them is finished (sdfstream/archive/upkeep/expiry_io.py). The
-- engine's time to live, which stood here before, went by the wall clock: also in an archive that nobody wrote to, and
-- whether roll-ups were finished or not.

CREATE TABLE IF NOT EXISTS retention
(
    name LowCardinality(String) COMMENT 'table',
    seconds UInt64 COMMENT 'its rows go when the newest row of the archive is this much younger [s]; 0: they stay',
    set_at DateTime64(6, 'UTC') DEFAULT now64(6) COMMENT 'when; the later one counts'
)
ENGINE = ReplacingMergeTree(set_at)
ORDER BY name
COMMENT 'How long each table keeps its rows, as the newest process that opened the archive set it.';

CREATE TABLE IF NOT EXISTS dropped
(
    name LowCardinality(String) COMMENT 'table',
    partition String COMMENT 'partition id; empty: by the time to live of an older version',
    until_at DateTime64(9, 'UTC') COMMENT 'age column of its newest row: up to here rows may be gone',
    rows UInt64 COMMENT 'how many',
    dropped_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'when'
)
ENGINE = MergeTree
ORDER BY (name, until_at)
COMMENT 'Which rows are gone by age, partition by partition.';

INSERT INTO retention (name, seconds)
SELECT name, toUInt64OrZero(extract(engine_full, ' TTL .*toIntervalSecond\\((\\d+)\\)'))
FROM system.tables
WHERE database = currentDatabase() AND position(engine_full, ' TTL ') > 0;

INSERT INTO dropped (name, partition, until_at, rows)
SELECT name, '', now64(9, 'UTC'), 0
FROM system.tables
WHERE database = currentDatabase() AND position(engine_full, ' TTL ') > 0;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'raw_probe' AND position(engine_full, ' TTL ') > 0
ALTER TABLE raw_probe REMOVE TTL;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'derived_owd' AND position(engine_full, ' TTL ') > 0
ALTER TABLE derived_owd REMOVE TTL;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'state_clock' AND position(engine_full, ' TTL ') > 0
ALTER TABLE state_clock REMOVE TTL;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'raw_qp' AND position(engine_full, ' TTL ') > 0
ALTER TABLE raw_qp REMOVE TTL;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'derived_qp' AND position(engine_full, ' TTL ') > 0
ALTER TABLE derived_qp REMOVE TTL;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'raw_port' AND position(engine_full, ' TTL ') > 0
ALTER TABLE raw_port REMOVE TTL;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'raw_liveness' AND position(engine_full, ' TTL ') > 0
ALTER TABLE raw_liveness REMOVE TTL;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'reject' AND position(engine_full, ' TTL ') > 0
ALTER TABLE reject REMOVE TTL;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'owd_1s' AND position(engine_full, ' TTL ') > 0
ALTER TABLE owd_1s REMOVE TTL;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'owd_1m' AND position(engine_full, ' TTL ') > 0
ALTER TABLE owd_1m REMOVE TTL;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'clock_1m' AND position(engine_full, ' TTL ') > 0
ALTER TABLE clock_1m REMOVE TTL;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'owd_1h' AND position(engine_full, ' TTL ') > 0
ALTER TABLE owd_1h REMOVE TTL;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'raw_probe_kept' AND position(engine_full, ' TTL ') > 0
ALTER TABLE raw_probe_kept REMOVE TTL;

-- only if: SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'derived_owd_kept' AND position(engine_full, ' TTL ') > 0
ALTER TABLE derived_owd_kept REMOVE TTL;
