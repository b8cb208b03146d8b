"""One publisher that feeds several, such as a link and a recording."""

from __future__ import annotations

from collections.abc import Sequence

from sdfstream.bus import Publisher
from sdfstream.records.message import Output
from sdfstream.stats import Counters


class TeePublisher:
    """Publishes to every one of `publishers`, in their order; each keeps its own counters."""

    def __init__(self, *publishers: Publisher) -> None:
        self.counters = Counters("tee")
        self.publishers = publishers

    async def publish(self, outputs: Sequence[Output]) -> None:
        """Give `outputs` to all."""
        for publisher in self.publishers:
            await publisher.publish(outputs)
        self.counters.add("published", n=len(outputs))

    async def close(self) -> None:
        """Close all, the last one too when an earlier one fails."""
        failed: list[Exception] = []
        for publisher in self.publishers:
            try:
                await publisher.close()
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]
