"""The job map of an agent: which jobs run on its hosts, over which queue pairs. Sans-IO; `folder_io` is its shell.

A *shard* of a job is the share of one host. It exists while its file lies in the drop directory. Where the file names
a control socket, the queue pairs are those that the process behind it lists, else those of the file:

=========  ========================================  ===========================================================
state      when                                      what is published
=========  ========================================  ===========================================================
waiting    the process has not answered yet          running, without queue pairs
running    it answers, or there is no socket         running, with queue pairs
silent     it no longer answers, for less than 5 s   running, without queue pairs
dead       it has not answered for 5 s               ended, once; the file is still there: an answer revives it
gone       the file is gone                          ended, once
=========  ========================================  ===========================================================

A file that can no longer be read (half written, over-large, of another job) counts as it last was for 5 s, then as
gone. Files of hosts that are not this agent's are ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Final

from sdfstream.agent.jobmap.drop_file import Unreadable, owner, read_file, read_pairs
from sdfstream.errors import FormatError
from sdfstream.records.fabric import QueuePair
from sdfstream.records.job import JobShard
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import JOB
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

REPEAT_NS: Final = 10 * NS_PER_S
"""Between two events of an unchanged shard."""
GRACE_NS: Final = 5 * NS_PER_S
"""How long a silent socket or an unreadable file may last before the shard counts as ended."""
MOST_SHARDS: Final = 1024


@dataclass(slots=True)
class _DropFile:
    """State of one drop file and, where it names a control socket, of the process behind it."""

    name: str
    content: bytes | Unreadable | None = None
    shard: JobShard | None = None
    """As last read without error."""
    unreadable_since_ns: int | None = None
    """Since when the file cannot be read."""
    answered: bool = False
    silent_since_ns: int | None = None
    """Since when the process does not answer, having answered before."""
    refused: tuple[str, ...] = ()
    """Refusals of the last answer, so that each is logged once."""

    def shard_at(self, now_ns: int) -> JobShard | None:
        """The shard at `now_ns`; None: not running."""
        if any(_age_ns(t, now_ns) >= GRACE_NS for t in (self.unreadable_since_ns, self.silent_since_ns)):
            return None
        if self.shard is not None and self.silent_since_ns is not None:
            return replace(self.shard, qps=(), receives=())
        return self.shard


@dataclass(slots=True)
class _Reported:
    """The last event of one shard."""

    shard: JobShard
    at_ns: int


class JobMap:
    """Shards of the jobs on this agent's hosts.

    Parameters
    ----------
    hosts : collection of str
        Hosts that this agent process serves.
    boot_id : str
        The agent's run: in the events' ids, so that they differ from those of the run before.
    folder : str
        The drop directory; a relative ``control`` is relative to it.

    Notes
    -----
    Counters: ``refused.<reason>`` (files, once per change), ``refused.pair`` (queue pairs), ``answers``,
    ``refused.answer``, ``died`` (processes that stopped answering), ``reported.running``, ``reported.ended``.
    """

    def __init__(self, hosts: Collection[str], boot_id: str = "", folder: str = "") -> None:
        self.hosts = frozenset(hosts)
        self.counters = Counters("jobs")
        self.version = 0
        """Grows with every change of jobs, queue pairs, their paths, alternates and limits."""
        self.kernel_paths: dict[str, int] = {}
        """QP id to the source port that the host rewrites a kernel flow's packets to: published as its `path`."""
        self._boot_id = boot_id
        self._folder = folder
        self._files: dict[str, _DropFile] = {}
        self._shards: dict[str, JobShard] = {}
        self._reported: dict[str, _Reported] = {}
        self._first_at_ns: dict[str, int] = {}
        """First event of a running shard, host's clock, ns; for files without ``since_at_ns``."""
        self._events = 0
        self._notes: list[str] = []
        self._foreign: set[str] = set()
        """Files of no shard of ours whose refusal was counted and logged."""

    @property
    def shards(self) -> Sequence[JobShard]:
        """The running shards of this agent's hosts, by key."""
        return [self._shards[key] for key in sorted(self._shards)]

    @property
    def sockets(self) -> dict[str, str]:
        """Control sockets to ask for queue pairs, by shard (``job@host``)."""
        return {key: file.shard.control for key, file in self._files.items() if file.shard and file.shard.control}

    def take_files(self, files: Mapping[str, bytes | Unreadable], now_ns: int) -> None:
        """Take name and content of every file of the drop directory; unchanged ones cost nothing."""
        self._foreign &= files.keys()
        ours = {}
        for name in sorted(files):
            owned = owner(name)
            if owned is None:
                self._refuse_foreign(name, FormatError("name", "a drop file is called JOB@HOST.json"))
            elif owned[1] in self.hosts:
                ours["@".join(owned)] = name
        for key in self._files.keys() - ours.keys():
            del self._files[key]
        for key, name in ours.items():
            if key in self._files or len(self._files) < MOST_SHARDS:
                self._take_file(self._files.setdefault(key, _DropFile(name)), files[name], now_ns)
            else:
                self._refuse_foreign(name, FormatError("too-many", f"there are {MOST_SHARDS} parts already"))
        self._refresh(now_ns)

    def take_answer(self, job_host: str, answer: Mapping[str, Any] | None, now_ns: int) -> None:
        """Take the answer to ``list`` of the process of shard `job_host`; None: it does not answer any more."""
        file = self._files.get(job_host)
        if file is None or file.shard is None or not file.shard.control:
            return
        if answer is None:
            if file.answered and file.silent_since_ns is None:
                file.silent_since_ns = now_ns
                self.counters.add("died")
                self._notes.append(f"{job_host}: the process at {file.shard.control} does not answer any more")
        else:
            self._apply_answer(file, job_host, answer)
        self._refresh(now_ns)

    def tick(self, now_ns: int) -> None:
        """End the shards that have been silent or unreadable for `GRACE_NS`."""
        self._refresh(now_ns)

    def events(self, now_ns: int, clock_now_ns: int) -> list[Output]:
        """What is to be published: changed shards at once, all again every 10 s, and the end of one that ended.

        Parameters
        ----------
        now_ns : int
            Any steady clock, that of `take_files` and `take_answer`.
        clock_now_ns : int, ns since the Unix epoch
            The host's clock, for the events' instants.
        """
        self.tick(now_ns)
        out = []
        for key, shard in sorted(self._shards.items()):
            reported = self._reported.get(key)
            since_at_ns = shard.since_at_ns or self._first_at_ns.setdefault(key, clock_now_ns)
            shard = replace(shard, since_at_ns=since_at_ns, qps=tuple(self._on_kernel_path(q) for q in shard.qps))
            if reported is None or reported.shard != shard or now_ns - reported.at_ns >= REPEAT_NS:
                self._reported[key] = _Reported(shard, now_ns)
                out.append(self._event(shard, clock_now_ns))
        for key in sorted(self._reported.keys() - self._shards.keys()):
            shard = self._reported.pop(key).shard
            self._first_at_ns.pop(key, None)
            ended = replace(shard, state="ended", since_at_ns=clock_now_ns, qps=(), receives=())
            out.append(self._event(ended, clock_now_ns))
        return out

    def _on_kernel_path(self, pair: QueuePair) -> QueuePair:
        path = self.kernel_paths.get(pair.qp)
        return pair if path is None or pair.steering != "kernel" else replace(pair, path=path)

    def notes(self) -> list[str]:
        """Sentences for the log since the last call: refusals and processes that stopped answering, each once."""
        notes, self._notes = self._notes, []
        return notes

    def _take_file(self, file: _DropFile, content: bytes | Unreadable, now_ns: int) -> None:
        if content == file.content:
            return
        file.content = content
        try:
            shard, refused = read_file(file.name, content)
        except FormatError as error:
            self.counters.add("refused", error.reason)
            self._notes.append(f"{file.name} is refused: {error}")
            file.unreadable_since_ns = now_ns if file.unreadable_since_ns is None else file.unreadable_since_ns
            return
        file.unreadable_since_ns = None
        shard = replace(shard, control=self._absolute(shard.control))
        self._refuse_pairs(file.name, refused)
        if file.shard is not None and file.answered and file.shard.control == shard.control:
            shard = replace(
                shard, qps=file.shard.qps, receives=file.shard.receives, ranks=shard.ranks or file.shard.ranks
            )
        else:
            file.answered, file.silent_since_ns, file.refused = False, None, ()
        file.shard = shard

    def _apply_answer(self, file: _DropFile, job_host: str, answer: Mapping[str, Any]) -> None:
        assert file.shard is not None
        self.counters.add("answers")
        file.answered, file.silent_since_ns = True, None
        try:
            if not isinstance(answer, Mapping):
                raise FormatError("answer", "is no JSON object")
            if "error" in answer:
                raise FormatError("answer", f"says {str(answer['error'])[:200]}")
            pairs = read_pairs(file.shard, answer)
        except FormatError as error:
            self.counters.add("refused", "answer")
            self._note_once(file, job_host, (str(error),))
            return
        self._note_once(file, job_host, pairs.refused)
        file.shard = replace(file.shard, ranks=pairs.ranks, qps=pairs.qps, receives=pairs.receives)

    def _note_once(self, file: _DropFile, job_host: str, refused: tuple[str, ...]) -> None:
        """Count and note the refusals of an answer, unless the last answer had the same."""
        if refused != file.refused:
            file.refused = refused
            self._refuse_pairs(job_host, refused)

    def _refuse_pairs(self, where: str, refused: tuple[str, ...]) -> None:
        self.counters.add("refused", "pair", len(refused))
        if refused:
            more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
            self._notes.append(f"{where}: {refused[0]}{more}")

    def _refuse_foreign(self, name: str, why: FormatError) -> None:
        """A JSON file that is no drop file, or one too many; hidden and other files are ignored."""
        if name in self._foreign or name.startswith(".") or not name.endswith(".json"):
            return
        self._foreign.add(name)
        self.counters.add("refused", why.reason)
        self._notes.append(f"{name[:200]!r} is refused: {why}")

    def _absolute(self, control: str) -> str:
        return str(PurePath(self._folder) / control) if control else ""

    def _refresh(self, now_ns: int) -> None:
        shards = {key: shard for key, file in self._files.items() if (shard := file.shard_at(now_ns)) is not None}
        if {k: _significant(p) for k, p in shards.items()} != {k: _significant(p) for k, p in self._shards.items()}:
            self.version += 1
        self._shards = shards

    def _event(self, shard: JobShard, clock_now_ns: int) -> Output:
        self._events += 1
        self.counters.add("told", shard.state)
        data = replace(shard, seen_at_ns=clock_now_ns).as_data()
        number = f"{self._boot_id}-job-{self._events}" if self._boot_id else f"job-{self._events}"
        return Output(JOB.name, shard.key, Event(JOB.name, shard.host, number, clock_now_ns, data))


def _significant(shard: JobShard) -> tuple[tuple[QueuePair, ...], tuple[QueuePair, ...], str]:
    return shard.qps, shard.receives, shard.control


def _age_ns(then_ns: int | None, now_ns: int) -> int:
    return -1 if then_ns is None else now_ns - then_ns
