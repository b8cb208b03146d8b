"""Rows go by age: whole partitions, by the archive's own time, once everything that is made of them is finished.

A partition goes when its newest row is older than its table's retention (table ``retention``), seen from the newest
row of the archive, or from the wall clock where that is behind (a bus clock that jumped ahead must not empty an
archive). So an archive that nobody writes to stays as it is, however long.
"""

from __future__ import annotations

from sdfstream.archive.engine_io import Engine
from sdfstream.archive.retention import AGING, Aging
from sdfstream.archive.sqltext import literal
from sdfstream.archive.upkeep.rollups_io import RollUps
from sdfstream.stats import Counters

_BY_BUS_TIME = tuple(a.table for a in AGING if a.column == "bus_at" and not a.table.endswith("_kept"))


def newest_ns(engine: Engine) -> int:
    """The archive's own time: bus time of its newest row, at most the wall clock; 0 when it is empty."""
    tables = " UNION ALL ".join(f"SELECT max(bus_at) AS newest FROM {table}" for table in _BY_BUS_TIME)
    sql = f"SELECT toUnixTimestamp64Nano(least(max(newest), now64(9, 'UTC'))) FROM ({tables})"
    return int(engine.rows(sql)[0][0])


class Expiry:
    """Drops partitions that are old enough; `run` is one pass.

    Counters: ``expired.<table>`` (rows).
    """

    def __init__(self, engine: Engine, roll_ups: RollUps, counters: Counters) -> None:
        self._engine = engine
        self._roll_ups = roll_ups
        self._counters = counters

    def run(self, now_ns: int) -> None:
        """Drop what is too old at `now_ns`.

        Raises
        ------
        EngineError
            The engine refused; the next call takes up what is left.
        """
        limits_s = dict(self._engine.rows("SELECT name, seconds FROM retention FINAL WHERE seconds > 0"))
        for aging in AGING:
            if aging.table in limits_s:
                self._drop(aging, now_ns // 1_000_000_000 - limits_s[aging.table])

    def _drop(self, aging: Aging, before_s: int) -> None:
        sql = (
            f"SELECT _partition_id AS partition, max({aging.column}) AS newest, count() FROM {aging.table}"
            " GROUP BY partition HAVING toInt64(toUnixTimestamp(newest)) < {before_s:Int64} ORDER BY newest"
        )
        for partition, _, rows in self._engine.rows(sql, {"before_s": before_s}):
            self._roll_ups.finish_before_drop(aging.table, partition)
            self._engine.command(
                "INSERT INTO dropped (name, partition, until_at, rows)"
                f" SELECT {literal(aging.table)}, {literal(partition)}, max({aging.column}), count()"
                f" FROM {aging.table} WHERE _partition_id = {literal(partition)}"
            )
            self._engine.command(
                f"ALTER TABLE {aging.table} DROP PARTITION ID {literal(partition)}"
                " SETTINGS max_partition_size_to_drop = 0"
            )
            self._counters.add("expired", aging.table, rows)
