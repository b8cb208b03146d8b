-- The reflector's own number of each answer (RFC 8762 section 4.3). Between two answers with numbers r1 < r2 to probes
-- s1 < s2, r2 - r1 - 1 of the lost probes were lost on the way back, the others on the way there. NULL in older rows.

ALTER TABLE raw_probe ADD COLUMN IF NOT EXISTS seq_rev Nullable(UInt32) CODEC(Delta, ZSTD(1)) COMMENT 'number that the reflector gave its answer: of a stateful one its own count of this session''s answers, from 0; of a stateless one a copy of seq; NULL: no answer, or not known' AFTER plane;

ALTER TABLE raw_probe_kept ADD COLUMN IF NOT EXISTS seq_rev Nullable(UInt32) CODEC(Delta, ZSTD(1)) COMMENT 'number that the reflector gave its answer: of a stateful one its own count of this session''s answers, from 0; of a stateless one a copy of seq; NULL: no answer, or not known' AFTER plane;

CREATE OR REPLACE VIEW v_probe AS
SELECT
    src, dst, transport, path, dscp_sent AS dscp, seq,
    t1, t2, t3, t4,
    t41_ns IS NULL AS lost,
    rtt_ns, turn_ns,
    ecn_sent, ecn_fwd, ecn_rev, dscp_fwd, dscp_rev, ttl_fwd, ttl_rev,
    tx_host_ns, rx_host_ns, size_bytes, t1_kind, t2_kind, t3_kind, t4_kind,
    clock_src, clock_dst, plane, seq_rev, bus_at
FROM raw_probe
WHERE transport != 'host'
COMMENT 'Every probe exchange with its four stamps, each by its own clock, and the round trip without the turn.';

CREATE OR REPLACE VIEW v_probe_kept AS
SELECT
    src, dst, transport, path, dscp_sent AS dscp, seq,
    t1, t2, t3, t4,
    t41_ns IS NULL AS lost,
    rtt_ns, turn_ns,
    ecn_sent, ecn_fwd, ecn_rev, dscp_fwd, dscp_rev, ttl_fwd, ttl_rev,
    tx_host_ns, rx_host_ns, size_bytes, t1_kind, t2_kind, t3_kind, t4_kind,
    clock_src, clock_dst, plane, seq_rev, bus_at
FROM raw_probe_kept FINAL
COMMENT 'Probe exchanges around findings, which stay when v_probe''s are gone; v_kept says which.';
