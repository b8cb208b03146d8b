"""For programs and notebooks: what was measured and found, as polars frames.

    from sdfstream.client import Fabric

    with Fabric("sdfstream-data") as fabric:
        fabric.findings()

===============  ====================================================================================================
`fabric_io`      `Fabric`: topics, SQL and the usual questions, as frames
`frames`         messages of a topic as a frame, with one schema a topic
`choice`         which rows: a span of time, NICs, jobs; for frames and for SQL
`topics_io`      where topics are read: a recording, a Kafka bus
`tables_io`      where SQL is asked: an archive's folder, a running pipeline, a ClickHouse server
`export_io`      a frame too large for memory to a Parquet file, whole or not at all
===============  ====================================================================================================
"""

from __future__ import annotations

from sdfstream.client.fabric_io import Fabric

__all__ = ["Fabric"]
