"""Corrected time for applications: ``from sdfstream.clock import now``.

The agent of a host writes one small page per clock into shared memory; `now` reads it. Importing this package takes
the standard library only. ``docs/clock.md`` says what the interval promises, and what it does not.

============  ===========================================================================
`page`        the page's bytes
`reading`     from a page and two clock readings to corrected time, or the reason for none
`reader_io`   the reader for applications
`folder_io`   the folders and file names of pages
============  ===========================================================================

The writer is the agent's: `sdfstream.agent.clockpage`.
"""

from sdfstream.clock.reader_io import ClockReader, clocks, now
from sdfstream.clock.reading import ClockError, Now

__all__ = ["ClockError", "ClockReader", "Now", "clocks", "now"]
