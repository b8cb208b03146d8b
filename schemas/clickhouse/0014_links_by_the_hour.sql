-- Which link was worst yesterday: paths and links by the hour, from the hours that are finished and those that are not.

ALTER TABLE owd_1h ADD COLUMN IF NOT EXISTS floor_ns Nullable(Int64) CODEC(T64('bit'), ZSTD(1)) COMMENT 'smallest floor that a window was measured against [ns]; NULL in hours finished before migration 0014' AFTER err_ns;

CREATE OR REPLACE VIEW v_path_1h AS
SELECT
    src, dst, transport, path, dscp, dir, hour, n,
    if(dir = 'fwd', counted_lost, NULL) AS lost,
    ce,
    lost / nullIf(n + lost, 0) AS lost_share,
    owd_min_ns,
    if(seconds = 0, NULL, typical_ns[1]) AS typical_p50_ns,
    if(seconds = 0, NULL, typical_ns[3]) AS typical_p99_ns,
    if(seconds = 0, NULL, worst_ns[1]) AS worst_p50_ns,
    if(seconds = 0, NULL, worst_ns[3]) AS worst_p99_ns,
    owd_max_ns, err_ns, seconds,
    typical_p50_ns - floor_ns AS excess_p50_ns
FROM
(
    SELECT
        src, dst, transport, path, dscp, dir, hour, n, lost AS counted_lost, ce, toUInt64(seconds) AS seconds,
        owd_min_ns, owd_max_ns, err_ns, floor_ns,
        finalizeAggregation(typical) AS typical_ns, finalizeAggregation(worst) AS worst_ns
    FROM owd_1h FINAL
    UNION ALL
    SELECT
        src, dst, transport, path, dscp, dir, hour, sum(n), sum(lost), sum(ce), countIf(n > 0),
        min(owd_min_ns), max(owd_max_ns), max(err_ns), min(floor_ns),
        quantilesDDIf(0.01, 0.5, 0.9, 0.99)(ifNull(toFloat64(p50_sum_ns) / n, 0), n > 0),
        quantilesDDIf(0.01, 0.5, 0.9, 0.99)(ifNull(toFloat64(owd_max_ns), 0), n > 0)
    FROM
    (
        SELECT
            s.src AS src, s.dst AS dst, s.transport AS transport, s.path AS path, s.dscp AS dscp, s.dir AS dir,
            toStartOfHour(s.at) AS hour, s.at AS at,
            sum(s.n) AS n, sum(s.lost) AS lost, sum(s.ce) AS ce, min(s.owd_min_ns) AS owd_min_ns,
            max(s.owd_max_ns) AS owd_max_ns, sum(s.owd_p50_sum_ns) AS p50_sum_ns, max(s.err_ns) AS err_ns,
            min(s.floor_ns) AS floor_ns
        FROM owd_1s AS s
        WHERE s.at >= (SELECT max(hour) + toIntervalHour(1) FROM owd_1h)
        GROUP BY src, dst, transport, path, dscp, dir, hour, at
    )
    GROUP BY src, dst, transport, path, dscp, dir, hour
)
COMMENT 'Hours per path id: over its seconds, the median and the 99th percentile of what was typical in a second and of the worst in a second, to 1 % (excess_p50_ns: of the typical delay); loss (of exchanges) on dir fwd. To merge hours or paths, use the sketches in owd_1h.';

-- its speed was NULL: the id's name hid the link that it was read from
CREATE OR REPLACE VIEW v_links AS
SELECT
    JSONExtractString(declared, 'id') AS link,
    tupleElement(ends, 1) AS from_node,
    tupleElement(ends, 2) AS to_node,
    concat(from_node, '->', to_node) AS direction,
    tupleElement(ends, 3) AS to_address,
    JSONExtract(declared, 'speed_mbps', 'Nullable(UInt64)') AS speed_mbps
FROM
(
    SELECT
        declared,
        arrayJoin([
            (JSONExtractString(declared, 'a', 'node'), JSONExtractString(declared, 'b', 'node'), JSONExtractString(declared, 'b', 'address')),
            (JSONExtractString(declared, 'b', 'node'), JSONExtractString(declared, 'a', 'node'), JSONExtractString(declared, 'a', 'address'))
        ]) AS ends
    FROM
    (
        SELECT arrayJoin(JSONExtractArrayRaw(data, 'links')) AS declared
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

CREATE OR REPLACE VIEW v_links_1h AS
SELECT
    c.link AS link, c.direction AS direction, c.hour AS hour,
    count() AS paths,
    sum(c.n) AS n,
    sum(c.lost) AS lost,
    sum(c.lost) / nullIf(sum(c.exchanges) + sum(c.lost), 0) AS lost_share,
    sum(c.ce) / nullIf(sum(c.n), 0) AS ce_share,
    min(c.excess_p50_ns) AS excess_least_ns,
    max(c.excess_p50_ns) AS excess_most_ns,
    max(c.worst_p99_ns) AS worst_p99_most_ns
FROM
(
    SELECT DISTINCT
        w.src AS src, w.dst AS dst, w.transport AS transport, w.path AS path, w.dscp AS dscp, w.dir AS dir, w.hour AS hour,
        w.n AS n, w.lost AS lost, w.exchanges AS exchanges, w.ce AS ce, w.excess_p50_ns AS excess_p50_ns,
        w.worst_p99_ns AS worst_p99_ns, l.link AS link, l.direction AS direction
    FROM
    (
        SELECT
            p.src AS src, p.dst AS dst, p.transport AS transport, p.path AS path, p.dscp AS dscp, p.dir AS dir,
            p.hour AS hour, p.n AS n, p.lost AS lost, p.exchanges AS exchanges, p.ce AS ce,
            p.excess_p50_ns AS excess_p50_ns, p.worst_p99_ns AS worst_p99_ns,
            arrayJoin(arrayConcat(t.hops, [if(p.dir = 'rev', p.src, p.dst)])) AS step
        FROM
        (
            SELECT
                src, dst, transport, path, dscp, hour, lost, exchanges,
                toDateTime64(hour + toIntervalHour(1), 9, 'UTC') AS over_at,
                way.1 AS dir, way.2 AS n, way.3 AS ce, way.4 AS excess_p50_ns, way.5 AS worst_p99_ns
            FROM
            (
                SELECT
                    src, dst, transport, path, dscp, hour,
                    ifNull(max(h.lost), 0) AS lost,
                    max(h.n) AS exchanges,
                    arrayJoin([
                        ('fwd', sumIf(h.n, dir = 'fwd'), sumIf(h.ce, dir = 'fwd'), maxIf(h.excess_p50_ns, dir = 'fwd'), maxIf(h.worst_p99_ns, dir = 'fwd')),
                        ('rev', sumIf(h.n, dir = 'rev'), sumIf(h.ce, dir = 'rev'), maxIf(h.excess_p50_ns, dir = 'rev'), maxIf(h.worst_p99_ns, dir = 'rev'))
                    ]) AS way
                FROM v_path_1h AS h
                GROUP BY src, dst, transport, path, dscp, hour
            )
        ) AS p
        ASOF INNER JOIN
        (
            SELECT
                assumeNotNull(src) AS src, assumeNotNull(dst) AS dst, assumeNotNull(transport) AS transport,
                assumeNotNull(path) AS path, assumeNotNull(dscp) AS dscp, assumeNotNull(dir) AS dir, hops, bus_at
            FROM
            (
                SELECT
                    src, dst, transport, path, dscp, dir, hops, bus_at,
                    lagInFrame(hops, 1, ['first']) OVER (PARTITION BY bus_key ORDER BY bus_at, bus_seq ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS former
                FROM state_topology
                WHERE event_type = 'sdf.state.topology.path.v1'
            )
            WHERE hops != former
        ) AS t
            ON t.src = p.src AND t.dst = p.dst AND t.transport = p.transport AND t.path = p.path AND t.dscp = p.dscp AND t.dir = p.dir
            AND t.bus_at < p.over_at
    ) AS w
    INNER JOIN
    (
        SELECT link, direction, arrayJoin([to_address, to_node]) AS step FROM v_links
    ) AS l ON w.step = l.step
) AS c
GROUP BY link, direction, hour
ORDER BY hour, excess_least_ns DESC NULLS LAST, lost_share DESC
COMMENT 'Link directions by the hour, of the paths that crossed them by the last trace of that hour or before: excess_least_ns is what even the least delayed path across it suffered, to 1 % of its delay; lost: exchanges lost by the sessions whose way out or back crossed it.';

-- Every change of a port's carrier, also those between two readings: the counter says how many there were.
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
    SELECT
        nic, bus_at, 'port',
        if((changes - nth) % 2 = 0, state, if(state = 'up', 'down', 'up')),
        concat(port, if(changes > 1, concat(', change ', toString(nth), ' of ', toString(changes), ' since the reading before'), ''))
    FROM
    (
        SELECT
            nic, port, state, bus_at,
            -- as many as the counter says, if that fits the two states; at least the one that the states show
            toInt64(multiIf(
                former = '' OR state NOT IN ('up', 'down') OR former NOT IN ('up', 'down'), state != former,
                ifNull(counted, 0) > 0 AND counted % 2 = (state != former), least(counted, 100),
                state != former)) AS changes,
            arrayJoin(range(1, toUInt64(changes) + 1)) AS nth
        FROM
        (
            SELECT
                nic, port, state, bus_at,
                lagInFrame(state, 1, '') OVER newest_before AS former,
                toInt64(carrier_changes) - lagInFrame(toInt64(carrier_changes), 1, NULL) OVER newest_before AS counted
            FROM raw_port
            WINDOW newest_before AS (PARTITION BY port ORDER BY bus_at, bus_seq ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
        )
    )
    UNION ALL
    SELECT arrayElement(splitByChar('#', assumeNotNull(target_id)), 1), bus_at, 'command', concat(ifNull(action, ''), ' ', state), concat(assumeNotNull(target_id), ': ', ifNull(why, ''))
    FROM control_outcome
    WHERE target_type = 'qp'
)
ORDER BY nic, at
COMMENT 'The story of every NIC: health as stated, findings about it and its cables, every change of its ports'' carriers (at the reading that counted it), commands to its queue pairs.';
