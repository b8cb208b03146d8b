-- Silences and labels count where an operator's override asked for them, as on the boards: agents may write outcomes too,
-- but only operators overrides. A link is named by its two ends in either order.

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
        JSONExtractString(data, 'target', 'override') AS id,
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
        AND (id, subject_type, arraySort(splitByString('--', subject)), JSONExtractInt(data, 'after', 'until_at_ns')) IN
        (
            SELECT
                id, ifNull(target_type, ''),
                if(target_type = 'all', ['*'], arraySort(splitByString('--', ifNull(target_id, '')))),
                ifNull(toUnixTimestamp64Nano(expires_at), 0)
            FROM control_override WHERE what = 'silence'
        )
    LIMIT 1 BY id
) AS s
LEFT JOIN
(
    SELECT
        assumeNotNull(target_id) AS id,
        min(bus_at) AS lifted_at,
        argMin(JSONExtractString(data, 'after', 'operator'), bus_at) AS lifted_by
    FROM control_outcome
    WHERE action = 'lift' AND state = 'applied' AND host = 'controller'
        AND (JSONExtractString(data, 'target', 'override'), assumeNotNull(target_id)) IN
            (SELECT id, ifNull(target_id, '') FROM control_override WHERE what = 'lift')
    GROUP BY id
) AS l ON l.id = s.id
ORDER BY said_at DESC, id
COMMENT 'One row per silence of findings that an operator asked for: subject, kinds (empty: all), from and until when (until_at: as lifted, where somebody did), with maintenance the loop starts nothing new there, who and why.';

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
    AND (JSONExtractString(data, 'target', 'override'), assumeNotNull(target_id), JSONExtractString(data, 'after', 'cause')) IN
        (SELECT id, ifNull(target_id, ''), JSONExtractString(data, 'set', 'cause') FROM control_override WHERE what = 'label')
GROUP BY finding
ORDER BY said_at DESC, finding
COMMENT 'One row per finding that an operator labelled: what it turned out to be as said last (a cause, or false-alarm), by whom.';
