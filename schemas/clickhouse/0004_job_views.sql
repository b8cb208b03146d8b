-- What people ask about jobs and about what was done: plain views as those of 0002_views.sql.

CREATE OR REPLACE VIEW v_commands AS
SELECT
    s.id AS id,
    coalesce(argMaxIf(s.action, (s.bus_at, s.bus_seq), s.said = 'command'), argMax(s.action, (s.bus_at, s.bus_seq))) AS action,
    argMax(s.target_type, (s.bus_at, s.bus_seq)) AS target_type,
    argMax(s.target_id, (s.bus_at, s.bus_seq)) AS target,
    argMax(s.target_host, (s.bus_at, s.bus_seq)) AS target_host,
    argMax(s.job, (s.bus_at, s.bus_seq)) AS job,
    argMax(s.mode, (s.bus_at, s.bus_seq)) AS mode,
    min(s.issued_at) AS issued_at,
    max(s.issued_at) AS renewed_at,
    argMax(s.expires_at, (s.bus_at, s.bus_seq)) AS expires_at,
    argMax(dateDiff('millisecond', s.issued_at, s.expires_at) / 1000, (s.bus_at, s.bus_seq)) AS lease_s,
    countIf(s.said = 'command') AS statements,
    argMax(s.state, (s.bus_at, s.bus_seq)) AS state,
    argMax(s.why, (s.bus_at, s.bus_seq)) AS why,
    argMax(s.host, (s.bus_at, s.bus_seq)) AS said_by,
    maxOrNullIf(s.bus_at, s.said = 'outcome') AS said_at,
    minOrNullIf(s.bus_at, s.state = 'applied') AS first_applied_at,
    max(s.applied_at) AS applied_at,
    argMax(s.before, (s.bus_at, s.bus_seq)) AS before,
    argMax(s.after, (s.bus_at, s.bus_seq)) AS after,
    argMax(s.bps_before, (s.bus_at, s.bus_seq)) AS throughput_before_bps,
    argMax(s.bps_after, (s.bus_at, s.bus_seq)) AS throughput_after_bps,
    throughput_after_bps / nullIf(throughput_before_bps, 0) AS gain,
    arrayDistinct(groupArrayArray(s.reason)) AS reason,
    groupUniqArrayIf(ifNull(s.state, ''), s.said = 'outcome') AS states
FROM
(
    SELECT
        id, 'command' AS said, bus_at, bus_seq,
        action, target_type, target_id, target_host, job, mode, issued_at, expires_at, reason,
        CAST(NULL, 'Nullable(String)') AS state,
        CAST(NULL, 'Nullable(String)') AS why,
        CAST(NULL, 'Nullable(String)') AS host,
        CAST(NULL, 'Nullable(DateTime64(9, \'UTC\'))') AS applied_at,
        CAST(NULL, 'Nullable(String)') AS before,
        CAST(NULL, 'Nullable(String)') AS after,
        CAST(NULL, 'Nullable(Float64)') AS bps_before,
        CAST(NULL, 'Nullable(Float64)') AS bps_after
    FROM control_command
    UNION ALL
    SELECT
        command, 'outcome', bus_at, bus_seq,
        nullIf(action, ''), target_type, target_id, JSONExtract(data, 'target', 'host', 'Nullable(String)'), job,
        NULL, NULL, NULL, reason,
        state, why, host, applied_at,
        nullIf(nullIf(JSONExtractRaw(data, 'before'), '{}'), ''),
        nullIf(nullIf(JSONExtractRaw(data, 'after'), '{}'), ''),
        JSONExtract(data, 'before', 'throughput_bps', 'Nullable(Float64)'),
        JSONExtract(data, 'after', 'throughput_bps', 'Nullable(Float64)')
    FROM control_outcome
) AS s
GROUP BY id
ORDER BY max(s.bus_at) DESC, id
COMMENT 'One row per command, or proposal that was refused: what, why, its lease, what became of it last (state NULL: nothing yet), and throughput after / before where it was measured.';

CREATE OR REPLACE VIEW v_job_parts AS
SELECT
    job, host, state,
    if(name = '', job, name) AS name,
    since_at, seen_at, source, ranks, qps, receives, control, data, bus_at, bus_seq
FROM state_job
ORDER BY job, host, bus_at DESC, bus_seq DESC
LIMIT 1 BY job, host
COMMENT 'Every host''s share of every job as last stated.';

CREATE OR REPLACE VIEW v_jobs AS
SELECT
    p.job AS job,
    any(p.name) AS name,
    if(countIf(p.state = 'running') > 0, 'running', 'ended') AS state,
    sum(p.ranks) AS ranks,
    arraySort(groupArray(p.host)) AS hosts,
    arraySort(groupUniqArrayArray(arrayFlatten(JSONExtract(p.data, 'ranks', 'Array(Tuple(nics Array(String)))').nics))) AS nics,
    sum(if(p.state = 'running', ifNull(p.qps, 0), 0)) AS qps,
    arraySort(groupUniqArray(p.source)) AS sources,
    arraySort(groupArrayIf(p.host, p.state = 'ended')) AS ended_hosts,
    if(state = 'ended', max(p.since_at), min(p.since_at)) AS since_at,
    max(p.seen_at) AS seen_at,
    max(p.bus_at) AS said_at
FROM v_job_parts AS p
GROUP BY job
ORDER BY state = 'ended', job
COMMENT 'One row per job, over its hosts as last stated: state now, ranks, hosts, NICs, queue pairs that are running; since_at: running since the first host''s share began, ended since the last one''s ended.';

CREATE OR REPLACE VIEW v_flows AS
SELECT src, dst, protocol, source_port, destination_port, dscp, hops, complete, traced_at, bus_at
FROM state_topology
WHERE event_type = 'sdf.state.topology.flow.v1'
ORDER BY src, dst, protocol, source_port, destination_port, dscp, bus_at DESC, bus_seq DESC
LIMIT 1 BY src, dst, protocol, source_port, destination_port, dscp
COMMENT 'The newest trace of every flow: the routers that it crosses, hop by hop.';

CREATE OR REPLACE VIEW v_flow_links AS
SELECT
    f.src AS src, f.dst AS dst, f.protocol AS protocol,
    f.source_port AS source_port, f.destination_port AS destination_port, f.dscp AS dscp,
    arrayMap(x -> tupleElement(x, 2), arraySort(groupArray((f.hop, l.direction)))) AS links
FROM
(
    SELECT src, dst, protocol, source_port, destination_port, dscp, hop, step
    FROM v_flows
    ARRAY JOIN arrayConcat(hops, [dst]) AS step, arrayEnumerate(arrayConcat(hops, [dst])) AS hop
) AS f
INNER JOIN
(
    SELECT direction, arrayJoin([to_address, to_node]) AS step FROM v_links
) AS l ON f.step = l.step
GROUP BY src, dst, protocol, source_port, destination_port, dscp
COMMENT 'The link directions that each flow crosses, in order, from its newest trace and the declared cabling.';

CREATE OR REPLACE VIEW v_job_paths AS
SELECT
    q.job AS job, q.qp AS qp, q.rank AS rank, q.peer_rank AS peer_rank, q.steering AS steering,
    q.path AS path, q.use AS use, q.dir AS dir, q.src AS src, q.dst AS dst, q.protocol AS protocol,
    q.source_port AS source_port, q.destination_port AS destination_port, q.dscp AS dscp,
    f.hops AS hops,
    k.links AS links,
    if(f.bus_at = toDateTime64(0, 9, 'UTC'), NULL, f.complete) AS complete,
    if(f.bus_at = toDateTime64(0, 9, 'UTC'), NULL, f.traced_at) AS traced_at
FROM
(
    SELECT
        job, qp, rank, peer_rank, steering, protocol, dscp, path, use, dir,
        if(dir = 'data', near, far) AS src,
        if(dir = 'data', far, near) AS dst,
        multiIf(dir = 'data', path, protocol = 'tcp', dst_port, ifNull(answer_path, path)) AS source_port,
        multiIf(dir = 'data', dst_port, protocol = 'tcp', path, ifNull(answer_port, dst_port)) AS destination_port
    FROM
    (
        SELECT
            job, tupleElement(choice, 1) AS path, tupleElement(choice, 2) AS use, dir,
            JSONExtractString(pair, 'qp') AS qp,
            JSONExtract(pair, 'rank', 'UInt32') AS rank,
            JSONExtract(pair, 'peer_rank', 'UInt32') AS peer_rank,
            JSONExtractString(pair, 'steering') AS steering,
            JSONExtractString(pair, 'src') AS near,
            JSONExtractString(pair, 'dst') AS far,
            JSONExtractString(pair, 'protocol') AS protocol,
            JSONExtract(pair, 'dst_port', 'UInt16') AS dst_port,
            JSONExtract(pair, 'dscp', 'UInt8') AS dscp,
            JSONExtract(pair, 'answer_path', 'Nullable(UInt16)') AS answer_path,
            JSONExtract(pair, 'answer_port', 'Nullable(UInt16)') AS answer_port
        FROM (SELECT job, arrayJoin(JSONExtractArrayRaw(data, 'qps')) AS pair FROM v_job_parts WHERE state = 'running')
        ARRAY JOIN arrayConcat(
            [(JSONExtract(pair, 'path', 'UInt16'), 'now')],
            arrayMap(p -> (p, 'alternate'), JSONExtract(pair, 'alternates', 'Array(UInt16)'))
        ) AS choice
        ARRAY JOIN ['data', 'answers'] AS dir
    )
) AS q
LEFT JOIN v_flows AS f
    ON f.src = q.src AND f.dst = q.dst AND f.protocol = q.protocol
    AND f.source_port = q.source_port AND f.destination_port = q.destination_port AND f.dscp = q.dscp
LEFT JOIN v_flow_links AS k
    ON k.src = q.src AND k.dst = q.dst AND k.protocol = q.protocol
    AND k.source_port = q.source_port AND k.destination_port = q.destination_port AND k.dscp = q.dscp
ORDER BY job, qp, use = 'alternate', path, dir = 'answers'
COMMENT 'Every running queue pair, on its source port now and on each it may be moved to, both ways: hops and link directions of the newest trace; traced_at NULL: not traced.';

CREATE OR REPLACE VIEW v_qp AS
SELECT
    w.job AS job, w.qp AS qp, w.src AS src, w.dst AS dst,
    toStartOfSecond(w.at) AS second,
    any(w.rank) AS rank,
    any(w.peer_rank) AS peer_rank,
    argMax(w.path, w.at) AS path,
    sum(w.n) AS n,
    sum(w.bytes) AS bytes,
    sum(w.bytes) * 8 AS throughput_bps,
    sum(w.packets) AS packets,
    sum(w.retransmits) AS retransmits,
    sum(w.ce) AS ce,
    min(w.owd_min_ns) AS owd_min_ns,
    quantileExactWeighted(0.5)(w.owd_p50_ns, w.n) AS owd_p50_ns,
    max(w.owd_max_ns) AS owd_max_ns,
    max(w.duration_max_ns) AS duration_max_ns,
    max(w.err_ns) AS err_ns,
    countIf(w.n = 0) AS waiting_windows
FROM derived_qp AS w
GROUP BY job, qp, src, dst, second
COMMENT 'What a queue pair got, by second of reference time in which it had something to send: throughput (payload acknowledged), one-way delay of first packets, retransmits; waiting_windows: windows in which nothing was acknowledged.';

CREATE OR REPLACE VIEW v_job_throughput AS
SELECT
    q.job AS job,
    q.second AS second,
    count() AS qps,
    sum(q.throughput_bps) AS throughput_bps,
    min(q.throughput_bps) AS slowest_bps,
    argMin(q.qp, (q.throughput_bps, q.qp)) AS slowest_qp,
    quantileExact(0.5)(q.throughput_bps) AS median_bps,
    sum(q.retransmits) AS retransmits,
    sum(q.ce) AS ce
FROM v_qp AS q
GROUP BY job, second
COMMENT 'Per job and second: what all its queue pairs got together, and what the slowest of those that had something to send got. The first and last second of a job are cut short.';

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
    m.retransmits_after AS retransmits_after
FROM v_commands AS c
LEFT JOIN
(
    SELECT
        a.command AS command,
        sumIf(w.bytes, w.at < a.applied_at) AS bytes_before,
        sumIf(w.bytes, w.at >= a.applied_at) AS bytes_after,
        sumIf(w.window_ns, w.at < a.applied_at) AS ns_before,
        sumIf(w.window_ns, w.at >= a.applied_at) AS ns_after,
        sumIf(w.retransmits, w.at < a.applied_at) AS retransmits_before,
        sumIf(w.retransmits, w.at >= a.applied_at) AS retransmits_after
    FROM
    (
        SELECT command, any(target_id) AS qp, min(bus_at) AS applied_at
        FROM control_outcome
        WHERE state = 'applied' AND target_type = 'qp'
        GROUP BY command
    ) AS a
    INNER JOIN derived_qp AS w ON w.qp = a.qp
    WHERE w.at BETWEEN a.applied_at - toIntervalSecond(5) AND a.applied_at + toIntervalSecond(5)
    GROUP BY command
) AS m ON m.command = c.id
WHERE c.first_applied_at IS NOT NULL
ORDER BY applied_at DESC, id
COMMENT 'What each applied command brought its queue pair: throughput over the windows in which it had something to send, 5 s before and 5 s after it was first applied (bus time), beside what the controller stated (stated_…).';
