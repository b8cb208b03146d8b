"""``python -m sdfstream`` is the same program as ``sdfstream``."""

from sdfstream.cli import main

raise SystemExit(main())
