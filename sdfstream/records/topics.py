"""Every topic on the bus: its name, its form and, for bulk topics, its columns with units.

``schemas/`` is generated from this file (``make schemas``; a test keeps the two equal). A field is never removed or
re-used: a change is a new field, or a new version of the topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

from sdfstream.records.field import NAME as NAME
from sdfstream.records.field import column as _column
from sdfstream.records.hop_columns import HOP_COLUMNS
from sdfstream.records.probe_columns import PROBE_COLUMNS


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `columns` is None for topics that carry one CloudEvents JSON object per message."""

    name: str
    doc: str
    key: str
    columns: pa.Schema | None = None
    compacted: bool = False
    archived: bool = True
    """False: what two processes of one stage say to each other; neither the archive nor a recording keeps it."""

    @property
    def form(self) -> Literal["bulk", "event"]:
        """``bulk``: one Arrow IPC stream per message; ``event``: CloudEvents 1.0 JSON, structured mode."""
        return "event" if self.columns is None else "bulk"

    @property
    def urgent(self) -> bool:
        """Whether a reader should look at its messages at once: events, but not those that say how things stand."""
        return self.columns is None and not self.compacted

    @property
    def dead_letters(self) -> str:
        """Where what could not be read of this topic goes, with the reason."""
        return f"{self.name}.dlq"


def is_schema_of(schema: str, topic: str) -> bool:
    """Whether a message that says `schema` may stand in `topic`: its name, with or without a minor number behind it.

    A minor number counts columns and fields that were added; nothing of it needs to be known to read the message.
    Readers of the release before the first writer of minor numbers take them, so that either may be newer.

    >>> [is_schema_of(s, "sdf.raw.probe.v1") for s in ("sdf.raw.probe.v1", "sdf.raw.probe.v1.7", "sdf.raw.probe.v2")]
    [True, True, False]
    """
    minor = schema.removeprefix(topic)
    return schema.startswith(topic) and (not minor or (minor[0] == "." and minor[1:].isdecimal() and len(minor) <= 6))


PROBE: Final = Topic(
    "sdf.raw.probe.v1",
    "One row per probe exchange, answered or timed out. Rows of transport host are none of a path: they compare a "
    "NIC's hardware clock (t2 = t3) with its host's system clock (t1 before, t4 after); src and dst are the NIC.",
    key="the agent's host",
    columns=PROBE_COLUMNS,
)

_count = "since the counter was last reset"
PORT: Final = Topic(
    "sdf.raw.port.v1",
    "One row per port and reading: state and counters as the host sees them. An absent counter is null, never 0.",
    key="the agent's host",
    columns=pa.schema(
        [
            _column("at_ns", pa.int64(), "when it was read", unit="ns since epoch, the host's clock"),
            _column("host", NAME, "the agent's host"),
            _column("nic", NAME, "NIC id host/nic"),
            _column("port", NAME, "port id host/nic:port"),
            _column("state", NAME, "up, down (by carrier), disabled (by the administrator), absent, unknown"),
            _column("carrier_changes", pa.uint64(), f"carrier changes {_count}", null=True),
            _column("speed_mbps", pa.uint32(), "link speed", unit="Mbit/s", null=True),
            _column("mtu_bytes", pa.uint32(), "largest IP packet", unit="bytes", null=True),
            _column("rx_bytes", pa.uint64(), f"bytes received {_count}", unit="bytes", null=True),
            _column("tx_bytes", pa.uint64(), f"bytes sent {_count}", unit="bytes", null=True),
            _column("rx_packets", pa.uint64(), f"packets received {_count}", null=True),
            _column("tx_packets", pa.uint64(), f"packets sent {_count}", null=True),
            _column("rx_errors", pa.uint64(), f"receive errors {_count}", null=True),
            _column("tx_errors", pa.uint64(), f"transmit errors {_count}", null=True),
            _column("rx_discards", pa.uint64(), f"good packets dropped on receipt {_count}", null=True),
            _column("tx_discards", pa.uint64(), f"good packets dropped before sending {_count}", null=True),
            _column("rx_pause", pa.uint64(), f"pause frames received, all priorities {_count}", null=True),
            _column("tx_pause", pa.uint64(), f"pause frames sent, all priorities {_count}", null=True),
            _column("fec_corrected", pa.uint64(), f"FEC blocks or symbols corrected {_count}", null=True),
            _column("fec_uncorrectable", pa.uint64(), f"FEC blocks lost {_count}", null=True),
            _column("symbol_errors", pa.uint64(), f"physical symbol errors {_count}", null=True),
            _column("link_downed", pa.uint64(), "link failures; null when an 8-bit counter stands at 255", null=True),
            _column("rx_power_dbm", pa.float32(), "received optical power, weakest lane", unit="dBm", null=True),
            _column("tx_power_dbm", pa.float32(), "sent optical power, weakest lane", unit="dBm", null=True),
            _column("module_temp_c", pa.float32(), "optics module temperature", unit="°C", null=True),
        ]
    ),
)

CLOCK: Final = Topic(
    "sdf.state.clock.v1",
    "One row per clock and update. causal rows come every 100 ms of bus time; smoothed rows lie 2–4 s back. Where "
    "hosts disciplined to UTC are named, clock utc is UTC itself (causal rows only).",
    key="mesh",
    columns=pa.schema(
        [
            _column("clock", NAME, "clock id"),
            _column("at_ns", pa.int64(), "the instant the row speaks of", unit="ns since epoch, that clock's reading"),
            _column("offset_ns", pa.float64(), "that clock − reference", unit="ns"),
            _column("skew_ppb", pa.float64(), "positive: that clock runs fast", unit="ppb"),
            _column("err_ns", pa.float64(), "|true offset error| is at most this at 99.9 %", unit="ns"),
            _column("n", pa.uint32(), "samples behind the row"),
            _column("status", NAME, "synced, holdover, unsynced, faulty"),
            _column("kind", NAME, "causal, smoothed"),
        ]
    ),
)

OWD: Final = Topic(
    "sdf.derived.owd.v1",
    "Corrected one-way delay: one row per path id and window (100 ms by default).",
    key="the sender's host",
    columns=pa.schema(
        [
            _column("at_ns", pa.int64(), "window start", unit="ns since epoch, reference time"),
            _column("window_ns", pa.int64(), "window length", unit="ns"),
            _column("src", NAME, "NIC id of the session's sender"),
            _column("dst", NAME, "NIC id of the session's reflector"),
            _column("transport", NAME, "udp, rocev2, ib"),
            _column("path", pa.uint32(), "path selector (UDP source port)"),
            _column("dscp", pa.uint8(), "class, DSCP as sent"),
            _column("dir", NAME, "fwd: sender to reflector; rev: reflector to sender"),
            _column("n", pa.uint32(), "delays in the window"),
            _column("lost", pa.uint32(), "exchanges that timed out (no direction known): on fwd; 0 on rev is unknown"),
            _column("ce", pa.uint32(), "packets that arrived with CE"),
            _column("owd_min_ns", pa.float64(), "smallest delay", unit="ns", null=True),
            _column("owd_p50_ns", pa.float64(), "median delay", unit="ns", null=True),
            _column("owd_p99_ns", pa.float64(), "99th percentile", unit="ns", null=True),
            _column("owd_max_ns", pa.float64(), "largest delay", unit="ns", null=True),
            _column("excess_p50_ns", pa.float64(), "median over the path's own floor", unit="ns", null=True),
            _column("err_ns", pa.float64(), "error bar of the delays: clocks of both ends", unit="ns", null=True),
        ]
    ),
)

EDGE: Final = Topic(
    "sdf.derived.edge.v1",
    "Where sync runs in parts (`sync-edge`, `sync-mesh`): one row per directed clock pair and tick, all that the mesh "
    "needs to know of the sessions between the two. Sums run over those sessions, each times its robust weight.",
    key="the part of the edge work",
    columns=pa.schema(
        [
            _column("tick_at_ns", pa.int64(), "the tick", unit="ns since epoch, bus time"),
            _column("origin_ns", pa.int64(), "origin of internal time, once told", unit="ns since epoch", null=True),
            _column("lag_ns", pa.float64(), "smallest lag of the part's exchanges in this tick", unit="ns", null=True),
            _column("clock_src", NAME, "the sender's clock"),
            _column("clock_dst", NAME, "the reflector's clock"),
            _column("base_src_ns", pa.int64(), "clock_src − bus time, about; null: not heard", unit="ns", null=True),
            _column("base_dst_ns", pa.int64(), "clock_dst − bus time, about; null: not heard", unit="ns", null=True),
            _column("weight_per_ns2", pa.float64(), "sum of 1/variance of the offset", unit="1/ns²"),
            _column(
                "offset_ns", pa.float64(), "weighted mean of clock_dst − clock_src less bases and drifts", unit="ns"
            ),
            _column("skew_weight_per_ppb2", pa.float64(), "sum of 1/variance of the slope", unit="1/ppb²"),
            _column("skew_ppb", pa.float64(), "weighted mean slope of the offset, less drifts", unit="ppb"),
            _column("info_xx_per_ns2", pa.float64(), "sum of inverse covariances: offset", unit="1/ns²"),
            _column("info_xg_per_ns_ppb", pa.float64(), "offset with slope", unit="1/(ns·ppb)"),
            _column("info_gg_per_ppb2", pa.float64(), "slope", unit="1/ppb²"),
            _column("square_ns2", pa.float64(), "lasting disagreement beyond own noise, mean square", unit="ns²"),
            _column("rest_ns2", pa.float64(), "residual now, mean square", unit="ns²"),
            _column("sessions", pa.uint32(), "sessions between the two"),
            _column("bad", pa.uint32(), "of them in lasting disagreement with the mesh"),
            _column("heard", pa.bool_(), "one of them was heard lately"),
            _column("blocks", pa.uint32(), "of them heard in this tick"),
            _column("tripped", pa.uint32(), "whose clock difference jumped lately"),
            _column("step_ns", pa.float64(), "by how much at most", unit="ns"),
            _column("alarm_ns2", pa.float64(), "what packets surprised them by, mean square", unit="ns²"),
            _column("breached", pa.uint32(), "whose packets of this tick contradict all that is known", null=True),
            _column("breach_ns2", pa.float64(), "by how much, sum of squares", unit="ns²", null=True),
            _column("drifted_src_ns", pa.float64(), "what drifts made of clock_src", unit="ns", null=True),
            _column("drifted_src_ppb", pa.float64(), "and of its skew", unit="ppb", null=True),
            _column("drifted_dst_ns", pa.float64(), "what drifts made of clock_dst", unit="ns", null=True),
            _column("drifted_dst_ppb", pa.float64(), "and of its skew", unit="ppb", null=True),
        ]
    ),
    archived=False,
)

ESTIMATE: Final = Topic(
    "sdf.derived.estimate.v1",
    "Where sync is split over processes: the mesh's estimate of every clock after a tick. One row per clock; the first "
    "columns are alike in all rows of a tick, which is complete when `clocks` of them are there.",
    key="mesh",
    columns=pa.schema(
        [
            _column("tick_at_ns", pa.int64(), "the tick", unit="ns since epoch, bus time"),
            _column("clocks", pa.uint32(), "rows of this tick in all its messages"),
            _column("origin_ns", pa.int64(), "origin of internal time", unit="ns since epoch"),
            _column("now_ns", pa.float64(), "the instant of all rows, internal time", unit="ns since origin"),
            _column("lag_ns", pa.float64(), "how far evidence is behind the bus", unit="ns"),
            _column("usual_ns2", pa.float64(), "usual squared disagreement of a session with the mesh", unit="ns²"),
            _column(
                "place_at_ns", pa.float64(), "the reference's place holds at, internal time", unit="ns since origin"
            ),
            _column("place_base_ns", pa.int64(), "the reference's base", unit="ns"),
            _column("place_offset_ns", pa.float64(), "the reference − ensemble", unit="ns"),
            _column("place_skew_ppb", pa.float64(), "the reference's rate − ensemble's", unit="ppb"),
            _column("clock", NAME, "clock id"),
            _column("base_ns", pa.int64(), "its reading − bus time, about; null: not heard", unit="ns", null=True),
            _column("offset_ns", pa.float64(), "that clock − ensemble, less base", unit="ns"),
            _column("skew_ppb", pa.float64(), "its rate − ensemble's", unit="ppb"),
            _column("var_xx_ns2", pa.float64(), "own part of the covariance: offset", unit="ns²"),
            _column("var_xg_ns_ppb", pa.float64(), "offset with skew", unit="ns·ppb"),
            _column("var_gg_ppb2", pa.float64(), "skew", unit="ppb²"),
            _column("walk_ppb2_per_s", pa.float64(), "random walk of the frequency", unit="ppb²/s"),
            _column("phase_ns2_per_s", pa.float64(), "random walk of the phase", unit="ns²/s"),
            _column("bound_ns2", pa.float64(), "variance behind the published error", unit="ns²"),
            _column("drift_ppb_per_s", pa.float64(), "how fast its skew drifts", unit="ppb/s", null=True),
            _column("drifted_ns", pa.float64(), "all that drifts made of its offset so far", unit="ns", null=True),
            _column("drifted_ppb", pa.float64(), "and of its skew", unit="ppb", null=True),
        ]
    ),
    archived=False,
)

QP: Final = Topic(
    "sdf.raw.qp.v1",
    "In band: one row per chunk that a queue pair carried, written by the sending end once it is acknowledged; of a "
    "kernel flow one row per interval, written by the host that counts it (then `clock_src` is that host's).",
    key="the sender's host; of kernel flows counted where they are received, that host",
    columns=pa.schema(
        [
            _column("sent_at_ns", pa.int64(), "first packet leaves the sender", unit="ns since epoch, clock_src"),
            _column("job", NAME, "job id"),
            _column("rank", pa.uint32(), "rank that sends"),
            _column("peer_rank", pa.uint32(), "rank that receives"),
            _column("qp", NAME, "QP id host/nic#number"),
            _column("src", NAME, "NIC id that sends"),
            _column("dst", NAME, "NIC id that receives"),
            _column("clock_src", NAME, "clock that made sent_at, acknowledged_at"),
            _column("clock_dst", NAME, "clock that made arrived_at, completed_at"),
            _column("transport", NAME, "udp, rocev2, ib, tcp"),
            _column("path", pa.uint32(), "source port that the chunk's last packet left with"),
            _column("dst_port", pa.uint16(), "destination port"),
            _column("dscp", pa.uint8(), "class, DSCP as sent"),
            _column("collective", NAME, "all-reduce, all-to-all, …; null: not told", null=True),
            _column("collective_id", pa.uint64(), "which of the job's collectives", null=True),
            _column("chunk", pa.uint64(), "number within the queue pair"),
            _column("bytes", pa.uint64(), "payload", unit="bytes"),
            _column("packets", pa.uint32(), "packets that the payload needs"),
            _column("arrived_at_ns", pa.int64(), "first packet arrives", unit="ns since epoch, clock_dst", null=True),
            _column("completed_at_ns", pa.int64(), "last one arrives", unit="ns since epoch, clock_dst", null=True),
            _column("acknowledged_at_ns", pa.int64(), "sender knows", unit="ns since epoch, clock_src", null=True),
            _column("ce", pa.uint32(), "packets that arrived with CE", null=True),
            _column("retransmits", pa.uint32(), "packets sent again", null=True),
        ]
    ),
)

QP_WINDOW: Final = Topic(
    "sdf.derived.qp.v1",
    "What a queue pair got: one row per queue pair and window (100 ms by default) in which it had something to send.",
    key="the sender's host",
    columns=pa.schema(
        [
            _column("at_ns", pa.int64(), "window start", unit="ns since epoch, reference time"),
            _column("window_ns", pa.int64(), "window length", unit="ns"),
            _column("job", NAME, "job id"),
            _column("rank", pa.uint32(), "rank that sends"),
            _column("peer_rank", pa.uint32(), "rank that receives"),
            _column("qp", NAME, "QP id host/nic#number"),
            _column("src", NAME, "NIC id that sends"),
            _column("dst", NAME, "NIC id that receives"),
            _column("transport", NAME, "udp, rocev2, ib, tcp"),
            _column("path", pa.uint32(), "source port of the window's last chunk"),
            _column("dst_port", pa.uint16(), "destination port"),
            _column("dscp", pa.uint8(), "class, DSCP as sent"),
            _column("n", pa.uint32(), "chunks acknowledged in the window"),
            _column("bytes", pa.uint64(), "their payload", unit="bytes"),
            _column("packets", pa.uint32(), "packets that it needs"),
            _column("ce", pa.uint32(), "packets that arrived with CE", null=True),
            _column("retransmits", pa.uint32(), "packets sent again", null=True),
            _column("owd_min_ns", pa.float64(), "smallest one-way delay of a first packet", unit="ns", null=True),
            _column("owd_p50_ns", pa.float64(), "median one-way delay of first packets", unit="ns", null=True),
            _column("owd_max_ns", pa.float64(), "largest", unit="ns", null=True),
            _column("duration_p50_ns", pa.float64(), "median from first send to acknowledgement", unit="ns", null=True),
            _column("duration_max_ns", pa.float64(), "longest", unit="ns", null=True),
            _column("err_ns", pa.float64(), "error bar of the delays: clocks of both ends", unit="ns", null=True),
        ]
    ),
)

HOP: Final = Topic(
    "sdf.derived.hop.v1",
    "Queue and utilisation of one direction of a link, by probes, ports and queue pairs: one row per span (1 s).",
    "fabric",
    HOP_COLUMNS,
)

LIVENESS: Final = Topic(
    "sdf.raw.liveness.v1",
    "An agent's own judgement of its paths, published at once: which fell silent, which came back. Every second a sign "
    "of life, where nothing changed without any path; every ten seconds, at the start and when changes have settled "
    "the complete list.",
    key="the agent's host",
)
NIC: Final = Topic(
    "sdf.state.nic.v1",
    "Health of one NIC and direction: healthy, unhealthy, unknown.",
    key="NIC id and direction",
    compacted=True,
)
TOPOLOGY: Final = Topic(
    "sdf.state.topology.v1",
    "Declared cabling, paths traced hop by hop, and the NICs of agents that take their sessions from the mesh plan.",
    key="what it describes",
    compacted=True,
)
MESH: Final = Topic(
    "sdf.state.mesh.v1",
    "The mesh plan, host by host: whom it probes, over which source port, in which class, how often. Said at once when "
    "it changes, and again slowly.",
    key="the agent's host",
    compacted=True,
)
ANOMALY: Final = Topic(
    "sdf.derived.anomaly.v1",
    "What sync noticed of a path while it measured: its fixed delay changed (a reroute).",
    key="the sending host",
    archived=False,
)
FINDING: Final = Topic("sdf.event.finding.v1", "What broke, where, why and whom it hurts.", key="finding id")
JOB: Final = Topic(
    "sdf.state.job.v1",
    "One host's share of a job: ranks, NICs, queue pairs. A job is the union of its parts.",
    key="job@host",
    compacted=True,
)
COMMAND: Final = Topic(
    "sdf.control.command.v1",
    "Leased, signed, reversible commands to agents; a repeat with later times renews the lease.",
    key="the target's host",
)
OUTCOME: Final = Topic(
    "sdf.control.outcome.v1", "What became of a command, with measurements before and after.", key="command id"
)
OVERRIDE: Final = Topic("sdf.control.override.v1", "An operator's hand, signed.", key="operator")
CHECKPOINT: Final = Topic(
    "sdf.state.checkpoint.v1",
    "What stages need to go on after a crash: positions and notes of each unit of their work (``bus/task.py``). Bytes, "
    "for the same version of the same stage only; not in `TOPICS`, since nobody else reads it.",
    key="prefix, stage, unit and note",
    compacted=True,
    archived=False,
)

_BULK: Final = (PROBE, PORT, QP, LIVENESS, CLOCK, OWD, EDGE, ESTIMATE, ANOMALY, QP_WINDOW, HOP)
_RARE: Final = (NIC, TOPOLOGY, MESH, JOB, FINDING, COMMAND, OUTCOME, OVERRIDE)
TOPICS: Final[dict[str, Topic]] = {t.name: t for t in (*_BULK, *_RARE)}

ARCHIVED: Final[dict[str, Topic]] = {name: topic for name, topic in TOPICS.items() if topic.archived}
"""What the archive has tables for and a recording keeps. Left out: `EDGE` and `ESTIMATE`, which only sync itself reads,
ten times a second for every clock pair (`CLOCK` and `OWD` come of them), and `ANOMALY`, which a replay makes afresh."""

FROM_AGENTS: Final = (PROBE, PORT, QP, LIVENESS, TOPOLOGY, JOB, OUTCOME)
"""What agents (and the jobs on their hosts) write, and nothing else: access rules and the link hold them to it."""
SHARED: Final = frozenset({OUTCOME.name})
"""Topics that a stage and agents both write; an event's `source` says which of them wrote it."""
