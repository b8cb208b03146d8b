-- What people ask, as plain views: nothing is stored twice, and every engine runs them.
-- `age_s` and nothing else looks at the wall clock; "now" is the newest instant in the archive.

CREATE OR REPLACE VIEW v_path_1m AS
SELECT
    o.src AS src, o.dst AS dst, o.transport AS transport, o.path AS path, o.dscp AS dscp, o.dir AS dir,
    toStartOfMinute(o.at) AS minute,
    sum(o.n) AS n,
    sum(o.lost) AS lost,
    sum(o.ce) AS ce,
    sum(o.lost) / nullIf(sum(o.n) + sum(o.lost), 0) AS lost_share,
    min(o.owd_min_ns) AS owd_min_ns,
    quantileExactWeighted(0.5)(o.owd_p50_ns, o.n) AS owd_p50_ns,
    quantileExactWeighted(0.99)(o.owd_p99_ns, o.n) AS owd_p99_ns,
    max(o.owd_max_ns) AS owd_max_ns,
    quantileExactWeighted(0.5)(o.excess_p50_ns, o.n) AS excess_p50_ns,
    max(o.err_ns) AS err_ns
FROM derived_owd AS o
GROUP BY src, dst, transport, path, dscp, dir, minute
COMMENT 'One-way delay, loss and CE per path id and minute. p50 and p99 are weighted over the windows of the minute.';

CREATE OR REPLACE VIEW v_path_now AS
SELECT
    o.src AS src, o.dst AS dst, o.transport AS transport, o.path AS path, o.dscp AS dscp, o.dir AS dir,
    max(o.at) AS last_at,
    sum(o.n) AS n,
    sum(o.lost) AS lost,
    sum(o.ce) AS ce,
    sum(o.lost) / nullIf(sum(o.n) + sum(o.lost), 0) AS lost_share,
    min(o.owd_min_ns) AS owd_min_ns,
    quantileExactWeighted(0.5)(o.owd_p50_ns, o.n) AS owd_p50_ns,
    quantileExactWeighted(0.99)(o.owd_p99_ns, o.n) AS owd_p99_ns,
    max(o.owd_max_ns) AS owd_max_ns,
    quantileExactWeighted(0.5)(o.excess_p50_ns, o.n) AS excess_p50_ns,
    max(o.err_ns) AS err_ns
FROM derived_owd AS o
WHERE o.bus_at > (SELECT max(bus_at) FROM derived_owd) - toIntervalSecond(60)
GROUP BY src, dst, transport, path, dscp, dir
COMMENT 'Every path id over the newest 60 s in the archive.';

CREATE OR REPLACE VIEW v_nic_state AS
SELECT
    nic, direction, state,
    since_at,
    coalesce(seen_at, bus_at) AS seen_at,
    why,
    dateDiff('millisecond', coalesce(seen_at, bus_at), now64(3, 'UTC')) / 1000 AS age_s,
    bus_at
FROM state_nic
ORDER BY nic, direction, bus_at DESC, bus_seq DESC
LIMIT 1 BY nic, direction
COMMENT 'Latest stated health of every NIC and direction; age_s is how long ago it was stated, wall clock.';

CREATE OR REPLACE VIEW v_findings AS
SELECT
    id, kind, class, severity, status, plane, subject_type, subject_id, cause, confidence,
    since_at,
    opened_at,
    resolved_at,
    dateDiff('millisecond', since_at, coalesce(resolved_at, seen_at, bus_at)) / 1000 AS duration_s,
    JSONExtractRaw(data, 'evidence') AS evidence,
    JSONExtractRaw(data, 'suspects') AS suspects,
    remedy, jobs, statements,
    seen_at
FROM
(
    SELECT
        *,
        min(coalesce(seen_at, bus_at)) OVER (PARTITION BY id) AS opened_at,
        count() OVER (PARTITION BY id) AS statements,
        row_number() OVER (PARTITION BY id ORDER BY bus_at DESC, bus_seq DESC) AS newest
    FROM event_finding
)
WHERE newest = 1
ORDER BY opened_at, id
COMMENT 'One row per finding as last stated; opened_at is when it was first stated, since_at when it began.';

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
        quantileTDigest(0.5)(c.err_ns) AS err_p50_ns,
        max(c.err_ns) AS err_max_ns,
        min(c.offset_ns) AS offset_min_ns,
        max(c.offset_ns) AS offset_max_ns
    FROM state_clock AS c
    WHERE c.kind = 'causal'
    GROUP BY clock
)
ORDER BY clock
COMMENT 'Every clock as last stated (offset = that clock - reference), and its whole history in figures.';

CREATE OR REPLACE VIEW v_clock_1m AS
SELECT
    clock,
    kind,
    toStartOfMinute(bus_at) AS minute,
    count() AS updates,
    avg(offset_ns) AS offset_avg_ns,
    min(offset_ns) AS offset_min_ns,
    max(offset_ns) AS offset_max_ns,
    avg(skew_ppb) AS skew_avg_ppb,
    quantileExact(0.5)(err_ns) AS err_p50_ns,
    max(err_ns) AS err_max_ns,
    avg(status = 'synced') AS synced_share,
    groupUniqArray(status) AS statuses
FROM state_clock
GROUP BY clock, kind, minute
COMMENT 'History of every clock by minute of bus time: offset, skew, error bar, share of synced updates.';

CREATE OR REPLACE VIEW v_liveness AS
SELECT
    host, seen_at, complete,
    JSONExtractString(change, 'observer') AS observer,
    JSONExtractString(change, 'role') AS role,
    JSONExtractString(change, 'src') AS src,
    JSONExtractString(change, 'dst') AS dst,
    JSONExtractString(change, 'transport') AS transport,
    JSONExtract(change, 'path', 'Nullable(UInt32)') AS path,
    JSONExtract(change, 'dscp', 'Nullable(UInt8)') AS dscp,
    JSONExtractString(change, 'state') AS state,
    fromUnixTimestamp64Nano(JSONExtract(change, 'since_at_ns', 'Nullable(Int64)'), 'UTC') AS since_at,
    JSONExtract(change, 'missed', 'Nullable(UInt64)') AS missed,
    bus_at, bus_seq
FROM
(
    SELECT host, seen_at, complete, bus_at, bus_seq, arrayJoin(JSONExtractArrayRaw(data, 'changes')) AS change
    FROM raw_liveness
)
COMMENT 'One row per path in an agent''s liveness judgement: alive, silent, unknown.';

CREATE OR REPLACE VIEW v_links AS
SELECT
    JSONExtractString(link, 'id') AS link,
    tupleElement(ends, 1) AS from_node,
    tupleElement(ends, 2) AS to_node,
    concat(from_node, '->', to_node) AS direction,
    tupleElement(ends, 3) AS to_address,
    JSONExtract(link, 'speed_mbps', 'Nullable(UInt64)') AS speed_mbps
FROM
(
    SELECT
        link,
        arrayJoin([
            (JSONExtractString(link, 'a', 'node'), JSONExtractString(link, 'b', 'node'), JSONExtractString(link, 'b', 'address')),
            (JSONExtractString(link, 'b', 'node'), JSONExtractString(link, 'a', 'node'), JSONExtractString(link, 'a', 'address'))
        ]) AS ends
    FROM
    (
        SELECT arrayJoin(JSONExtractArrayRaw(data, 'links')) AS link
        FROM
        (
            SELECT data FROM state_topology
            WHERE event_type = 'sdf.state.topology.declared.v1'
            ORDER BY bus_at DESC, bus_seq DESC
            LIMIT 1
        )
    )
)
COMMENT 'Both directions of every declared link; to_address is the port by which a packet arrives.';

CREATE OR REPLACE VIEW v_path_links AS
SELECT DISTINCT t.src AS src, t.dst AS dst, t.transport AS transport, t.path AS path, t.dscp AS dscp, t.dir AS dir, l.link AS link, l.direction AS direction
FROM
(
    SELECT src, dst, transport, path, dscp, dir, arrayJoin(arrayConcat(hops, [if(dir = 'rev', src, dst)])) AS step
    FROM
    (
        SELECT *
        FROM state_topology
        WHERE event_type = 'sdf.state.topology.path.v1'
        ORDER BY bus_key, bus_at DESC, bus_seq DESC
        LIMIT 1 BY bus_key
    )
) AS t
INNER JOIN
(
    SELECT link, direction, arrayJoin([to_address, to_node]) AS step FROM v_links
) AS l ON t.step = l.step
COMMENT 'The link directions that each traced path crosses, from its newest trace and the declared cabling.';

CREATE OR REPLACE VIEW v_links_worst AS
SELECT
    c.link AS link,
    c.direction AS direction,
    count() AS paths,
    sum(p.n) AS n,
    sum(p.lost) AS lost,
    sum(p.lost) / nullIf(sum(p.n) + sum(p.lost), 0) AS lost_share,
    sum(p.ce) / nullIf(sum(p.n), 0) AS ce_share,
    min(p.excess_p50_ns) AS excess_least_ns,
    max(p.excess_p50_ns) AS excess_most_ns,
    max(p.owd_p99_ns) AS owd_p99_most_ns
FROM v_path_links AS c
INNER JOIN v_path_now AS p
    ON p.src = c.src AND p.dst = c.dst AND p.transport = c.transport AND p.path = c.path AND p.dscp = c.dscp AND p.dir = c.dir
GROUP BY link, direction
ORDER BY excess_least_ns DESC NULLS LAST, lost_share DESC
COMMENT 'Link directions over the newest 60 s: excess_least_ns is what even the least delayed path across it suffers.';

CREATE OR REPLACE VIEW v_probe AS
SELECT
    src, dst, transport, path, dscp_sent AS dscp, seq,
    t1, t2, t3, t4,
    t41_ns IS NULL AS lost,
    rtt_ns, turn_ns,
    ecn_sent, ecn_fwd, ecn_rev, dscp_fwd, dscp_rev, ttl_fwd, ttl_rev,
    tx_host_ns, rx_host_ns, size_bytes, t1_kind, t2_kind, t3_kind, t4_kind,
    clock_src, clock_dst, plane, bus_at
FROM raw_probe
COMMENT 'Every probe exchange with its four stamps, each by its own clock, and the round trip without the turn.';
