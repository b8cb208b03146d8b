"""The books of a run: what agents made, what is on the bus, what is archived, and what stages said of it.

Pure: everything comes in as lists, so that the books themselves are tested (``tests/unit/chaos/test_accounting.py``).
A message's rows are known by the sum of their hashes (`digest`), which does not depend on their order.

========================  ===========================================================================================
made                      what an agent took up to publish: the oldest entry of its journal
shed                      counted as given up by the agent that had it
died                      in the hands of an agent that was killed before the bus acknowledged it, and not on the bus
produced                  made − shed − died: what must be on the bus, and in the archive, once
a repeat                  the same boot id and number again: on the bus by contract, taken once by every reader
lost, doubled             all else that is missing, or there twice
========================  ===========================================================================================
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, slots=True)
class Made:
    """A message that an agent took up to publish."""

    topic: str
    key: str
    rows: int
    digest: int
    run: str
    """Which run of which agent, by its boot id."""
    taken: bool
    """The bus acknowledged it, says the agent."""
    host: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an agent's process."""

    boot_id: str
    agent: str
    orderly: bool
    """It ended when told to, having sent what it had; otherwise it was killed."""
    shed_rows: int = 0
    """As its journal says."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record on a topic."""

    topic: str
    partition: int
    offset: int
    key: str
    boot_id: str
    batch_seq: int
    rows: int
    """That can be read; of a poison message the good ones."""
    digest: int
    poison: str = ""
    """Name of the poison that it is."""

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.topic, self.partition, self.offset

    @property
    def stream(self) -> tuple[str, str, str, int] | None:
        """What tells a repeat; None: it is not numbered."""
        return (self.topic, self.key, self.boot_id, self.batch_seq) if self.batch_seq >= 0 else None


@dataclass(frozen=True, slots=True)
class Kept:
    """What the archive has of one record."""

    topic: str
    partition: int
    offset: int
    rows: int
    digest: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Where something is amiss."""

    what: str
    topic: str
    partition: int
    first: int
    last: int
    messages: int
    rows: int
    keys: tuple[str, ...]

    def __str__(self) -> str:
        """One line."""
        where = f"{self.topic}[{self.partition}] {self.first}..{self.last}" if self.first >= 0 else self.topic
        keys = ", ".join(self.keys[:6]) + (", …" if len(self.keys) > 6 else "")
        return f"{self.what}: {where}: {self.messages} messages, {self.rows} rows; of {keys}"


@dataclass(slots=True)
class Books:
    """Sums, and where they do not agree."""

    produced: int = 0
    archived: int = 0
    archived_of_agents: int = 0
    """Of these, what agents made."""
    shed: int = 0
    died: int = 0
    lost: int = 0
    doubled: int = 0
    repeats: int = 0
    gaps: list[Gap] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """Further reasons why it does not balance, each a sentence."""
    topics: dict[str, dict[str, int]] = field(default_factory=dict)
    archived_at: dict[Place, int] = field(default_factory=dict)
    """Rows archived of each record, its repeats included."""

    @property
    def balanced(self) -> bool:
        """Whether nothing is amiss."""
        return not (self.lost or self.doubled or self.gaps or self.remarks)

    def amiss(self, what: str, records: Sequence[Record | Made], *, lost: bool = False, doubled: bool = False) -> None:
        """Enter what is wrong with `records`: rows into lost or doubled, places as ranges of offsets."""
        rows = sum(r.rows for r in records)
        self.lost += rows if lost else 0
        self.doubled += rows if doubled else 0
        self.gaps += ranges(what, records)


def ranges(what: str, records: Sequence[Record | Made]) -> list[Gap]:
    """Records as ranges of offsets per partition; what never was on a topic, per topic."""
    placed: dict[tuple[str, int], list[Record]] = defaultdict(list)
    unplaced: dict[str, list[Made]] = defaultdict(list)
    for record in records:
        if isinstance(record, Made):
            unplaced[record.topic].append(record)
        else:
            placed[record.topic, record.partition].append(record)
    gaps = []
    for topic, made in sorted(unplaced.items()):
        keys = tuple(sorted({f"{m.host or m.key} of {m.run}" for m in made}))
        gaps.append(Gap(what, topic, -1, -1, -1, len(made), sum(m.rows for m in made), keys))
    for (topic, partition), found in sorted(placed.items()):
        found.sort(key=lambda r: r.offset)
        begin = 0
        for i in range(1, len(found) + 1):
            # neighbours that are close are told together: a lost stretch is one line, not a hundred
            if i == len(found) or found[i].offset - found[i - 1].offset > 50:
                part = found[begin:i]
                keys = tuple(sorted({r.key for r in part}))
                first, last = part[0].offset, part[-1].offset
                gaps.append(Gap(what, topic, partition, first, last, len(part), sum(r.rows for r in part), keys))
                begin = i
    return gaps


def once(records: Iterable[Record]) -> tuple[list[Record], dict[Place, list[Record]]]:
    """Records without repeats, and by the place of the first the further ones of the same number."""
    first: dict[tuple[str, str, str, int], Record] = {}
    again: dict[Place, list[Record]] = defaultdict(list)
    kept = []
    for record in records:
        stream = record.stream
        if stream is not None and stream in first:
            again[first[stream].place].append(record)
            continue
        if stream is not None:
            first[stream] = record
        kept.append(record)
    return kept, again


def agents(books: Books, made: Sequence[Made], runs: Mapping[str, Run], records: Sequence[Record]) -> None:
    """What agents made against what is on the topics that only they write (repeats already left out).

    Comes after `archive`, which enters what is archived of each record.
    """
    there: dict[tuple[str, str, int], list[Record]] = defaultdict(list)
    for record in records:
        books.archived_of_agents += books.archived_at.get(record.place, 0) if not record.poison else 0
        if not record.poison:
            there[record.topic, record.key, record.digest].append(record)
    missing: dict[str, list[Made]] = {run.agent: [] for run in runs.values()}
    for message in made:
        found = there.pop((message.topic, message.key, message.digest), [])
        books.produced += message.rows
        if not found:
            missing[runs[message.run].agent].append(message)
        elif len(found) > 1:
            books.amiss("on the bus again under another number", found[1:], doubled=True)
    for agent, absent in missing.items():
        shed_rows = sum(run.shed_rows for run in runs.values() if run.agent == agent)
        _missing(books, agent, absent, shed_rows, {b for b, run in runs.items() if not run.orderly})
    stray = [record for found in there.values() for record in found]
    if stray:
        books.amiss("on the bus, and no agent made it", stray, doubled=True)


def _missing(books: Books, agent: str, absent: list[Made], shed_rows: int, killed: set[str]) -> None:
    """What an agent made and the bus has not: shed, died with a run of it that was killed, or lost."""
    taken = [m for m in absent if m.taken]
    books.amiss("acknowledged by the bus and not on it", taken, lost=True)
    rest = [m for m in absent if not m.taken]
    rows = sum(m.rows for m in rest)
    may_die = sum(m.rows for m in rest if m.run in killed)
    died = min(max(0, rows - shed_rows), may_die)
    lost = rows - shed_rows - died
    if lost > 0:
        books.amiss(f"not on the bus, while {agent} counted {shed_rows} rows as shed", rest)
        books.lost += lost
    elif lost < 0:
        books.remarks.append(f"{agent} counted {shed_rows} rows as shed, and all but {rows} of what it made arrived")
    books.died += died
    books.shed += shed_rows
    books.produced -= died + shed_rows


def archive(
    books: Books, records: Sequence[Record], again: Mapping[Place, Sequence[Record]], kept: Iterable[Kept]
) -> None:
    """Records of archived topics (repeats left out) against the archive, record by record; a repeat may stand in."""
    have: dict[Place, Kept] = {(k.topic, k.partition, k.offset): k for k in kept}
    absent, partial, twice, altered = [], [], [], []
    for record in records:
        copies = [record, *again.get(record.place, ())]
        found = [k for copy in copies if (k := have.pop(copy.place, None)) is not None]
        rows = sum(k.rows for k in found)
        books.archived += rows
        books.archived_at[record.place] = rows
        sums = books.topics.setdefault(record.topic, Counter())
        sums["on_topic"] += record.rows
        sums["archived"] += rows
        sums["repeats"] += len(copies) - 1
        if rows > record.rows or len(found) > 1:
            twice.append(record)
            books.doubled += rows - record.rows
        elif not rows and record.rows:
            absent.append(record)
        elif rows < record.rows:
            partial.append(record)
            books.lost += record.rows - rows
        elif rows and found[0].digest != record.digest:
            altered.append(record)
    books.repeats += sum(len(copies) for copies in again.values())
    books.amiss("not archived", absent, lost=True)
    books.amiss("archived in part", partial)
    books.amiss("archived more than once", twice)
    books.amiss("archived with other content", altered)
    strays = [Record(*place, "?", "", -1, k.rows, k.digest) for place, k in have.items() if k.rows]
    books.amiss("archived, and not on the topic", strays, doubled=True)


def worked_on(books: Books, what: str, given: Mapping[Any, int], accounted: Mapping[Any, int]) -> float:
    """What a stage was given against what it gave an account of: never more. Returns the share accounted for.

    Less is no loss: rows of clocks that are not synced yet, and rows that come too late, are left out and counted.
    """
    more = {about: n - given.get(about, 0) for about, n in accounted.items() if n > given.get(about, 0)}
    if more:
        books.doubled += sum(more.values())
        some = ", ".join(f"{'/'.join(map(str, about))} {n}" for about, n in list(more.items())[:4])
        books.remarks.append(f"{what}: {sum(more.values())} more than there were; of {some}")
    return sum(accounted.values()) / max(1, sum(given.values()))


def letters(
    books: Books,
    poisons: Mapping[str, str],
    dead: Sequence[tuple[str, str]],
    refused: Sequence[Place] = (),
    poisoned: Collection[Place] = (),
) -> dict[str, int]:
    """Dead letters (topic, fingerprint of the bytes) against the poison that was put on the bus (fingerprint: name).

    `refused` are messages of which a stage says that it refused rows: only those that are poison in part.
    """
    for place in sorted(set(refused) - set(poisoned)):
        books.remarks.append(f"rows of {place[0]}[{place[1]}]@{place[2]} were refused, which was no poison")
    copies = Counter(fingerprint for _, fingerprint in dead)
    for fingerprint, name in poisons.items():
        if not copies.get(fingerprint):
            books.remarks.append(f"poison {name} is not among the dead letters")
    strays = Counter(topic for topic, fingerprint in dead if fingerprint not in poisons)
    for topic, n in strays.items():
        books.remarks.append(f"{n} dead letters in {topic} that were no poison")
    letters = {"poison": len(poisons), "letters": sum(copies.values()), "distinct": len(copies)}
    return letters | {"of_rows": len(refused)}
