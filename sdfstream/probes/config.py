"""Configuration of an agent process: its NICs, whom each probes, how often, in which class.

Plain frozen dataclasses with units in the names; ``settings.py`` reads them from YAML and refuses unknown keys
with their path. One process may serve several hosts (a lab does); each host publishes under its own name.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class VirtualClock:
    """A clock that is wrong on purpose, for tests: c(t) = t + offset + skew·(t − epoch) + wander(t)."""

    offset_ns: float = 0.0
    skew_ppb: float = 0.0
    wander_ns_per_sqrt_s: float = 0.0
    """Random walk of the phase: standard deviation after one second."""
    seed: int = 0
    epoch_at_ns: int = 0
    """Instant at which skew starts to count and the walk stands at zero, ns since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class NicConfig:
    """One NIC (or port of one) that probes and answers."""

    nic: str
    """NIC id host/nic."""
    device: str
    """Interface name; sockets are bound to it."""
    address: str
    """IPv4 or IPv6 address the sockets use."""
    netns: str | None = None
    """Path of the network namespace that holds the device; None: the agent's own."""
    plane: str | None = None
    rdma_device: str | None = None
    """RDMA device of its RoCEv2 sessions (``mlx5_0``); None: the one whose GID belongs to `device`, or is `address`."""


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """One NIC probing one far NIC in one class over some path selectors."""

    src: str
    """NIC id of the sender, one of the agent's NICs."""
    dst: str
    """NIC id of the reflector."""
    dst_address: str
    dst_port: int = 862
    source_ports: tuple[int, ...] = (49152,)
    """Path selectors; every one is a path of its own."""
    dscp: int = 0
    ecn: int = 2
    """2 = ECT(0)."""
    size_bytes: int = 128
    """IP packet size; at least what the STAMP packet and its TLVs need."""
    rate_hz: float = 16.0
    """Probes per second on every path (not over all of them)."""
    transport: str = "udp"
    """``udp``, or ``rocev2``: RoCEv2 packets of a queue pair (`sdfstream.verbs`). Of the latter `dst_port` means
    nothing, and where the device chooses source ports itself (Soft-RoCE) `source_ports` says only how many."""
    clock_dst: str | None = None
    """Clock id of the far end where its system clock stamps; None: its host. Its NIC's clock is the NIC id always."""
    prompt: bool = False
    """Write a row once its answer is there. Else it waits for the path's next answer, which says when the reflector's
    kernel sent this one (t3): on a slow path for longer than the row is worth. The delay back is unknown without."""


@dataclass(frozen=True, slots=True)
class HostConfig:
    """One host's share of an agent process."""

    host: str
    nics: tuple[NicConfig, ...]
    sessions: tuple[SessionConfig, ...] = ()
    virtual_clock: VirtualClock | None = None
    port_root: str = "/"
    """Root under which ``sys/class/net`` and ``sys/class/infiniband`` are read."""
    read_ports: bool = True


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """One agent process."""

    hosts: tuple[HostConfig, ...]
    reflector_port: int = 862
    """UDP port of the Session-Reflector (RFC 8762); unprivileged runs choose one above 1023."""
    flush_ms: int = 50
    """One batch per host and flush. It stands twice in how old a delay is when it is shown (its rows wait for the
    flush, and their window for the last of them); each batch costs the pipeline about a millisecond, whatever its size:
    where thousands of agents probe slowly, 100 spares half of that."""
    liveness_ms: int = 600
    """A path without an answer for this long (or 3 probe intervals, whichever is longer) is silent; down to 50."""
    port_interval_ms: int = 1000
    trace_interval_s: float = 60.0
    """How often every path is traced hop by hop; 0 switches tracing off."""
    hmac_key: bytes | None = field(default=None, repr=False)
    """Authenticated mode (HMAC-SHA-256/128, RFC 8762 section 4.4) when set."""
    hardware_stamps: bool = False
    """Ask the NIC for stamps; falls back to the kernel's, and the kind columns say so."""
    phc_rate_hz: float = 10.0
    """With `hardware_stamps`: how often every NIC's hardware clock is compared with the system clock; 10 at most, which
    is what sync can use; 0: never, and the host's clock is then not on the NICs' time line."""
    reflector_max_pps: int = 200_000
    """The reflector answers at most this many packets per second; the rest is counted."""
    reflector_source_pps: int = 20_000
    """Of these, to one address."""
    reflector_allow: tuple[str, ...] = ()
    """Networks whose senders are answered, e.g. ``10.0.0.0/8``, beside those that sessions, the mesh plan and jobs
    name. With ``mesh: auto`` those in `mesh_allow` are, too."""
    reflector_strangers: bool = False
    """Answer anybody else, too. Source addresses can be made up: answers may go to who asked for none."""
    reflector_stranger_pps: int = 1_000
    """To all of these together."""
    transports: tuple[str, ...] = ("udp",)
    """By which this agent answers and lets the mesh plan probe. With ``rocev2`` beside ``udp`` every NIC that has an
    RDMA device answers by RoCEv2, too, and is announced to the plan with it; sessions of that transport need no more
    than to stand in `sessions`."""
    rdma_meeting_port: int = 18_516
    """TCP port on the addresses of NICs with RoCEv2 sessions, where known senders and reflectors tell each other their
    queue pairs; the same on all hosts."""
    turnaround_ms: float = 2.0
    """A probe that finds the reflector idle is answered at once; then the reflector rests this long, so that one pass
    answers many. Where that would take more than three hundredths of a core it rests longer, up to ten times as long.
    The wait lies between t2 and t3, which are stamped, so it falsifies no delay."""
    tick_ms: float = 0.0
    """How often what is due is sent and answers are read; 0: a third of the shortest probe interval, 1–20 ms."""
    trace_rate_hz: float = 8.0
    """At most this many TTL-limited packets per second and host, of paths and flows together; the few that ask how far
    a silent path gets go beside it."""
    watch_rate_hz: float = 100.0
    """Probes per second on the quick paths of a job's NIC pairs: as many as cross what its queue pairs use, or are
    armed to be moved to, and tell one link from another."""
    watch_candidate_hz: float = 1.0
    """Probes per second on the other watch ports, so that they are traced and known to live."""
    watch_nic_pps: float = 2_000.0
    """Packets per second that a NIC sends on watch ports, quick ones and others. Where that does not suffice, links are
    told apart less well, then the quick ones have half their rate, then links are watched slowly: first those that
    queue pairs may be moved to, then those that they use (`shed.watch-…`, and the agent's troubles)."""
    watch_ports: int = 16
    """Source ports, hence paths, of a watched NIC pair, from which the quick ones are chosen."""
    watch_first_port: int = 49_600
    """The first of them; the others follow upward."""
    watch_spare_ports: int = 48
    """Further source ports, behind those: tried, a few at a time, for pairs that use a link, or may be moved to one,
    which none of their watch ports crosses. With 48 one of 16 equal-cost routes is missed by 2 pairs in a hundred."""
    watch_target_pps: float = 6_400.0
    """Packets per second that each host sends to one address by watch sessions, however many queue pairs go there."""
    watch_liveness_ms: int = 50
    """Like `liveness_ms`, for paths of watch sessions; three of their intervals when that is longer."""
    mesh: str = "configured"
    """``configured``: the sessions that stand here; ``auto``: beside them, those that the mesh plan gives each host."""
    mesh_budget_pps: float = 1000.0
    """Packets per second that each host sends for the plan, its probes and its answers together. What goes beyond that
    is left out, whatever the plan says."""
    mesh_first_port: int = 49_152
    """Source ports of planned sessions: this one and the next `mesh_ports` − 1 upward."""
    mesh_ports: int = 32
    mesh_allow: tuple[str, ...] = ()
    """Networks of the mesh, e.g. ``10.0.0.0/8``: a plan may send probes there and nowhere else, and senders from there
    are answered. Empty: wherever a plan says that is signed with one of `trusted_keys`; without such keys, nowhere."""
    mesh_target_pps: float = 250.0
    """Packets per second that each host sends to one address by plan, however many sessions of it go there."""
    large_hz: float = 0.0
    """Probes per second, with packets as large as the NIC's MTU allows, to each far NIC that the agent probes by UDP;
    0: none; 10 at most. A link that drops large packets and lets small ones pass is told by nothing else."""
    large_port: int = 49_151
    """Their source port."""
    jobs_dir: str = ""
    """Drop directory of jobs: one file ``<job>@<host>.json`` per job and host; empty: no jobs are looked for."""
    control: bool = False
    """Obey signed commands from the bus."""
    trusted_keys: tuple[str, ...] = ()
    """Public keys (Ed25519) of controllers whose commands (with `control`) and mesh plans are obeyed: base64, or the
    path of a file with 32 bytes or base64, such as ``keys/controller.pub`` of the controller's data folder."""
    control_state: str = ""
    """File that stores the leases in force over a restart of the agent; empty: a restarted agent forgets them."""
    clock_pages: str = "auto"
    """Folder of the pages that give applications the corrected time (docs/clock.md); ``auto``: /run/sdfstream/clock, or
    the user's own in /dev/shm; ``off``: none."""
    compression: str = "zstd"
    """Of what goes to Kafka: ``zstd`` or ``none``. A third of the bytes for half a microsecond of CPU a row."""
    buffer_bytes: int = 16 << 20
    """In memory, for outputs that the bus has not taken yet."""
    spill_bytes: int = 256 << 20
    """On disk, for what memory does not hold while the bus is away (docs/agents-away.md); 0: nothing."""
    spill_dir: str = "auto"
    """Folder of the spill, this agent's alone; ``auto``: in /var/lib/sdfstream/spill, or the user's ~/.local/state."""
    catch_up_bytes_s: int = 8 << 20
    """After an outage rows go at this rate (as they weigh in memory), or twice as fast as they come if that is more."""
    packet_engine: str = "auto"
    """What carries the packets: ``c``, the packet engine in a thread of its own; ``numpy``, the Python engines in the
    agent's loop, at many times the cost; ``auto``: the former where its library can be loaded, and a line in the log
    where it cannot."""
    realtime: bool = True
    """Ask for SCHED_FIFO; carried on without when not allowed."""


def carries_roce(config: AgentConfig) -> bool:
    """Whether some host of the agent is to probe, or to answer, by RoCEv2."""
    return "rocev2" in config.transports or any(s.transport == "rocev2" for h in config.hosts for s in h.sessions)


def udp_alone(config: AgentConfig) -> AgentConfig:
    """The same agent without its RoCEv2 sessions, which another part carries."""
    if not any(s.transport == "rocev2" for h in config.hosts for s in h.sessions):
        return config
    hosts = tuple(replace(h, sessions=tuple(s for s in h.sessions if s.transport != "rocev2")) for h in config.hosts)
    return replace(config, hosts=hosts)
