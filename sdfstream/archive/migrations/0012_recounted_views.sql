-- Views whose figures an independent recount did not find (tests/contract/test_archive_recount.py); rules as in
-- 0002_views.sql.
--
-- Loss has no direction: derived_owd counts it on dir fwd, and its 0 on dir rev says nothing. The views say NULL there.

ALTER TABLE derived_owd COMMENT COLUMN lost 'exchanges that timed out (no direction known): on fwd; 0 on rev is unknown';
ALTER TABLE derived_owd_kept COMMENT COLUMN lost 'exchanges that timed out (no direction known): on fwd; 0 on rev is unknown';
ALTER TABLE owd_1s COMMENT COLUMN lost 'exchanges that timed out (no direction known): on fwd; 0 on rev is unknown';
ALTER TABLE owd_1m COMMENT COLUMN lost 'exchanges that timed out (no direction known): on fwd; 0 on rev is unknown';
ALTER TABLE owd_1h COMMENT COLUMN lost 'exchanges that timed out (no direction known): on fwd; 0 on rev is unknown';

CREATE OR REPLACE VIEW v_path_1s AS
SELECT
    s.src AS src, s.dst AS dst, s.transport AS transport, s.path AS path, s.dscp AS dscp, s.dir AS dir,
    s.at AS second,
    sum(s.n) AS n,
    if(dir = 'fwd', sum(s.lost), NULL) AS lost,
    sum(s.ce) AS ce,
    lost / nullIf(n + lost, 0) AS lost_share,
    min(s.owd_min_ns) AS owd_min_ns,
    sum(s.owd_p50_sum_ns) / nullIf(sum(s.n), 0) AS owd_p50_ns,
    max(s.owd_p99_ns) AS owd_p99_ns,
    max(s.owd_max_ns) AS owd_max_ns,
    owd_p50_ns - min(s.floor_ns) AS excess_p50_ns,
    max(s.err_ns) AS err_ns
FROM owd_1s AS s
GROUP BY src, dst, transport, path, dscp, dir, second
COMMENT 'One-way delay, loss (of exchanges, on dir fwd; NULL on rev) and CE per path id and second: p50 is the mean of the 100 ms windows'' medians weighted by n, p99 the largest of theirs; min, max and counts are exact (to the ns).';

CREATE OR REPLACE VIEW v_path_1m AS
SELECT
    src, dst, transport, path, dscp, dir, minute, n,
    if(dir = 'fwd', counted_lost, NULL) AS lost,
    ce,
    lost / nullIf(n + lost, 0) AS lost_share,
    owd_min_ns, owd_p50_ns, owd_p99_ns, owd_max_ns, excess_p50_ns, err_ns
FROM
(
    SELECT
        src, dst, transport, path, dscp, dir, minute, n, lost AS counted_lost, ce,
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
COMMENT 'One-way delay, loss (of exchanges, on dir fwd; NULL on rev) and CE per path id and minute. p50 and p99 are weighted over the windows of the minute.';

CREATE OR REPLACE VIEW v_path_1h AS
SELECT
    h.src AS src, h.dst AS dst, h.transport AS transport, h.path AS path, h.dscp AS dscp, h.dir AS dir, h.hour AS hour,
    h.n AS n,
    if(h.dir = 'fwd', h.lost, NULL) AS lost,
    h.ce AS ce,
    lost / nullIf(n + lost, 0) AS lost_share,
    h.owd_min_ns AS owd_min_ns,
    if(h.seconds = 0, NULL, arrayElement(finalizeAggregation(h.typical), 1)) AS typical_p50_ns,
    if(h.seconds = 0, NULL, arrayElement(finalizeAggregation(h.typical), 3)) AS typical_p99_ns,
    if(h.seconds = 0, NULL, arrayElement(finalizeAggregation(h.worst), 1)) AS worst_p50_ns,
    if(h.seconds = 0, NULL, arrayElement(finalizeAggregation(h.worst), 3)) AS worst_p99_ns,
    h.owd_max_ns AS owd_max_ns,
    h.err_ns AS err_ns,
    h.seconds AS seconds
FROM owd_1h AS h FINAL
COMMENT 'Finished hours per path id: over its seconds, the median and the 99th percentile of what was typical in a second and of the worst in a second, to 1 %; loss (of exchanges) on dir fwd. To merge hours or paths, use the sketches in owd_1h.';

CREATE OR REPLACE VIEW v_path_now AS
SELECT
    o.src AS src, o.dst AS dst, o.transport AS transport, o.path AS path, o.dscp AS dscp, o.dir AS dir,
    max(o.at) AS last_at,
    sum(o.n) AS n,
    if(dir = 'fwd', sum(o.lost), NULL) AS lost,
    sum(o.ce) AS ce,
    lost / nullIf(n + lost, 0) AS lost_share,
    min(o.owd_min_ns) AS owd_min_ns,
    quantileExactWeighted(0.5)(o.owd_p50_ns, o.n) AS owd_p50_ns,
    quantileExactWeighted(0.99)(o.owd_p99_ns, o.n) AS owd_p99_ns,
    max(o.owd_max_ns) AS owd_max_ns,
    quantileExactWeighted(0.5)(o.excess_p50_ns, o.n) AS excess_p50_ns,
    max(o.err_ns) AS err_ns
FROM derived_owd AS o
WHERE o.bus_at > (SELECT max(bus_at) FROM derived_owd) - toIntervalSecond(60)
GROUP BY src, dst, transport, path, dscp, dir
COMMENT 'Every path id over the newest 60 s in the archive; loss (of exchanges) on dir fwd, NULL on rev.';

CREATE OR REPLACE VIEW v_owd_kept AS
SELECT
    at, window_ns, src, dst, transport, path, dscp, dir, n,
    if(dir = 'fwd', k.lost, NULL) AS lost,
    ce, owd_min_ns, owd_p50_ns, owd_p99_ns, owd_max_ns, excess_p50_ns, err_ns, bus_at
FROM derived_owd_kept AS k FINAL
COMMENT 'One-way delays by window around findings, which stay when those of derived_owd are gone; loss (of exchanges) on dir fwd.';

CREATE OR REPLACE VIEW v_links_worst AS
SELECT
    c.link AS link,
    c.direction AS direction,
    count() AS paths,
    sum(p.n) AS n,
    sum(x.lost) AS lost,
    sum(x.lost) / nullIf(sum(x.n) + sum(x.lost), 0) AS lost_share,
    sum(p.ce) / nullIf(sum(p.n), 0) AS ce_share,
    min(p.excess_p50_ns) AS excess_least_ns,
    max(p.excess_p50_ns) AS excess_most_ns,
    max(p.owd_p99_ns) AS owd_p99_most_ns
FROM v_path_links AS c
INNER JOIN
(
    SELECT src, dst, transport, path, dscp, max(n) AS n, ifNull(max(lost), 0) AS lost
    FROM v_path_now
    GROUP BY src, dst, transport, path, dscp
) AS x
    ON x.src = c.src AND x.dst = c.dst AND x.transport = c.transport AND x.path = c.path AND x.dscp = c.dscp
LEFT JOIN v_path_now AS p
    ON p.src = c.src AND p.dst = c.dst AND p.transport = c.transport AND p.path = c.path AND p.dscp = c.dscp AND p.dir = c.dir
GROUP BY link, direction
ORDER BY excess_least_ns DESC NULLS LAST, lost_share DESC
COMMENT 'Link directions over the newest 60 s: excess_least_ns is what even the least delayed path across it suffers; lost: exchanges lost by the sessions whose way out or back crosses it.';

-- an error bar's median from a sketch: the same for the same rows, and no memory that grows with them
CREATE OR REPLACE VIEW v_clock AS
SELECT
    clock,
    tupleElement(newest, 1) AS status,
    tupleElement(newest, 2) AS offset_ns,
    tupleElement(newest, 3) AS skew_ppb,
    tupleElement(newest, 4) AS err_ns,
    tupleElement(newest, 5) AS n,
    tupleElement(newest, 6) AS at,
    tupleElement(newest, 7) AS bus_at,
    dateDiff('millisecond', bus_at, now64(3, 'UTC')) / 1000 AS age_s,
    updates, first_at, synced_share, err_p50_ns, err_max_ns, offset_min_ns, offset_max_ns
FROM
(
    SELECT
        c.clock AS clock,
        argMax((c.status, c.offset_ns, c.skew_ppb, c.err_ns, c.n, c.at, c.bus_at), (c.bus_at, c.bus_seq, c.at)) AS newest,
        count() AS updates,
        min(c.at) AS first_at,
        avg(c.status = 'synced') AS synced_share,
        quantileDD(0.01, 0.5)(c.err_ns) AS err_p50_ns,
        max(c.err_ns) AS err_max_ns,
        min(c.offset_ns) AS offset_min_ns,
        max(c.offset_ns) AS offset_max_ns
    FROM state_clock AS c
    WHERE c.kind = 'causal'
    GROUP BY clock
)
ORDER BY clock
COMMENT 'Every clock as last stated (offset = that clock - reference), and its whole history in figures; err_p50_ns to 1 %, the others exact.';

CREATE OR REPLACE VIEW v_freshness AS
SELECT what, host, minute, rows, p50_ms, p99_ms, max_ms
FROM
(
    SELECT
        'probe' AS what, bus_key AS host, toStartOfMinute(toDateTime(bus_at, 'UTC')) AS minute, count() AS rows,
        quantilesDD(0.01, 0.5, 0.99)(bus_at_ns - t1_ns) AS age_ns,
        age_ns[1] / 1e6 AS p50_ms, age_ns[2] / 1e6 AS p99_ms, max(bus_at_ns - t1_ns) / 1e6 AS max_ms
    FROM raw_probe
    WHERE transport != 'host'
    GROUP BY host, minute
    UNION ALL
    SELECT
        'delay', bus_key, toStartOfMinute(toDateTime(bus_at, 'UTC')) AS minute, count(),
        quantilesDD(0.01, 0.5, 0.99)(bus_at_ns - at_ns) AS age_ns,
        age_ns[1] / 1e6, age_ns[2] / 1e6, max(bus_at_ns - at_ns) / 1e6
    FROM derived_owd
    GROUP BY bus_key, minute
)
ORDER BY minute, what, host
COMMENT 'How old rows were when they entered the bus, by host and minute: probes since they left (bus clock − the host''s clock, uncorrected), delays since their window began (bus clock − reference). p50 and p99 to 1 %, the largest exactly.';

-- From the chunks themselves: windows have no row for a time in which nothing was reported yet, so that their lengths do
-- not add up to the time in which a queue pair had something to send.
CREATE OR REPLACE VIEW v_gains AS
SELECT
    c.id AS id, c.action AS action, c.target AS target, c.job AS job, c.state AS state, c.why AS why, c.reason AS reason,
    c.first_applied_at AS applied_at,
    c.throughput_before_bps AS stated_before_bps,
    c.throughput_after_bps AS stated_after_bps,
    c.gain AS stated_gain,
    m.bytes_before * 8e9 / nullIf(m.ns_before, 0) AS before_bps,
    m.bytes_after * 8e9 / nullIf(m.ns_after, 0) AS after_bps,
    after_bps / nullIf(before_bps, 0) AS gain,
    m.retransmits_before AS retransmits_before,
    m.retransmits_after AS retransmits_after,
    m.ns_before / 1e9 AS busy_before_s,
    m.ns_after / 1e9 AS busy_after_s
FROM v_commands AS c
LEFT JOIN
(
    SELECT
        command,
        sumIf(bytes, ended_ns >= split_ns - 5000000000 AND ended_ns < split_ns) AS bytes_before,
        sumIf(bytes, ended_ns >= split_ns AND ended_ns < split_ns + 5000000000) AS bytes_after,
        sum(greatest(0, least(ended_ns, split_ns) - greatest(sent_ns, covered_ns, split_ns - 5000000000))) AS ns_before,
        sum(greatest(0, least(ended_ns, split_ns + 5000000000) - greatest(sent_ns, covered_ns, split_ns))) AS ns_after,
        sumIf(retransmits, ended_ns >= split_ns - 5000000000 AND ended_ns < split_ns) AS retransmits_before,
        sumIf(retransmits, ended_ns >= split_ns AND ended_ns < split_ns + 5000000000) AS retransmits_after
    FROM
    (
        SELECT
            a.command AS command, a.split_ns AS split_ns, q.sent_ns AS sent_ns, q.ended_ns AS ended_ns,
            q.bytes AS bytes, q.retransmits AS retransmits,
            max(q.ended_ns) OVER (PARTITION BY a.command ORDER BY q.sent_ns, q.ended_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS covered_ns
        FROM
        (
            SELECT
                command, any(target_id) AS qp,
                toUnixTimestamp64Nano(coalesce(min(applied_at), min(bus_at))) AS split_ns
            FROM control_outcome
            WHERE state = 'applied' AND target_type = 'qp'
            GROUP BY command
        ) AS a
        INNER JOIN
        (
            SELECT qp, sent_at_ns AS sent_ns, ifNull(acknowledged_at_ns, sent_at_ns) AS ended_ns, bytes, retransmits
            FROM raw_qp
            WHERE qp IN (SELECT target_id FROM control_outcome WHERE state = 'applied' AND target_type = 'qp')
        ) AS q ON q.qp = a.qp
        WHERE q.ended_ns >= a.split_ns - 5000000000 AND q.sent_ns < a.split_ns + 5000000000
    )
    GROUP BY command
) AS m ON m.command = c.id
WHERE c.first_applied_at IS NOT NULL
ORDER BY applied_at DESC, id
COMMENT 'What each applied command brought its queue pair, from its chunks (raw_qp) by the clock of its host: payload acknowledged within 5 s before and after it was first applied, over the time in which a chunk was outstanding (busy_…); beside what the controller stated (stated_…).';
