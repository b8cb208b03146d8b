"""House rules that no linter knows: retired words, sizes, one name for one thing, paths that documents cite.

``python -m tests.house`` prints what breaks a rule and exits 1; ``make check`` runs it.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

RETIRED = {
    "way": "route, direction, egress or method",
    "place": "slot, location, folder or state",
    "lane": "queue, partition or direction",
    "part": "element, shard, partition or context",
    "told": "reported",
    "tell": "report",
    "tells": "reports",
    "hear": "receive or take",
    "heard": "received",
    "hearing": "receiving",
    "claim": "detection",
    "claimed": "detected",
    "belief": "estimate",
    "judge": "assess, evaluate or decide",
    "judged": "assessed",
    "judging": "assessing",
    "wish": "request",
    "wished": "requested",
    "wall": "bound",
    "site": "edge filter",
    "letter": "dead_letter",
    "kept": "retained, stored or failed",
    "sheet": "insert",
    "companion": "observer or service",
    "memo": "cache",
    "beat": "heartbeat",
}
"""Words with several meanings, or one that only insiders knew, and the field's terms (ARCHITECTURE.md, glossary)."""

ALLOWED = {
    # keys of the settings file, which people have written down
    "kept_bytes",
    "kept_days",
    "kept_dir",
    "kept_gain",
    "kept_paths",
    "max_ways",
    "ways_keep_ns",
    # of a file object
    "tell",
}
MOST_LINES, MOST_FUNCTION_LINES, MOST_LONG_FUNCTIONS = 400, 50, 3
MOST_IN_A_FOLDER = 35
MOST_SHARED_CLASS_NAMES = 10
_CITED = re.compile(r"(?<![\w/.-])((?:sdfstream|tests|docs|schemas|deploy|scripts|native)/[\w./-]*\w)(?![\w*{<])")

_PLACEHOLDER = re.compile(r"[A-Z]{4}")
"""``tests/unit/ROOM/test_MODULE.py`` is a pattern, no file."""


def words(name: str) -> list[str]:
    """An identifier's words: ``WatchRequest`` and ``watch_request`` have two."""
    return [word for word in re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_") if word]


def retired_in(name: str) -> str | None:
    """The retired word in an identifier; None: it has none.

    >>> retired_in("dead_letters"), retired_in("partition"), retired_in("on_the_way")
    (None, None, 'way')
    """
    found = words(name)
    for before, word in zip(["", *found], found, strict=False):
        plain = word if word in RETIRED else word.removesuffix("s").removesuffix("e") if word == "wishes" else word
        plain = plain if plain in RETIRED else plain.removesuffix("s")
        if plain in RETIRED and not (plain == "letter" and before == "dead"):
            return plain
    return None


def sources() -> Iterator[Path]:
    """The package's own files."""
    return (path for path in sorted((ROOT / "sdfstream").rglob("*.py")))


def retired_names() -> Iterator[str]:
    """Identifiers with a retired word, once a file."""
    for path in sources():
        seen = set()
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            name = token.string
            if token.type != tokenize.NAME or name in seen or name in ALLOWED:
                continue
            if word := retired_in(name):
                seen.add(name)
                yield f"{_short(path)}:{token.start[0]}: '{name}': '{word}' is retired; say {RETIRED[word]}"
        for word in words(path.stem):
            if word in RETIRED:
                yield f"{_short(path)}: a module's name with '{word}'; say {RETIRED[word]}"


def sizes() -> Iterator[str]:
    """Files, folders and functions that are too large."""
    long_functions: list[str] = []
    folders: defaultdict[Path, int] = defaultdict(int)
    for path in sources():
        text = path.read_text()
        folders[path.parent] += path.name != "__init__.py"
        if (lines := text.count("\n")) > MOST_LINES:
            yield f"{_short(path)}: {lines} lines, at most {MOST_LINES}"
        functions = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
        long_functions += [
            f"{_short(path)}:{node.lineno}: {node.name} has {_body_lines(node)} lines"
            for node in functions
            if _body_lines(node) > MOST_FUNCTION_LINES
        ]
    if len(long_functions) > MOST_LONG_FUNCTIONS:
        yield f"more than {MOST_LONG_FUNCTIONS} functions of over {MOST_FUNCTION_LINES} lines:"
        yield from long_functions
    for folder, n in folders.items():
        if n > MOST_IN_A_FOLDER:
            yield f"{_short(folder)}: {n} files in one flat folder, at most {MOST_IN_A_FOLDER}"


def _body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    end = node.end_lineno or node.lineno
    doc = node.body[0] if ast.get_docstring(node) is not None else None
    return end - node.lineno + 1 - ((doc.end_lineno or doc.lineno) - doc.lineno + 1 if doc is not None else 0)


def shared_class_names() -> Iterator[str]:
    """Class names that stand for more than one thing."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(_short(path))
    shared = {name: where for name, where in homes.items() if len(where) > 1}
    if len(shared) > MOST_SHARED_CLASS_NAMES:
        yield f"{len(shared)} class names are used for two things, at most {MOST_SHARED_CLASS_NAMES}:"
        yield from (f"  {name}: {', '.join(where)}" for name, where in sorted(shared.items()))


def cited_paths() -> Iterator[str]:
    """Paths in documents that lead nowhere, and pages that docs/README.md does not list."""
    pages = [path for path in _tracked("*.md") if path.name != "CHANGELOG.md"]
    for page in pages:
        text = page.read_text()
        for cited in sorted(set(_CITED.findall(text))):
            if not (ROOT / cited).exists() and not _PLACEHOLDER.search(cited):
                yield f"{_short(page)}: {cited} does not exist"
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#]+)(?:#[^)]*)?\)", text):
            if not (page.parent / target).exists():
                yield f"{_short(page)}: link to {target} leads nowhere"
    index = (ROOT / "docs" / "README.md").read_text()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT / "docs").as_posix()
        if name != "README.md" and f"({name})" not in index:
            yield f"docs/README.md does not list {name}"


def short_citations() -> Iterator[str]:
    """`room/module.py` as ARCHITECTURE.md cites it, below sdfstream/."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for cited in sorted(set(re.findall(r"`((?:[a-z_]+/)*[a-z_0-9]+\.py)`", text))):
        if not (ROOT / "sdfstream" / cited).exists() and not (ROOT / cited).exists():
            yield f"ARCHITECTURE.md: {cited} does not exist"


OWN_OUTPUT = {
    "strict_json.py": "the reader itself",
    "numeric/codec.py": "a snapshot holds NaN and arrays; it checks what it reads by itself",
    "archive/query_io.py": "what the engine printed: any size, a column twice",
    "archive/http/engine_calls_io.py": "what the engine printed",
    "cli/score_clock.py": "what our own verb printed",
    "emulator/main_io.py": "written by the process that started it",
    "lab/client_io.py": "between processes of one lab, of one user",
    "lab/job_io.py": "between processes of one lab, of one user",
    "lab/owner_io.py": "between processes of one lab, of one user",
    "lab/sender_io.py": "between processes of one lab, of one user",
    "lab/traffic_io.py": "between processes of one lab, of one user",
}
"""Files that may read JSON by other means than `strict_json.loads`, and why."""


def lax_json() -> Iterator[str]:
    """JSON that is read without bounds."""
    for path in sources():
        if path.relative_to(ROOT / "sdfstream").as_posix() in OWN_OUTPUT:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "json"
            imported = isinstance(node, ast.ImportFrom) and node.module == "json"
            if imported or (named and node.attr not in ("dumps", "dump", "JSONEncoder")):
                yield f"{_short(path)}:{node.lineno}: read JSON by strict_json.loads"


WRITES_TO_THE_TERMINAL = (
    "sdfstream/runtime/output_io.py",
    "sdfstream/runtime/logs_io.py",
    "sdfstream/cli/top.py",  # by rich, from data that `visible.data` has passed
    "sdfstream/emulator/main_io.py",  # a pipe to the lab
    "sdfstream/lab/traffic_io.py",  # the same
)


def raw_output() -> Iterator[str]:
    """Code that prints or logs around `runtime/output_io.py` and `runtime/logs_io.py`, where names become visible."""
    for path in sources():
        if _short(path) in WRITES_TO_THE_TERMINAL:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Name) and node.id == "print":
                yield f"{_short(path)}:{node.lineno}: print: use runtime.output_io"
            elif isinstance(node, ast.Attribute):
                of = ast.unparse(node)
                if re.fullmatch(r"sys\.(stdout|stderr)\.(write|writelines|buffer)", of) or of == "logging.basicConfig":
                    yield f"{_short(path)}:{node.lineno}: {of}: use runtime.output_io or runtime.logs_io"
                elif of.endswith("console.print"):
                    yield f"{_short(path)}:{node.lineno}: {of}: only top draws, from visible data"


def _tracked(pattern: str) -> list[Path]:
    done = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in done.stdout.splitlines() if (ROOT / line).exists()]


def _short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


RULES = (retired_names, sizes, shared_class_names, cited_paths, short_citations, lax_json, raw_output)


def main() -> int:
    """Print what breaks a rule."""
    found = [line for rule in RULES for line in rule()]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
