"""Corrected time for applications: ``from sdfstream.clock import now``.

The agent of a host writes one small page per clock into shared memory; `now` reads it. Importing this package takes
the standard library only. ``docs/clock.md`` says what the interval promises, and what it does not.

============  ===========================================================================
`page`        the page's bytes
`reading`     what a page is worth at an instant, or why it is worth nothing
`reader_io`   the reader for applications
`folder_io`   where pages lie
`history`     how the host's clock went against the oscillator (writer)
`maker`       from rows of ``sdf.state.clock.v1`` to pages (writer)
`writer_io`   the files, and the agent's task that fills them (writer)
============  ===========================================================================
"""

from sdfstream.clock.reader_io import ClockReader, clocks, now
from sdfstream.clock.reading import ClockError, Now

__all__ = ["ClockError", "ClockReader", "Now", "clocks", "now"]
