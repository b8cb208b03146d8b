"""The page's files: small, of this host alone, and open to whoever reaches the address, since they hold no data."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from sdfstream.records.silences import LABELS
from sdfstream.serve.api import page_io
from sdfstream.serve.api.app_io import Api
from sdfstream.serve.api.page_io import FOLDER, WebPage
from tests.fixtures import asgi

MOST_SCRIPT_BYTES = 60_000
"""Of a first load, compressed (issue 17)."""


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return asgi.api_over(tmp_path, *asgi.boards())


def loaded(name: str, found: set[str]) -> set[str]:
    """A script and all that it imports before it runs; views load what they need themselves."""
    if name not in found:
        found.add(name)
        for other in re.findall(r"""\bfrom\s*['"]([^'"]+)['"]""", (FOLDER / name).read_text()):
            loaded((FOLDER / name).parent.joinpath(other).resolve().relative_to(FOLDER).as_posix(), found)
    return found


def test_whichever_page_is_loaded_first_its_scripts_are_small() -> None:
    files = WebPage().files
    views = re.findall(r"import\('\./([a-z]+\.js)'\)", (FOLDER / "views.js").read_text())
    assert {"fleet.js", "pair.js"} <= set(views)
    for view in views:
        names = loaded("main.js", set()) | loaded(view, set())
        size = sum(len(files[name].packed) for name in names)
        assert size <= MOST_SCRIPT_BYTES, (view, size)
        assert ("vendor/uplot.js" in names) == (view in ("pair.js", "job.js")), view


def test_the_page_knows_every_label() -> None:
    listed = re.findall(r"'([a-z-]+)'", (FOLDER / "finding_hand.js").read_text().split("LABELS = [")[1].split("]")[0])
    assert listed == list(LABELS)


def test_nothing_names_another_host() -> None:
    for path in FOLDER.rglob("*"):
        if path.suffix in (".js", ".css", ".html") and path.parent == FOLDER:
            found = re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+", path.read_text())
            assert found == [], path.name


def test_the_start_page_holds_no_script_of_its_own() -> None:
    text = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert "style=" not in text
    for name in re.findall(r'(?:src|href)="/page/([^"]+)"', text):
        assert (FOLDER / name).is_file(), name


def test_every_import_is_there() -> None:
    for path in FOLDER.rglob("*.js"):
        for name in re.findall(r"""(?:\bfrom\s*|\bimport\()['"]([^'"]+)['"]""", path.read_text()):
            assert (path.parent / name).resolve().is_file(), (path.name, name)


def test_what_others_wrote_is_listed_with_its_licence() -> None:
    listed = (FOLDER / "vendor" / "README.md").read_text()
    for path in (FOLDER / "vendor").iterdir():
        assert path.name == "README.md" or f"`{path.name}`" in listed, path.name


async def test_no_token_is_needed_and_no_other_script_would_run(api: Api) -> None:
    for path, media in (("/", "text/html"), ("/page/main.js", "text/javascript"), ("/page/page.css", "text/css")):
        answer = await asgi.ask(api, path)
        assert answer.status == 200, path
        assert answer.headers["content-type"].startswith(media)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
    assert (await asgi.ask(api, "/v1/nics")).status == 401, "data needs one"


async def test_files_are_packed_and_not_sent_twice(api: Api) -> None:
    plain = await asgi.ask(api, "/page/main.js")
    packed = await asgi.ask(api, "/page/main.js", headers={"Accept-Encoding": "gzip, br"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body == (FOLDER / "main.js").read_bytes()
    again = await asgi.ask(api, "/page/main.js", headers={"If-None-Match": plain.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


async def test_nothing_outside_the_folder_is_answered(api: Api) -> None:
    for path in (
        "/page/../app_io.py",
        "/page/vendor/README.md",
        "/page/",
        "/page/%2e%2e/roles.py",
        "/page//etc/passwd",
    ):
        assert (await asgi.ask(api, path)).status == 404, path


def test_a_folder_without_files_has_none(tmp_path: Path) -> None:
    assert page_io.WebPage(tmp_path).files == {}
