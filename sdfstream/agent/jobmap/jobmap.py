"""The job map of an agent: which jobs run on its hosts, over which queue pairs. Sans-IO; `folder_io` is its shell.

A *part* is one host's share of a job. It exists while its file lies in the drop directory. Where the file names a
control socket, the queue pairs are those that the process behind it lists, else those of the file:

=========  ========================================  ===========================================================
state      when                                      what is told
=========  ========================================  ===========================================================
waiting    the process has not answered yet          running, without queue pairs
running    it answers, or there is no socket         running, with queue pairs
silent     it no longer answers, for less than 5 s   running, without queue pairs
dead       it has not answered for 5 s               ended, once; the file is still there: an answer revives it
gone       the file is gone                          ended, once
=========  ========================================  ===========================================================

A file that can no longer be read (half written, over-large, of another job) counts as it last was for 5 s, then as
gone. Files of hosts that are not this agent's are none of its business.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Final

from sdfstream.agent.jobmap.file import Unreadable, owner, read_file, read_pairs
from sdfstream.errors import FormatError
from sdfstream.records.job import JobShard, QueuePair
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import JOB
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

REPEAT_NS: Final = 10 * NS_PER_S
"""A running part is told again this often."""
GRACE_NS: Final = 5 * NS_PER_S
"""How long a dead socket or a spoilt file is waited for before the part counts as ended."""
MOST_PARTS: Final = 1024


@dataclass(slots=True)
class _Held:
    """What is known of one file and, where it names one, of the process behind its socket."""

    name: str
    content: bytes | Unreadable | None = None
    part: JobShard | None = None
    """As last read well."""
    spoilt_ns: int | None = None
    """Since when the file cannot be read."""
    answered: bool = False
    dead_ns: int | None = None
    """Since when the process does not answer, having answered before."""
    refused: tuple[str, ...] = ()
    """What was refused of the last answer, so that it is said once."""

    def now(self, now_ns: int) -> JobShard | None:
        """The part as it stands; None: not running."""
        if self.part is None or _since(self.spoilt_ns, now_ns) >= GRACE_NS or _since(self.dead_ns, now_ns) >= GRACE_NS:
            return None
        if self.dead_ns is not None:
            return replace(self.part, qps=(), receives=())
        return self.part


@dataclass(slots=True)
class _Told:
    """What was last put on the bus about one part."""

    part: JobShard
    at_ns: int


class JobMap:
    """Parts of the jobs on this agent's hosts.

    Parameters
    ----------
    hosts : collection of str
        Hosts that this agent process serves.
    boot_id : str
        The agent's run: part of the events' ids, so that they differ from those of the run before.
    folder : str
        The drop directory; a relative ``control`` is relative to it.

    Notes
    -----
    Counters: ``refused.<reason>`` (files, once per change), ``refused.pair`` (queue pairs), ``answers``,
    ``refused.answer``, ``died`` (processes that stopped answering), ``told.running``, ``told.ended``.
    """

    def __init__(self, hosts: Collection[str], boot_id: str = "", folder: str = "") -> None:
        self.hosts = frozenset(hosts)
        self.counters = Counters("jobs")
        self.version = 0
        """Grows with every change of jobs, queue pairs, their paths, alternates and limits."""
        self.moved: dict[str, int] = {}
        """Source ports that kernel flows leave with in place of their program's own, by QP id: told in their stead."""
        self._boot_id = boot_id
        self._folder = folder
        self._held: dict[str, _Held] = {}
        self._parts: dict[str, JobShard] = {}
        self._told: dict[str, _Told] = {}
        self._since: dict[str, int] = {}
        """When a part that runs was first told, that clock; for files that do not say."""
        self._said = 0
        self._notes: list[str] = []
        self._strangers: set[str] = set()
        """Files that are no part of ours and were refused, once."""

    @property
    def parts(self) -> Sequence[JobShard]:
        """The running parts of this agent's hosts, by key."""
        return [self._parts[key] for key in sorted(self._parts)]

    @property
    def sockets(self) -> dict[str, str]:
        """Control sockets to ask for queue pairs, by part (``job@host``)."""
        return {key: held.part.control for key, held in self._held.items() if held.part and held.part.control}

    def files(self, files: Mapping[str, bytes | Unreadable], now_ns: int) -> None:
        """Take the drop directory as it is now: every file's name and content, of which the unchanged cost nothing."""
        self._strangers &= files.keys()
        ours = {}
        for name in sorted(files):
            of = owner(name)
            if of is None:
                self._refuse_stranger(name, FormatError("name", "a drop file is called JOB@HOST.json"))
            elif of[1] in self.hosts:
                ours[f"{of[0]}@{of[1]}"] = name
        for key in self._held.keys() - ours.keys():
            del self._held[key]
        for key, name in ours.items():
            if key in self._held or len(self._held) < MOST_PARTS:
                self._file(self._held.setdefault(key, _Held(name)), files[name], now_ns)
            else:
                self._refuse_stranger(name, FormatError("too-many", f"there are {MOST_PARTS} parts already"))
        self._refresh(now_ns)

    def listed(self, job_host: str, answer: Mapping[str, Any] | None, now_ns: int) -> None:
        """Take the answer of a part's process to ``list``; None: it does not answer any more."""
        held = self._held.get(job_host)
        if held is None or held.part is None or not held.part.control:
            return
        if answer is None:
            if held.answered and held.dead_ns is None:
                held.dead_ns = now_ns
                self.counters.add("died")
                self._notes.append(f"{job_host}: the process at {held.part.control} does not answer any more")
        else:
            self._answer(held, job_host, answer)
        self._refresh(now_ns)

    def tick(self, now_ns: int) -> None:
        """Let time pass: what was silent or spoilt for long enough ends."""
        self._refresh(now_ns)

    def events(self, now_ns: int, clock_now_ns: int) -> list[Output]:
        """What is to be put on the bus: changed parts at once, all again every 10 s, and of an ended one the end.

        Parameters
        ----------
        now_ns : int
            Any steady clock, that of `files` and `listed`.
        clock_now_ns : int, ns since the Unix epoch
            The host's clock, for the events' instants.
        """
        self.tick(now_ns)
        out = []
        for key, part in sorted(self._parts.items()):
            told = self._told.get(key)
            since = part.since_at_ns or self._since.setdefault(key, clock_now_ns)
            part = replace(part, since_at_ns=since, qps=tuple(self._as_it_leaves(q) for q in part.qps))
            if told is None or told.part != part or now_ns - told.at_ns >= REPEAT_NS:
                self._told[key] = _Told(part, now_ns)
                out.append(self._say(part, clock_now_ns))
        for key in sorted(self._told.keys() - self._parts.keys()):
            part = self._told.pop(key).part
            self._since.pop(key, None)
            ended = replace(part, state="ended", since_at_ns=clock_now_ns, qps=(), receives=())
            out.append(self._say(ended, clock_now_ns))
        return out

    def _as_it_leaves(self, pair: QueuePair) -> QueuePair:
        path = self.moved.get(pair.qp)
        return pair if path is None or pair.steering != "kernel" else replace(pair, path=path)

    def notes(self) -> list[str]:
        """Sentences for the log since the last call: what was refused and who died, each once."""
        notes, self._notes = self._notes, []
        return notes

    def _file(self, held: _Held, content: bytes | Unreadable, now_ns: int) -> None:
        if content == held.content:
            return
        held.content = content
        try:
            part, refused = read_file(held.name, content)
        except FormatError as error:
            self.counters.add("refused", error.reason)
            self._notes.append(f"{held.name} is refused: {error}")
            held.spoilt_ns = now_ns if held.spoilt_ns is None else held.spoilt_ns
            return
        held.spoilt_ns = None
        part = replace(part, control=self._absolute(part.control))
        self._refuse_pairs(held.name, refused)
        if held.part is not None and held.answered and held.part.control == part.control:
            part = replace(part, qps=held.part.qps, receives=held.part.receives, ranks=part.ranks or held.part.ranks)
        else:
            held.answered, held.dead_ns, held.refused = False, None, ()
        held.part = part

    def _answer(self, held: _Held, job_host: str, answer: Mapping[str, Any]) -> None:
        assert held.part is not None
        self.counters.add("answers")
        held.answered, held.dead_ns = True, None
        try:
            if not isinstance(answer, Mapping):
                raise FormatError("answer", "is no JSON object")
            if "error" in answer:
                raise FormatError("answer", f"says {str(answer['error'])[:200]}")
            pairs = read_pairs(held.part, answer)
        except FormatError as error:
            self.counters.add("refused", "answer")
            self._once(held, job_host, (str(error),))
            return
        self._once(held, job_host, pairs.refused)
        held.part = replace(held.part, ranks=pairs.ranks, qps=pairs.qps, receives=pairs.receives)

    def _once(self, held: _Held, job_host: str, refused: tuple[str, ...]) -> None:
        """Count and say what was refused of an answer, unless the last answer gave the same cause."""
        if refused != held.refused:
            held.refused = refused
            self._refuse_pairs(job_host, refused)

    def _refuse_pairs(self, where: str, refused: tuple[str, ...]) -> None:
        self.counters.add("refused", "pair", len(refused))
        if refused:
            more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
            self._notes.append(f"{where}: {refused[0]}{more}")

    def _refuse_stranger(self, name: str, why: FormatError) -> None:
        """A JSON file that is no drop file, or one too many; hidden and other files are none of our business."""
        if name in self._strangers or name.startswith(".") or not name.endswith(".json"):
            return
        self._strangers.add(name)
        self.counters.add("refused", why.reason)
        self._notes.append(f"{name[:200]!r} is refused: {why}")

    def _absolute(self, control: str) -> str:
        return str(PurePath(self._folder) / control) if control else ""

    def _refresh(self, now_ns: int) -> None:
        parts = {key: part for key, held in self._held.items() if (part := held.now(now_ns)) is not None}
        if {k: _matter(p) for k, p in parts.items()} != {k: _matter(p) for k, p in self._parts.items()}:
            self.version += 1
        self._parts = parts

    def _say(self, part: JobShard, clock_now_ns: int) -> Output:
        self._said += 1
        self.counters.add("told", part.state)
        data = replace(part, seen_at_ns=clock_now_ns).as_data()
        number = f"{self._boot_id}-job-{self._said}" if self._boot_id else f"job-{self._said}"
        return Output(JOB.name, part.key, Event(JOB.name, part.host, number, clock_now_ns, data))


def _matter(part: JobShard) -> tuple[tuple[QueuePair, ...], tuple[QueuePair, ...], str]:
    return part.qps, part.receives, part.control


def _since(then_ns: int | None, now_ns: int) -> int:
    return -1 if then_ns is None else now_ns - then_ns
