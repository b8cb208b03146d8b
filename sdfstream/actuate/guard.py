"""What stands between a proposal and a command: rules, each a small function with a name and a sentence.

A rule looks at a proposal and the facts and returns why not, or nothing. A proposal passes when none objects. Every
rule is written so that what is not known speaks against: the guard never passes something because a fact is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol

from sdfstream.actuate.config import ActuateConfig, ns
from sdfstream.actuate.jobs import OwnedQp, RunningJobs
from sdfstream.actuate.paths import Probing
from sdfstream.actuate.refusals import Doubt
from sdfstream.actuate.routes import Selectable
from sdfstream.records.silences import FindingSilence, scopes_of_queue_pair
from sdfstream.records.units import NS_PER_MS, NS_PER_S

_PROMISED_NS: Final = 2 * NS_PER_S
"""How long windows of throughput may still show the path before a move."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Something that a policy wants done to a queue pair."""

    action: str
    """failover (arming), steer or throttle."""
    owned: OwnedQp
    path: int | None = None
    """Source port it would go to."""
    reason: tuple[str, ...] = ()
    """Finding ids."""
    rail: str = ""
    err_ns: float | None = None
    """Error bar of the delays that the decision rests on; None: it rests on none."""
    renewal: bool = False
    """The command is in force already; this only keeps it so."""
    moved: bool = False
    """The queue pair is on another path by this command: to let go would take it back."""


@dataclass(slots=True)
class Breaker:
    """Opens when too many commands go wrong; stays open until a person resets it."""

    config: ActuateConfig
    open_since_ns: int | None = None
    marks: deque[tuple[int, bool]] = field(default_factory=deque)
    """(when, whether it went wrong) of commands within the window."""

    def note(self, bad: bool, now_ns: int) -> bool:
        """A command went well or wrong; True when that opens the breaker."""
        self.marks.append((now_ns, bad))
        while self.marks and now_ns - self.marks[0][0] > ns(self.config.breaker_window_s):
            self.marks.popleft()
        wrong = sum(bad for _, bad in self.marks)
        enough = wrong >= self.config.breaker_bad and wrong >= self.config.breaker_share * len(self.marks)
        if enough and self.open_since_ns is None:
            self.open_since_ns = now_ns
            return True
        return False

    def reset(self) -> None:
        """Closed, and what happened is forgotten."""
        self.open_since_ns = None
        self.marks.clear()


@dataclass(slots=True)
class Hold:
    """An operator's word that nothing is to be done to something."""

    override: str
    type: str
    """qp, job, host or all."""
    id: str
    until_ns: int

    def covers(self, owned: OwnedQp) -> bool:
        """Whether it holds this queue pair."""
        names = {"qp": (owned.pair.qp,), "job": (owned.job, owned.name), "host": (owned.host,)}
        return self.type == "all" or self.id in names.get(self.type, ())


class Leases(Protocol):
    """What was published, as far as the guard needs it."""

    def __len__(self) -> int:
        """Commands that are known, in force or not."""

    def in_force(self) -> int:
        """Commands in force."""


@dataclass(slots=True)
class GuardFacts:
    """What the rules look at."""

    config: ActuateConfig
    jobs: RunningJobs
    probing: Probing
    selectable: Selectable
    ledger: Leases
    breaker: Breaker
    mode: str
    seen_path: Callable[[str, int], int | None] = lambda qp, now_ns: None
    """Queue pair and now to the source port that its fresh windows of throughput show."""
    crossed: Callable[[OwnedQp, int | None, int], Iterable[tuple[str, str]]] = lambda owned, path, now_ns: ()
    """Queue pair, the source port it would go to (None: none) and now to the ends of the link directions that its
    data cross, or would, as far as traced."""
    holds: list[Hold] = field(default_factory=list)
    silences: list[FindingSilence] = field(default_factory=list)
    """Those that are not over; some may be planned for later."""
    steered: dict[str, int] = field(default_factory=dict)
    """Queue pair to when it was steered last."""
    steers: deque[tuple[int, str]] = field(default_factory=deque)
    """(when, job) of the steers within the last dwell."""
    banned: dict[tuple[str, int], int] = field(default_factory=dict)
    """(queue pair, source port; 0: all) to until when it is not tried."""
    rails: dict[str, str] = field(default_factory=dict)
    """Queue pair under trial to its rail: moved for contention, effect not measured yet."""
    tokens: float = 0.0
    filled_ns: int = 0
    dwell_ns: int = field(init=False)
    stale_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self.dwell_ns, self.stale_ns = ns(self.config.dwell_s), ns(self.config.stale_s)

    def change_mode(self, mode: str) -> None:
        """An operator's mode; the breaker is closed again."""
        self.mode = mode
        self.breaker.reset()

    def add_hold(self, hold: Hold) -> None:
        """Take an operator's hold; it ends by itself."""
        self.holds.append(hold)

    def lift(self, override: str) -> str:
        """End the silence or hold of this override; which of the two it was, empty: neither is known."""
        silences, holds = len(self.silences), len(self.holds)
        self.silences = [silence for silence in self.silences if silence.id != override]
        self.holds = [hold for hold in self.holds if hold.override != override]
        return "silence" if len(self.silences) < silences else "hold" if len(self.holds) < holds else ""

    def maintained(
        self, owned: OwnedQp, crossed: Iterable[tuple[str, str]], reasons: Iterable[str], now_ns: int
    ) -> FindingSilence | None:
        """The maintenance that covers a queue pair on a route over these link directions, for these findings."""
        planned = [s for s in self.silences if s.maintenance and s.in_force(now_ns)]
        if not planned:
            return None
        touched = scopes_of_queue_pair(owned.pair.src, owned.pair.dst, (owned.job, owned.name), reasons, crossed)
        return next((s for s in planned if s.scope in touched), None)

    def measure(self, qp: str, rail: str) -> None:
        """The effect of a move on this rail is being measured: moves on other rails wait."""
        self.rails[qp] = rail

    def end_measuring(self, qp: str) -> None:
        """Its effect is known, or will not be."""
        self.rails.pop(qp, None)

    def ban(self, qp: str, until_ns: int, path: int = 0) -> None:
        """Try nothing with a queue pair until `until_ns` (bus time): on one source port, or (0) on all."""
        self.banned[qp, path] = until_ns

    def is_banned(self, qp: str, now_ns: int, path: int = 0) -> bool:
        """Whether a ban of just this source port (0: of all) is in force."""
        return self.banned.get((qp, path), 0) > now_ns

    def expire(self, now_ns: int) -> None:
        """Forget what is over; fill the bucket."""
        while self.steers and now_ns - self.steers[0][0] >= self.dwell_ns:
            self.steers.popleft()
        self.steered = {qp: at for qp, at in self.steered.items() if now_ns - at < self.dwell_ns}
        self.banned = {key: until for key, until in self.banned.items() if until > now_ns}
        self.holds = [hold for hold in self.holds if hold.until_ns > now_ns]
        self.silences = [silence for silence in self.silences if silence.until_at_ns > now_ns]
        gained = (now_ns - self.filled_ns) * self.config.bucket_rate_hz / NS_PER_S if self.filled_ns else 1e9
        self.tokens = min(float(self.config.bucket_burst), self.tokens + gained)
        self.filled_ns = now_ns

    def snapshot(self) -> dict[str, Any]:
        """What the guard itself remembers, as plain values."""
        return {
            "mode": self.mode,
            "breaker": [self.breaker.open_since_ns, [list(m) for m in self.breaker.marks]],
            "holds": [[h.override, h.type, h.id, h.until_ns] for h in self.holds],
            "silences": [_row(silence) for silence in self.silences],
            "steered": list(self.steered.items()),
            "steers": [list(s) for s in self.steers],
            "banned": [[*key, until] for key, until in self.banned.items()],
            "rails": list(self.rails.items()),
            "bucket": [self.tokens, self.filled_ns],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.mode = state["mode"]
        self.breaker.open_since_ns = state["breaker"][0]
        self.breaker.marks = deque((at, bad) for at, bad in state["breaker"][1])
        self.holds = [Hold(*row) for row in state["holds"]]
        self.silences = [_silence(row) for row in state["silences"]]
        self.steered = {qp: at for qp, at in state["steered"]}
        self.steers = deque((at, job) for at, job in state["steers"])
        self.banned = {(qp, path): until for qp, path, until in state["banned"]}
        self.rails = {qp: rail for qp, rail in state["rails"]}
        self.tokens, self.filled_ns = state["bucket"]


def _row(silence: FindingSilence) -> dict[str, Any]:
    return asdict(silence) | {"kinds": list(silence.kinds)}


def _silence(row: Mapping[str, Any]) -> FindingSilence:
    return FindingSilence(**{**row, "kinds": tuple(row["kinds"])})


def breaker(p: Proposal, f: GuardFacts, now_ns: int) -> str:
    """Too many commands went wrong; a person has to look first."""
    if f.breaker.open_since_ns is None or p.moved:
        return ""
    return "too many commands failed or were taken back lately; an operator's mode override closes the breaker again"


def hold(p: Proposal, f: GuardFacts, now_ns: int) -> str:
    """An operator holds it."""
    held = next((h for h in f.holds if h.covers(p.owned)), None)
    return "" if held is None or p.moved else f"an operator's override {held.override} holds it"


def maintenance(p: Proposal, f: GuardFacts, now_ns: int) -> str:
    """Somebody works on what it crosses, belongs to or stands on."""
    if p.moved or not f.silences:
        return ""
    about = f.maintained(p.owned, f.crossed(p.owned, p.path, now_ns), p.reason, now_ns)
    return "" if about is None else f"{about.type} {about.name} is in maintenance by {about.operator} ({about.id})"


def opt_out(p: Proposal, f: GuardFacts, now_ns: int) -> str:
    """The job is to be left alone."""
    return "its job opted out" if {p.owned.job, p.owned.name} & set(f.config.opt_out) else ""


def steering(p: Proposal, f: GuardFacts, now_ns: int) -> str:
    """Nothing on its host can change it."""
    return "nothing on its host can change its path" if p.owned.pair.steering == "none" else ""


def stale_agent(p: Proposal, f: GuardFacts, now_ns: int) -> str:
    """Its agent must have published lately."""
    silence_ns = f.probing.silence_ns(p.owned.host, now_ns)
    if silence_ns is None:
        return f"the agent of {p.owned.host} was never heard"
    if silence_ns > f.stale_ns:
        return f"the agent of {p.owned.host} was not heard for longer than {f.config.stale_s:g} s"
    return ""


def not_selectable(p: Proposal, f: GuardFacts, now_ns: int) -> str:
    """The source port must select the path."""
    if p.action == "throttle":
        return ""
    verdict = f.selectable.of(p.owned.pair.src, p.owned.pair.dst, now_ns)
    return "" if verdict.answer == "yes" else f"path_selectable is {verdict.answer}: {verdict.why}"


def unexpected(p: Proposal, f: GuardFacts, now_ns: int) -> str:
    """What is in force must be clear."""
    qp = p.owned.pair.qp
    if f.jobs.contested(qp):
        return "two job parts claim it"
    if p.owned.pair.steering == "kernel":
        return ""
    seen = f.seen_path(qp, now_ns)
    recent = now_ns - f.steered.get(qp, 0) < _PROMISED_NS
    if seen is not None and seen != p.owned.pair.path and not recent:
        return f"the job map has it on source port {p.owned.pair.path}, its traffic on {seen}"
    return ""


def wide_clock(p: Proposal, f: GuardFacts, now_ns: int) -> str:
    """Delays that decide must be known well enough."""
    if p.err_ns is None or p.err_ns <= f.config.max_err_us * 1e3:
        return ""
    return f"clocks are known to {p.err_ns / NS_PER_MS:.1f} ms only, and the decision rests on one-way delays"


def budget(p: Proposal, f: GuardFacts, now_ns: int) -> str:
    """So many leases and no more."""
    most = f.config.max_leases
    full = not p.renewal and len(f.ledger) >= most and f.ledger.in_force() >= most
    return f"{f.config.max_leases} commands are in force already" if full else ""


def banned(p: Proposal, f: GuardFacts, now_ns: int) -> str:
    """Not again what has just failed."""
    if p.renewal:
        return ""
    qp = p.owned.pair.qp
    hit = f.is_banned(qp, now_ns) or f.is_banned(qp, now_ns, p.path or 0)
    return "it failed or gained nothing there lately" if hit else ""


def dwell(p: Proposal, f: GuardFacts, now_ns: int) -> str:
    """One steer per queue pair and dwell."""
    at_ns = f.steered.get(p.owned.pair.qp)
    if p.action == "failover" or p.renewal or at_ns is None or now_ns - at_ns >= f.dwell_ns:
        return ""
    return f"it was steered less than {f.config.dwell_s:g} s ago"


def job_share(p: Proposal, f: GuardFacts, now_ns: int) -> str:
    """Few queue pairs of a job at once."""
    if p.action == "failover" or p.renewal:
        return ""
    steered = sum(job == p.owned.job for at, job in f.steers if now_ns - at < f.dwell_ns)
    most = max(1, int(f.config.job_share * f.jobs.sizes().get(p.owned.job, 0)))
    return f"{steered} queue pairs of its job were steered within {f.config.dwell_s:g} s" if steered >= most else ""


def one_rail(p: Proposal, f: GuardFacts, now_ns: int) -> str:
    """One rail at a time."""
    if p.action != "steer" or p.renewal:
        return ""
    other = next((rail for rail in f.rails.values() if rail != p.rail), None)
    return "" if other is None else f"a move on rail {other} is being measured"


def bucket(p: Proposal, f: GuardFacts, now_ns: int) -> str:
    """So many actions in a time and no more."""
    if p.action == "failover" or p.renewal or f.tokens >= 1:
        return ""
    return f"more than {f.config.bucket_rate_hz:g} actions a second"


Check = Callable[[Proposal, GuardFacts, int], str]


@dataclass(frozen=True, slots=True)
class GuardRule:
    """A rule and the reason that a refusal by it names; what it demands is the docstring of `check`."""

    name: str
    check: Check


RULES: Final = (
    GuardRule("breaker", breaker),
    GuardRule("hold", hold),
    GuardRule("maintenance", maintenance),
    GuardRule("opt-out", opt_out),
    GuardRule("not-steerable", steering),
    GuardRule("stale-agent", stale_agent),
    GuardRule("not-selectable", not_selectable),
    GuardRule("unexpected-state", unexpected),
    GuardRule("wide-clock", wide_clock),
    GuardRule("lease-budget", budget),
    GuardRule("banned", banned),
    GuardRule("dwell", dwell),
    GuardRule("job-share", job_share),
    GuardRule("one-rail", one_rail),
    GuardRule("bucket", bucket),
)
"""In this order: a refusal names the first that speaks against."""


def check(proposal: Proposal, facts: GuardFacts, now_ns: int) -> Doubt | None:
    """The first rule that speaks against the proposal; None: it may go."""
    for rule in RULES:
        why = rule.check(proposal, facts, now_ns)
        if why:
            return Doubt(rule.name, why)
    return None


def gone_out(proposal: Proposal, facts: GuardFacts, now_ns: int) -> None:
    """A command for this proposal was published: it counts for the rules from now on."""
    if proposal.action == "failover":
        return
    facts.tokens -= 1
    facts.steered[proposal.owned.pair.qp] = now_ns
    facts.steers.append((now_ns, proposal.owned.job))
