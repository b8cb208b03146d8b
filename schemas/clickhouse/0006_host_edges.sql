-- Rows of transport 'host' in raw_probe compare two clocks of one host: they are no probes of a path.

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
WHERE transport != 'host'
COMMENT 'Every probe exchange with its four stamps, each by its own clock, and the round trip without the turn.';

CREATE OR REPLACE VIEW v_host_edge AS
SELECT
    clock_src AS system_clock,
    clock_dst AS nic_clock,
    t1 AS system_at,
    t2 AS nic_at,
    t41_ns AS window_ns,
    t21_ns - t41_ns / 2 AS ahead_ns,
    bus_at
FROM raw_probe
WHERE transport = 'host'
COMMENT 'Comparisons of NIC hardware clocks with their host''s system clock: nic - system, right to within window_ns / 2.';
