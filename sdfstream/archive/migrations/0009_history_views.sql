-- What people ask of the past, over what is still there of it; rules as in 0002_views.sql.

CREATE OR REPLACE VIEW v_path_1s AS
SELECT
    s.src AS src, s.dst AS dst, s.transport AS transport, s.path AS path, s.dscp AS dscp, s.dir AS dir,
    s.at AS second,
    sum(s.n) AS n,
    sum(s.lost) AS lost,
    sum(s.ce) AS ce,
    sum(s.lost) / nullIf(sum(s.n) + sum(s.lost), 0) AS lost_share,
    min(s.owd_min_ns) AS owd_min_ns,
    sum(s.owd_p50_sum_ns) / nullIf(sum(s.n), 0) AS owd_p50_ns,
    max(s.owd_p99_ns) AS owd_p99_ns,
    max(s.owd_max_ns) AS owd_max_ns,
    owd_p50_ns - min(s.floor_ns) AS excess_p50_ns,
    max(s.err_ns) AS err_ns
FROM owd_1s AS s
GROUP BY src, dst, transport, path, dscp, dir, second
COMMENT 'One-way delay, loss and CE per path id and second: p50 is the mean of the 100 ms windows'' medians weighted by n, p99 the largest of theirs; min, max and counts are exact (to the ns).';

CREATE OR REPLACE VIEW v_path_1m AS
SELECT
    src, dst, transport, path, dscp, dir, minute, n, lost, ce,
    lost / nullIf(n + lost, 0) AS lost_share,
    owd_min_ns, owd_p50_ns, owd_p99_ns, owd_max_ns, excess_p50_ns, err_ns
FROM
(
    SELECT
        src, dst, transport, path, dscp, dir, minute, n, lost, ce,
        owd_min_ns, owd_p50_ns, owd_p99_ns, owd_max_ns, excess_p50_ns, err_ns
    FROM owd_1m FINAL
    UNION ALL
    SELECT
        o.src, o.dst, o.transport, o.path, o.dscp, o.dir, toStartOfMinute(toDateTime(o.at, 'UTC')) AS minute,
        sum(o.n), sum(o.lost), sum(o.ce),
        min(o.owd_min_ns),
        quantileExactWeighted(0.5)(o.owd_p50_ns, o.n),
        quantileExactWeighted(0.99)(o.owd_p99_ns, o.n),
        max(o.owd_max_ns),
        quantileExactWeighted(0.5)(o.excess_p50_ns, o.n),
        max(o.err_ns)
    FROM derived_owd AS o
    WHERE o.at >= toDateTime64((SELECT max(minute) + toIntervalMinute(1) FROM owd_1m), 9, 'UTC')
    GROUP BY o.src, o.dst, o.transport, o.path, o.dscp, o.dir, minute
)
COMMENT 'One-way delay, loss and CE per path id and minute. p50 and p99 are weighted over the windows of the minute.';

CREATE OR REPLACE VIEW v_path_1h AS
SELECT
    h.src AS src, h.dst AS dst, h.transport AS transport, h.path AS path, h.dscp AS dscp, h.dir AS dir, h.hour AS hour,
    h.n AS n, h.lost AS lost, h.ce AS ce,
    h.lost / nullIf(h.n + h.lost, 0) AS lost_share,
    h.owd_min_ns AS owd_min_ns,
    if(h.seconds = 0, NULL, arrayElement(finalizeAggregation(h.typical), 1)) AS typical_p50_ns,
    if(h.seconds = 0, NULL, arrayElement(finalizeAggregation(h.typical), 3)) AS typical_p99_ns,
    if(h.seconds = 0, NULL, arrayElement(finalizeAggregation(h.worst), 1)) AS worst_p50_ns,
    if(h.seconds = 0, NULL, arrayElement(finalizeAggregation(h.worst), 3)) AS worst_p99_ns,
    h.owd_max_ns AS owd_max_ns,
    h.err_ns AS err_ns,
    h.seconds AS seconds
FROM owd_1h AS h FINAL
COMMENT 'Finished hours per path id: over its seconds, the median and the 99th percentile of what was typical in a second and of the worst in a second, to 1 %. To merge hours or paths, use the sketches in owd_1h.';

CREATE OR REPLACE VIEW v_clock_1m AS
SELECT
    clock, kind, minute, updates, offset_avg_ns, offset_min_ns, offset_max_ns, skew_avg_ppb, err_p50_ns, err_max_ns,
    synced_share, statuses
FROM
(
    SELECT
        clock, kind, minute, updates, offset_avg_ns, offset_min_ns, offset_max_ns, skew_avg_ppb, err_p50_ns, err_max_ns,
        synced_share, statuses
    FROM clock_1m FINAL
    UNION ALL
    SELECT
        c.clock, c.kind, toStartOfMinute(toDateTime(c.bus_at, 'UTC')) AS minute,
        count(), avg(c.offset_ns), min(c.offset_ns), max(c.offset_ns), avg(c.skew_ppb),
        quantileExact(0.5)(c.err_ns), max(c.err_ns), avg(c.status = 'synced'), groupUniqArray(c.status)
    FROM state_clock AS c
    WHERE c.bus_at >= toDateTime64((SELECT max(minute) + toIntervalMinute(1) FROM clock_1m), 9, 'UTC')
    GROUP BY c.clock, c.kind, minute
)
COMMENT 'History of every clock by minute of bus time: offset, skew, error bar, share of synced updates.';

CREATE OR REPLACE VIEW v_probe_kept AS
SELECT
    src, dst, transport, path, dscp_sent AS dscp, seq,
    t1, t2, t3, t4,
    t41_ns IS NULL AS lost,
    rtt_ns, turn_ns,
    ecn_sent, ecn_fwd, ecn_rev, dscp_fwd, dscp_rev, ttl_fwd, ttl_rev,
    tx_host_ns, rx_host_ns, size_bytes, t1_kind, t2_kind, t3_kind, t4_kind,
    clock_src, clock_dst, plane, bus_at
FROM raw_probe_kept FINAL
COMMENT 'Probe exchanges around findings, which stay when v_probe''s are gone; v_kept says which.';

CREATE OR REPLACE VIEW v_owd_kept AS
SELECT
    at, window_ns, src, dst, transport, path, dscp, dir, n, lost, ce,
    owd_min_ns, owd_p50_ns, owd_p99_ns, owd_max_ns, excess_p50_ns, err_ns, bus_at
FROM derived_owd_kept FINAL
COMMENT 'One-way delays by window around findings, which stay when those of derived_owd are gone.';

CREATE OR REPLACE VIEW v_kept AS
SELECT finding, status, subject, from_at, to_at, paths, left_out, probes, windows, kept_at
FROM kept_window FINAL
ORDER BY to_at DESC
COMMENT 'Which raw rows were kept, by finding and statement: from when to when (bus time), of how many path ids.';

CREATE OR REPLACE VIEW v_finding_evidence AS
SELECT
    f.id AS id, f.kind AS kind, f.status AS status, f.subject_type AS subject_type, f.subject_id AS subject_id,
    JSONExtractString(item, 'what') AS what,
    JSONExtract(item, 'value', 'Nullable(Float64)') AS value,
    JSONExtract(item, 'unit', 'Nullable(String)') AS unit,
    JSONExtract(item, 'baseline', 'Nullable(Float64)') AS baseline,
    JSONExtract(item, 'where', 'Nullable(String)') AS place,
    f.since_at AS since_at, f.seen_at AS seen_at,
    ifNull(k.probes, 0) AS probes_kept
FROM v_findings AS f
LEFT ARRAY JOIN JSONExtractArrayRaw(f.evidence) AS item
LEFT JOIN (SELECT finding, sum(probes) AS probes FROM v_kept GROUP BY finding) AS k ON k.finding = f.id
COMMENT 'One row per piece of evidence of every finding as last stated; probes_kept: raw exchanges kept for it (v_probe_kept).';

CREATE OR REPLACE VIEW v_nic_timeline AS
SELECT nic, at, what, state, detail
FROM
(
    SELECT nic, coalesce(seen_at, bus_at) AS at, 'health' AS what, concat(direction, ' ', state) AS state, ifNull(why, '') AS detail
    FROM state_nic
    UNION ALL
    SELECT
        arrayJoin(arrayFilter(e -> position(e, '/') > 0, splitByString('--', if(subject_type = 'port', arrayElement(splitByChar(':', assumeNotNull(subject_id)), 1), assumeNotNull(subject_id))))) AS nic,
        bus_at, 'finding', concat(kind, ' ', status), concat(ifNull(cause, ''), ' ', id)
    FROM event_finding
    WHERE subject_type IN ('nic', 'port', 'link') AND status IN ('open', 'resolved')
    UNION ALL
    SELECT nic, bus_at, 'port', state, port
    FROM
    (
        SELECT
            nic, port, state, bus_at,
            lagInFrame(state, 1, '') OVER (PARTITION BY port ORDER BY bus_at, bus_seq ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS former
        FROM raw_port
    )
    WHERE state != former
    UNION ALL
    SELECT arrayElement(splitByChar('#', assumeNotNull(target_id)), 1), bus_at, 'command', concat(ifNull(action, ''), ' ', state), concat(assumeNotNull(target_id), ': ', ifNull(why, ''))
    FROM control_outcome
    WHERE target_type = 'qp'
)
ORDER BY nic, at
COMMENT 'The story of every NIC: health as stated, findings about it and its cables, its ports'' states, commands to its queue pairs.';

CREATE OR REPLACE VIEW v_freshness AS
SELECT what, host, minute, rows, p50_ms, p99_ms, max_ms
FROM
(
    SELECT
        'probe' AS what, bus_key AS host, toStartOfMinute(toDateTime(bus_at, 'UTC')) AS minute, count() AS rows,
        quantile(0.5)(bus_at_ns - t1_ns) / 1e6 AS p50_ms,
        quantile(0.99)(bus_at_ns - t1_ns) / 1e6 AS p99_ms,
        max(bus_at_ns - t1_ns) / 1e6 AS max_ms
    FROM raw_probe
    WHERE transport != 'host'
    GROUP BY host, minute
    UNION ALL
    SELECT
        'delay', bus_key, toStartOfMinute(toDateTime(bus_at, 'UTC')) AS minute, count(),
        quantile(0.5)(bus_at_ns - at_ns) / 1e6, quantile(0.99)(bus_at_ns - at_ns) / 1e6, max(bus_at_ns - at_ns) / 1e6
    FROM derived_owd
    GROUP BY bus_key, minute
)
ORDER BY minute, what, host
COMMENT 'How old rows were when they entered the bus, by host and minute: probes since they left (bus clock − the host''s clock, uncorrected), delays since their window began (bus clock − reference).';
