"""The plan stage: signs of life, announcements, cabling and traces in; who probes whom out.

A plan depends only on what is known and on the epoch, so the stage keeps no plan to go on from: a controller that
starts anew comes to the plan that the one before had. It first listens, until every host that gives signs of life has
announced its NICs (agents do at their start, and once a minute), at most `PlanConfig.learn_ns`: a plan of half the
hosts would tear the mesh apart. Meanwhile agents go on with the plan they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from sdfstream.errors import FormatError
from sdfstream.numeric import codec
from sdfstream.plan import publish
from sdfstream.plan.config import PlanConfig
from sdfstream.plan.draw import draw
from sdfstream.plan.hashing import of_names
from sdfstream.plan.known import Known
from sdfstream.records.fabric import DECLARED_TYPE, PATH_TYPE
from sdfstream.records.mesh import HOST_TYPE, HostPlan, host_plan
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.signature import REPLAY_KEY, Signer
from sdfstream.records.topics import LIVENESS, MESH, TOPOLOGY
from sdfstream.records.units import NS_PER_S, TICK_NS
from sdfstream.stats import Counters

_HEED_NS: Final = 5 * NS_PER_S
"""How long to listen at least: every agent alive gives a sign of life each second."""
_LOOK_TICKS: Final = 10
"""Once a second it is looked at who has left."""
_SWEEP_TICKS: Final = 600
"""A gap in bus time; and how often old traces are looked for."""
_FEW_NICS: Final = 1000
"""Beyond so many, traces wait longer, in proportion: a draw takes longer, too."""


class PlanStage:
    """Draws the mesh plan (`Stage` protocol, ``sdfstream/pipeline.py``).

    Reads ``sdf.state.topology.v1`` (agents, cabling, traced paths) and ``sdf.raw.liveness.v1`` (signs of life); writes
    ``sdf.state.mesh.v1``.

    Parameters
    ----------
    config : PlanConfig, optional
    signer : Signer, optional
        The controller's; without one (a replay) plans are signed by a key that no agent trusts.

    Notes
    -----
    Counters: ``heard`` (announcements), ``drawn``, ``told`` (events with a new plan), ``repeated``, ``joined``,
    ``left``, ``refused.<reason>``, ``unpaid`` (sessions left out for want of budget, summed over draws), ``slowed``
    (hosts whose clock sessions are slower than wanted, likewise).
    """

    name = "plan"
    reads: tuple[str, ...] = (TOPOLOGY.name, LIVENESS.name)
    writes: tuple[str, ...] = (MESH.name,)

    def __init__(self, config: PlanConfig | None = None, signer: Signer | None = None) -> None:
        self.config = config or PlanConfig(mesh="auto")
        self._signer = signer or Signer(REPLAY_KEY)
        self.counters = Counters(self.name)
        self._known = Known(self.config)
        self._said: dict[str, HostPlan] = {}
        self._tick = self._start = -1
        self._epoch = -1
        self._gone: frozenset[str] = frozenset()
        self._changed_at = self._drawn_at = 0
        self._turns: dict[int, list[str]] = {}
        self._asked: set[str] = set()
        """Hosts that obey another plan than the last one published."""
        self.figures: Mapping[str, Any] = {}
        """What the last plan reaches; empty: none was drawn."""

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """Take `messages` in order, then go on to `now_ns`."""
        out: list[Output] = []
        for message in messages:
            out += self._until(message.bus_at_ns)
            try:
                self._take(message)
            except FormatError as error:
                self.counters.add("refused", error.reason)
        return out + self._until(now_ns)

    def finish(self, now_ns: int) -> list[Output]:
        """End of the input: nothing is held back but what may change yet."""
        return self._until(now_ns)

    def _take(self, message: Message) -> None:
        event, at_ns = message.body, message.bus_at_ns
        if not isinstance(event, Event):
            raise FormatError("form", f"{message.topic} carries events")
        if message.topic == LIVENESS.name:
            self._known.take_sign_of_life(message.key or str(event.data.get("host", "")), at_ns)
        elif event.type == HOST_TYPE:
            joined = len(self._known.agents)
            here = self._known.take_host(event.data, message.key, at_ns)
            self.counters.add("heard")
            self.counters.add("joined", n=len(self._known.agents) - joined)
            said = self._said.get(here.host)
            if said is not None and here.plan != said.version:
                self._asked.add(here.host)
        elif event.type == DECLARED_TYPE:
            self._known.take_declared(event.data)
        elif event.type == PATH_TYPE:
            self._known.take_path(event.data, at_ns)

    def _until(self, now_ns: int) -> list[Output]:
        last = now_ns // TICK_NS
        if self._tick < 0:
            self._tick = self._start = last
        if last - self._tick > _SWEEP_TICKS:  # a gap in bus time: nobody can have waited for it
            self._tick = last - 1
        out: list[Output] = []
        while self._tick < last:
            self._tick += 1
            out += self._turn(self._tick * TICK_NS)
        return out

    def _turn(self, now_ns: int) -> list[Output]:
        """A boundary of bus time: draw if there is reason to, and say again what is due."""
        out: list[Output] = []
        if self._tick % _LOOK_TICKS == 0:
            left = self._known.forget(now_ns)
            self.counters.add("left", n=len(left))
            gone = self._known.gone_nics(now_ns)
            self._known.changed |= gone != self._gone
            self._gone = gone
        if self._tick % _SWEEP_TICKS == 0:
            self._known.forget_routes(now_ns)
        if not self._known.changed:
            self._changed_at = now_ns
        if self._due(now_ns):
            out += self._draw(now_ns)
        return out + self._again(now_ns)

    def _due(self, now_ns: int) -> bool:
        """Whether a plan is to be drawn now."""
        if not self._listened(now_ns):
            return False
        if self._drawn_at == 0 or now_ns // self.config.epoch_ns != self._epoch:
            return bool(self._known.agents or self._said)
        if self._known.changed:
            return now_ns - self._changed_at >= self.config.settle_ns
        nics = max(int(self.figures.get("nics", 0)), _FEW_NICS)
        patience_ns = self.config.trace_settle_ns * nics // _FEW_NICS
        return self._known.traced and now_ns - self._drawn_at >= patience_ns

    def _listened(self, now_ns: int) -> bool:
        """Whether enough was received for a first plan, or there was one."""
        if self._drawn_at:
            return True
        heeded_ns = now_ns - self._start * TICK_NS
        if heeded_ns >= self.config.learn_ns:
            return True
        return (
            heeded_ns >= min(_HEED_NS, self.config.learn_ns)
            and self._known.all_announced()
            and bool(self._known.agents)
        )

    def _draw(self, now_ns: int) -> list[Output]:
        epoch = now_ns // self.config.epoch_ns
        plan = draw(self._known.inventory(now_ns), self.config, epoch)
        self._known.settled()
        self._epoch, self._drawn_at = epoch, now_ns
        self.figures = plan.figures
        self.counters.add("drawn")
        self.counters.add("unpaid", n=int(plan.figures["sessions_unpaid"]))
        self.counters.add("slowed", n=int(plan.figures["hosts_slowed"]))
        plans = {p.host: p for p in publish.host_plans(plan, self.config, now_ns)}
        for host in self._said.keys() - plans.keys():
            plans[host] = publish.nothing(host, epoch, now_ns)
        out: list[Output] = []
        for host, now in sorted(plans.items()):
            before = self._said.get(host)
            if before is None or before.version != now.version:
                out.append(publish.output(now, self.name, now_ns, self._signer))
                self._said[host] = now
                self._asked.discard(host)
            else:
                self._said[host] = replace(before, networks=now.networks, prober_ports=now.prober_ports)
            if not now.sessions and host not in self._known.agents:
                del self._said[host]
        self._take_turns()
        self.counters.add("told", n=len(out))
        return out

    def _again(self, now_ns: int) -> list[Output]:
        """Plans to be said again: to those who obey another one, and to each host in its turn."""
        hosts = self._asked & self._said.keys()
        self._asked.clear()
        every = max(1, self.config.repeat_ns // TICK_NS)
        hosts |= {h for h in self._turns.get(self._tick % every, ()) if self._said[h].drawn_at_ns < now_ns}
        self.counters.add("repeated", n=len(hosts))
        return [publish.output(self._said[host], self.name, now_ns, self._signer) for host in sorted(hosts)]

    def _take_turns(self) -> None:
        """Deal the hosts to the ticks of a round of repeats, each by its name."""
        every = max(1, self.config.repeat_ns // TICK_NS)
        self._turns = {}
        hosts = sorted(self._said)
        for host, turn in zip(hosts, (of_names(hosts) % np.uint64(every)).tolist(), strict=True):
            self._turns.setdefault(turn, []).append(host)

    def snapshot(self) -> bytes:
        """The whole state (plain values; no pickle)."""
        return codec.dump(
            {
                "known": self._known.snapshot(),
                "said": [p.as_data() for p in self._said.values()],
                "tick": self._tick,
                "start": self._start,
                "epoch": self._epoch,
                "gone": sorted(self._gone),
                "changed_at": self._changed_at,
                "drawn_at": self._drawn_at,
                "asked": sorted(self._asked),
                "figures": dict(self.figures),
                "counters": [[*key, n] for key, n in self.counters.values.items()],
            }
        )

    def restore(self, state: bytes) -> None:
        """Take up a state made by `snapshot` under the same configuration."""
        saved = codec.load(state)
        self._known.restore(saved["known"])
        self._said = {p["host"]: host_plan(p) for p in saved["said"]}
        self._tick, self._start, self._epoch = saved["tick"], saved["start"], saved["epoch"]
        self._gone, self._asked = frozenset(saved["gone"]), set(saved["asked"])
        self._changed_at, self._drawn_at = saved["changed_at"], saved["drawn_at"]
        self.figures = saved["figures"]
        self._take_turns()
        self.counters.values = {(what, reason): n for what, reason, n in saved["counters"]}
