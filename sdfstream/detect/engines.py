"""The engines of the detect stage: made, given room, emptied, saved and restored together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.clocks import ClockDetector
from sdfstream.detect.compare.clock_steps import ClockStepDetector
from sdfstream.detect.compare.inband_probed import InBandComparison
from sdfstream.detect.compare.siblings import SiblingComparison
from sdfstream.detect.completeness import RowCompleteness
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.congestion import CongestionDetector
from sdfstream.detect.degraded import DegradedAgents
from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.flap import FlapDetector
from sdfstream.detect.flows import Flows
from sdfstream.detect.gray.late_agents import drop_losses
from sdfstream.detect.health import Health
from sdfstream.detect.inband import InBand
from sdfstream.detect.instant import Detector
from sdfstream.detect.jobs import Jobs
from sdfstream.detect.learned.causes import LearnedCauses
from sdfstream.detect.ledger import Ledger
from sdfstream.detect.liveness import SessionLiveness
from sdfstream.detect.loss import LossDetector
from sdfstream.detect.marks import MarkDetector
from sdfstream.detect.miscabled import MiscablingDetector
from sdfstream.detect.ports import PortDetector
from sdfstream.detect.presence import Presence
from sdfstream.detect.producers import ProducerDetector
from sdfstream.detect.queues.bursts import BurstDetector
from sdfstream.detect.queues.hops import HopEstimates
from sdfstream.detect.recent import RecentFaults
from sdfstream.detect.root.pauses import PauseRates
from sdfstream.detect.root.port_rates import PortRates
from sdfstream.detect.root.symptoms import Roots
from sdfstream.detect.root.transients import TransientDetector
from sdfstream.detect.root.unconfirmed import UnconfirmedSilences
from sdfstream.detect.runs import Gaps, LossRuns
from sdfstream.detect.sessions import Sessions
from sdfstream.detect.silence import SilenceDetector
from sdfstream.detect.slow_pairs import SlowPairDetector
from sdfstream.detect.switches.carriers import SwitchCarriers
from sdfstream.detect.switches.errors import SwitchPortErrors
from sdfstream.records.bustime import BusTime
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

_YOUNGER: Final = frozenset({"learned", "switch_carriers", "switch_errors", "hops", "bursts", "unconfirmed"})
"""Engines that a snapshot of before may lack: they begin empty then."""
_UNMEASURED: Final = "nothing measures it any more"


class Engines:
    """One of each; `Dispatch` feeds them, `Evaluation` asks the `detectors` among them."""

    def __init__(self, config: DetectConfig, counters: Counters) -> None:
        self.config = config
        self.counters = counters
        self.sessions = Sessions(self.config.max_paths)
        self.presence = Presence(self.sessions)
        self.cabling = Cabling(self.sessions)
        self.flows = Flows(self.cabling, self.counters)
        self.jobs = Jobs(self.cabling, self.flows, self.counters)
        self.inband = InBand(self.counters)
        self.slow_pairs = SlowPairDetector(self.inband, self.jobs, self.flows, self.cabling)
        self.liveness = SessionLiveness(self.config, self.sessions, self.presence, self.counters)
        self.bustime = BusTime()
        self.recent = RecentFaults(self.cabling)
        self.switch_carriers = SwitchCarriers(self.config, self.cabling, self.presence)
        self.switch_errors = SwitchPortErrors(self.config, self.cabling)
        self.silence = SilenceDetector(
            self.config, self.sessions, self.presence, self.liveness, self.cabling, self.recent, self.switch_carriers
        )
        self.health = Health(self.config, self.sessions, self.presence, self.cabling)
        self.delays = DelayBaselines(self.config, self.sessions, self.counters)
        self.runs = LossRuns(self.sessions)
        self.loss = LossDetector(self.config, self.runs, self.cabling, self.recent, self.liveness)
        self.rates = PortRates()
        self.marks = MarkDetector(self.config, self.sessions, self.cabling, self.delays, self.rates)
        self.comparison = InBandComparison(self.inband, self.delays, self.sessions)
        self.pauses = PauseRates(self.config)
        self.clocks = ClockDetector(self.config)
        self.hops = HopEstimates(self.config, self.delays, self.cabling, self.clocks, self.inband, self.flows)
        siblings = SiblingComparison(self.cabling, self.delays, self.hops)
        self.congestion = CongestionDetector(
            self.config, self.delays, self.marks, self.pauses, self.rates, self.cabling, siblings
        )
        self.bursts = BurstDetector(self.delays, self.cabling)
        self.roots = Roots(self.cabling)
        self.miscabled = MiscablingDetector()
        self.gaps = Gaps(self.runs, self.liveness, self.cabling)
        self.unconfirmed = UnconfirmedSilences(self.cabling)
        self.flaps = FlapDetector(self.config, self.gaps.closed, self.unconfirmed.ended)
        self.transients = TransientDetector(self.flaps)
        self.ports = PortDetector(self.config)
        self.completeness = RowCompleteness()
        self.producers = ProducerDetector()
        self.clock_steps = ClockStepDetector()
        self.degraded = DegradedAgents(self.counters)
        self.learned = LearnedCauses(self.counters)
        self.ledger = Ledger(self.config, self.counters, self.learned)
        self.detectors = self._asked()
        """Name in the ledger, period in 100 ms boundaries, and detector; in the order in which they are asked."""

    def _asked(self) -> tuple[tuple[str, int, Detector], ...]:
        return (
            ("congestion", 1, self.congestion),
            ("bursts", 1, self.bursts),
            ("marks", 1, self.marks),
            ("loss", 2, self.loss),
            ("flap", 1, self.flaps),
            ("transients", 1, self.transients),
            ("ports", 5, self.ports),
            ("switch-ports", 5, self.switch_errors),
            ("cabling", 5, self.miscabled),
            ("producers", 5, self.producers),
            ("clocks", 5, self.clocks),
            ("clock-steps", 1, self.clock_steps),
            ("inband", 1, self.slow_pairs),
            ("comparison", 5, self.comparison),
            ("degraded", 5, self.degraded),
        )

    def begin(self, tick: int) -> None:
        """Enter the 100 ms boundary number `tick`."""
        self.presence.mark(tick)
        self.cabling.begin(tick)

    def advance(self, now_ns: int) -> npt.NDArray[np.bool_]:
        """Fold what was taken since the last boundary into the baselines; (sessions,) the `troubled` ones."""
        windows = self.inband.tick()
        if windows is not None:
            self.comparison.take(windows)
        self.jobs.refresh()
        troubled = self.troubled(now_ns)
        drop_losses(self.runs, self.cabling, self.loss.standing.values(), troubled, now_ns)
        self.delays.tick()
        return troubled

    def admit(self) -> None:
        """Give every engine room for what was seen for the first time."""
        self.presence.ensure()
        if self.sessions.fresh:
            self.liveness.table.ensure(self.sessions.count)
            for engine in (self.delays, self.runs, self.marks):
                engine.ensure()
            self.cabling.note_new(self.sessions.fresh)
            self.sessions.fresh.clear()

    def troubled(self, now_ns: int) -> npt.NDArray[np.bool_]:
        """(sessions,) one of whose agents is late or mute: what they lose, mark or delay proves nothing."""
        host = np.append(self.sessions.nic_host, -1)
        late = np.append(self.presence.troubled(now_ns), False)
        table = self.sessions.table
        result: npt.NDArray[np.bool_] = late[host[table["src"]]] | late[host[table["dst"]]]
        return result

    def forget(self, now_ns: int) -> None:
        """Drop what sent nothing for `DetectConfig.forget_s`."""
        self.jobs.expire(now_ns)
        if self.inband.forget_if_full():
            self.comparison.forget()
            self.hops.carried.forget()
        self.flows.drop_unused(now_ns - int(self.config.forget_s * NS_PER_S))
        idle = self.sessions.idle(now_ns - int(self.config.forget_s * NS_PER_S))
        if idle.size:
            self.sessions.forget(idle)
            self.liveness.table.reset(idle)
            self.cabling.forget(idle)
            for engine in (self.delays, self.runs, self.marks, self.hops):
                engine.forget(idle)
            for subject in self.loss.forget(idle):
                self.ledger.remark("loss", subject, _UNMEASURED)
            self.counters.add("forgotten", "sessions", idle.size)

    def snapshot(self) -> dict[str, Any]:
        """Every engine's state, by name; liveness has a table instead."""
        return {name: engine.snapshot() for name, engine in self._named().items()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        for name, engine in self._named().items():
            if name in saved or name not in _YOUNGER:
                engine.restore(saved[name])
        self.miscabled.declare(self.cabling.topology)

    def _named(self) -> dict[str, Any]:
        return {
            "sessions": self.sessions,
            "presence": self.presence,
            "cabling": self.cabling,
            "flows": self.flows,
            "jobs": self.jobs,
            "inband": self.inband,
            "comparison": self.comparison,
            "health": self.health,
            "bustime": self.bustime,
            "recent": self.recent,
            "silence": self.silence,
            "delays": self.delays,
            "pauses": self.pauses,
            "rates": self.rates,
            "congestion": self.congestion,
            "bursts": self.bursts,
            "roots": self.roots,
            "runs": self.runs,
            "loss": self.loss,
            "marks": self.marks,
            "miscabled": self.miscabled,
            "flaps": self.flaps,
            "transients": self.transients,
            "unconfirmed": self.unconfirmed,
            "ports": self.ports,
            "switch_carriers": self.switch_carriers,
            "switch_errors": self.switch_errors,
            "completeness": self.completeness,
            "producers": self.producers,
            "clocks": self.clocks,
            "clock_steps": self.clock_steps,
            "degraded": self.degraded,
            "hops": self.hops,
            "ledger": self.ledger,
            "learned": self.learned,
        }
