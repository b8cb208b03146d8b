"""What is allowed: licences, and findings that a person has looked at, each with the reason."""

from __future__ import annotations

from typing import Final

LICENCES: Final = frozenset(
    {
        "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0",
        "Zlib",
        # of single files, which change nothing for what links them
        "MPL-2.0",
    }
)  # fmt: skip
"""SPDX identifiers. Copyleft beyond files is for a person to decide about."""

WORDS: Final = {
    "Apache Software License": "Apache-2.0",
    "Apache License": "Apache-2.0",
    "Apache": "Apache-2.0",
    "Apache 2": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Names of licences in older metadata → SPDX identifiers."""

VULNERABILITIES: Final[dict[str, str]] = {}
"""Advisory → why it does not concern us, and until when."""

MADE_UP: Final = frozenset(
    {
        "hunter2Hunter2",
        "made-for-agents",
        "made-for-clickhouse",
        "n0t-in-the-list",
        "password",
        "secret",
        "{SECRET}",  # variables
        "{TOKEN}",
    }
)
"""Passwords and keys that stand in examples and tests, and open nothing."""
