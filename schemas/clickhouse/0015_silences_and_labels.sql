-- What operators said of findings, as the controller took it up; its outcomes repeat silences and labels whole.

CREATE OR REPLACE VIEW v_silences AS
SELECT
    s.id AS id, s.subject_type AS subject_type, s.subject AS subject, s.kinds AS kinds,
    s.from_at AS from_at,
    if(ifNull(l.id, '') = '', s.planned_until_at, least(s.planned_until_at, assumeNotNull(l.lifted_at))) AS until_at,
    s.maintenance AS maintenance, s.operator AS operator, s.reason AS reason, s.said_at AS said_at,
    if(ifNull(l.id, '') = '', NULL, l.lifted_at) AS lifted_at,
    if(ifNull(l.id, '') = '', NULL, l.lifted_by) AS lifted_by
FROM
(
    SELECT
        command AS id,
        assumeNotNull(target_type) AS subject_type,
        assumeNotNull(target_id) AS subject,
        JSONExtract(data, 'after', 'kinds', 'Array(String)') AS kinds,
        fromUnixTimestamp64Nano(JSONExtractInt(data, 'after', 'from_at_ns'), 'UTC') AS from_at,
        fromUnixTimestamp64Nano(JSONExtractInt(data, 'after', 'until_at_ns'), 'UTC') AS planned_until_at,
        JSONExtractBool(data, 'after', 'maintenance') AS maintenance,
        JSONExtractString(data, 'after', 'operator') AS operator,
        JSONExtractString(data, 'after', 'reason') AS reason,
        bus_at AS said_at
    FROM control_outcome
    WHERE action = 'silence' AND state = 'applied' AND host = 'controller'
) AS s
LEFT JOIN
(
    SELECT
        assumeNotNull(target_id) AS id,
        min(bus_at) AS lifted_at,
        argMin(JSONExtractString(data, 'after', 'operator'), bus_at) AS lifted_by
    FROM control_outcome
    WHERE action = 'lift' AND state = 'applied' AND host = 'controller'
    GROUP BY id
) AS l ON l.id = s.id
ORDER BY said_at DESC, id
COMMENT 'One row per silence of findings: subject, kinds (empty: all), from and until when (until_at: as lifted, where somebody did), with maintenance the loop starts nothing new there, who and why.';

CREATE OR REPLACE VIEW v_labels AS
SELECT
    assumeNotNull(target_id) AS finding,
    argMax(JSONExtractString(data, 'after', 'cause'), (bus_at, bus_seq)) AS cause,
    argMax(JSONExtractString(data, 'after', 'operator'), (bus_at, bus_seq)) AS operator,
    argMax(JSONExtractString(data, 'after', 'note'), (bus_at, bus_seq)) AS note,
    max(bus_at) AS said_at,
    count() AS labels
FROM control_outcome
WHERE action = 'label' AND state = 'applied' AND host = 'controller'
GROUP BY finding
ORDER BY said_at DESC, finding
COMMENT 'One row per finding that was labelled: what it turned out to be as said last (a cause, or false-alarm), by whom.';

-- what is said of findings is no command
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
    WHERE ifNull(action, '') NOT IN ('silence', 'label', 'lift')
) AS s
GROUP BY id
ORDER BY max(s.bus_at) DESC, id
COMMENT 'One row per command, or proposal that was refused: what, why, its lease, what became of it last (state NULL: nothing yet), and throughput after / before where it was measured.';
