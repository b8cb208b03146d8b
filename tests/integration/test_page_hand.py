"""An operator's hand on the page, in a real Chromium: what is signed in the tab is what Python signs, and is obeyed."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.stage import ActuateStage, Authority
from sdfstream.cli import main
from sdfstream.records.command import canonical
from sdfstream.records.message import Message, Output
from sdfstream.records.signature import KeyRing, Signer
from sdfstream.records.topics import OUTCOME
from sdfstream.records.units import NS_PER_S
from sdfstream.serve import operator_keys_io
from sdfstream.serve.overrides_io import output_of
from sdfstream.serve.service_io import service
from sdfstream.settings import Settings
from tests.fixtures import board_messages as bm
from tests.fixtures.job_messages import World
from tests.fixtures.pages import AXE, Served, Tab

Make = Callable[..., Any]
KEY = bytes(range(32))
SIGNER = Signer(KEY)


class Controller:
    """Takes overrides that the API passes on, and answers as the controller does, on the boards and the stream."""

    def __init__(self) -> None:
        self.seen: list[Mapping[str, Any]] = []
        self.stage = ActuateStage(ActuateConfig(), Authority(Signer(bytes(32)), KeyRing([SIGNER.public]), 7))
        self._given: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._served: Served | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def serve(self, served: Served) -> None:
        self._served = served
        self._thread.start()

    def __call__(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """As `JobQueries` does: put it on the bus."""
        self._given.put(given)
        return {"taken": given["id"]}

    def stop(self) -> None:
        self._given.put(None)
        self._thread.join(5)

    def _work(self) -> None:
        assert self._served is not None
        for seq, given in enumerate(iter(self._given.get, None)):
            self.seen.append(given)
            output = output_of(given)
            message = Message(output.topic, output.key, output.body, bm.NOW_NS, seq)
            answers = self.stage.step([message], bm.NOW_NS)
            said = [Message(o.topic, o.key, o.body, bm.NOW_NS, seq) for o in answers if o.topic == OUTCOME.name]
            self._served.take([message, *said])


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller()
    yield made
    made.stop()


@pytest.fixture
def fabric(served: Make, controller: Controller) -> Served:
    world = World()
    waits = world.command("c2", 2, mode="approve")
    story = [*bm.small_fabric(), *world.running("train-7"), world.command(age_s=3), world.outcome(age_s=2.5), waits]
    made: Served = served(story, bm.NOW_NS, override=controller)
    controller.serve(made)
    return made


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "operator.key"
    file.write_bytes(KEY)
    return file


def use_key(page: Any, key: Path) -> None:
    page.get_by_label("Your name").fill("anna")
    page.get_by_label("Key file").set_input_files(str(key))
    page.get_by_role("button", name="Use key").click()
    page.wait_for_selector(f"text=Signs as anna with key {SIGNER.key_id}")


HARD: list[Any] = [
    {"b": [1, 2.5, None, True], "a": -0.0, "ä": "Käse \u2028 \u007f", "aa": "\\\"/\b\f\n\r\t\u0001", "": {}, "🙂": "𝄞"},
    {"ﬀ": 1, "𐀀": 2, "Z": 1e21, "z": 1e-7, "n": 123456789012345680000.0, "m": 0.1, "k": 4.5, "l": 1e-4},
]  # fmt: skip


def test_the_tab_signs_the_same_bytes_as_python(fabric: Served, tab: Make, key: Path) -> None:
    page = tab(fabric).open("finding/f1")
    use_key(page, key)
    for value in HARD:
        made = page.evaluate(
            "value => import('/page/canonical.js').then(m => m.canonical(JSON.parse(value)))", json.dumps(value)
        )
        assert made.encode() == canonical(value)
    given = {"what": "silence", "target": {"type": "nic", "id": "h03/r1"}, "lasts_s": 7200,
             "set": {"reason": "Käse, \"quoted\" \u2028 🙂", "maintenance": True, "kinds": ["loss"]}}  # fmt: skip
    at_ns = 1_800_000_000_123_456_789
    text = page.evaluate(
        """async ([given, at, id]) => {
            const { signed } = await import('/page/override.js');
            const { canonical } = await import('/page/canonical.js');
            return canonical(await signed(JSON.parse(given), BigInt(at), id));
        }""",
        [json.dumps(given), str(at_ns), "o-1"],
    )
    expected = SIGNER.sign(
        {
            "id": "o-1", "issued_at_ns": at_ns, "expires_at_ns": at_ns + 7200 * NS_PER_S, "what": "silence",
            "operator": "anna", "command": "", "target": given["target"], "set": given["set"],
        }
    )  # fmt: skip
    assert text.encode() == canonical(expected), "Ed25519 is deterministic: the same key, the same bytes"
    for bad in ("NaN", "'\\ud800'", "undefined"):
        refused = page.evaluate(
            f"import('/page/canonical.js').then(m => m.canonical({bad})).catch(e => `no: ${{e.message}}`)"
        )
        assert refused.startswith("no: "), bad


def test_a_finding_is_silenced_labelled_and_the_silence_lifted(
    fabric: Served, tab: Make, key: Path, controller: Controller
) -> None:
    one: Tab = tab(fabric)
    page = one.open("finding/f1")
    page.wait_for_selector("text=none: whoever is told of findings is told of it")
    assert page.get_by_role("button", name="Silence").count() == 0, "without a key there is nothing to press"
    use_key(page, key)
    page.get_by_role("combobox", name="Silence").select_option("subject")
    page.get_by_label("Reason").fill("firmware")
    page.get_by_role("button", name="Silence").click()
    page.wait_for_selector("text=applied: taken: findings about nic h03/r1 are shown as silenced meanwhile")
    page.wait_for_selector("dd:has-text('silenced until 2027-01-15 10:0'):has-text('by anna: firmware')")
    (given,) = controller.seen
    assert (given["what"], given["target"], given["operator"]) == ("silence", {"type": "nic", "id": "h03/r1"}, "anna")
    page.get_by_role("combobox", name="It was").select_option("cabling")
    page.get_by_label("Note").fill("swapped")
    page.get_by_role("button", name="Label").click()
    page.wait_for_selector("dd:has-text('cabling, says anna: swapped')")
    page.goto(f"{fabric.url}/#/findings")
    page.wait_for_selector("td:has-text('silenced until'):has-text('by anna: firmware; cabling, says anna')")
    page.get_by_role("combobox", name="Silence").select_option("false")
    page.locator("td:has-text('nic-down')").wait_for(state="detached")
    # the table is empty until the answer comes
    page.wait_for_selector("tbody tr")
    assert page.locator("tbody tr").count() == 1
    page.goto(f"{fabric.url}/#/fleet")
    page.wait_for_selector(".figure:has-text('Open findings'):has-text('1 silenced')")
    page.goto(f"{fabric.url}/#/finding/f1")
    page.get_by_role("button", name="Lift silence").click()
    page.wait_for_selector("dd:has-text('none: whoever is told')")
    page.get_by_role("button", name="Forget key").click()
    page.wait_for_selector("text=Key file")
    assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
    assert not [sent for sent in one.asked if KEY.hex() in sent]


def test_the_loop_is_approved_undone_and_stopped(fabric: Served, tab: Make, key: Path, controller: Controller) -> None:
    page = tab(fabric).open("loop")
    use_key(page, key)
    page.get_by_role("button", name="Stop the loop").click()
    page.wait_for_selector(".figure:has-text('Mode'):has-text('observe')")
    page.get_by_role("button", name="Approve steer h00/r0#17").click()
    page.wait_for_selector("text=refused: unknown-command: no command 'c2' waits for approval")
    page.get_by_role("button", name="Undo steer h00/r0#17").click()
    page.wait_for_selector("text=refused: unknown-command: no command 'c1' is in force")
    page.get_by_role("combobox", name="Mode").select_option("dry-run")
    page.get_by_role("button", name="Set mode").click()
    page.wait_for_selector(".figure:has-text('Mode'):has-text('dry-run')")
    assert [(o["what"], o["command"], o["set"]) for o in controller.seen] == [
        ("mode", "", {"mode": "observe"}), ("approve", "c2", {}), ("undo", "c1", {}), ("mode", "", {"mode": "dry-run"}),
    ]  # fmt: skip


def test_a_wrong_key_is_refused_in_words(fabric: Served, tab: Make, tmp_path: Path) -> None:
    page = tab(fabric).open("finding/f1")
    for content, words in ((b"short", "holds 5 bytes"), (bytes(33), "holds 33 bytes")):
        (tmp_path / "bad.key").write_bytes(content)
        page.get_by_label("Your name").fill("anna")
        page.get_by_label("Key file").set_input_files(str(tmp_path / "bad.key"))
        page.get_by_role("button", name="Use key").click()
        page.wait_for_selector(f"text={words}")
    stranger = tmp_path / "stranger.key"
    stranger.write_bytes(bytes(32))
    page.get_by_label("Key file").set_input_files(str(stranger))
    page.get_by_role("button", name="Use key").click()
    page.wait_for_selector("text=Signs as anna with key")
    page.get_by_role("button", name="Label").click()
    page.wait_for_selector("text=refused: unknown-key")


@pytest.mark.parametrize("broken", ["Object.defineProperty(window, 'isSecureContext', { value: false })",
                                    "Object.defineProperty(crypto, 'subtle', { value: undefined })"])  # fmt: skip
def test_where_the_tab_cannot_sign_the_command_line_is_shown(fabric: Served, tab: Make, broken: str) -> None:
    one = tab(fabric)
    one.page.add_init_script(broken)
    page = one.open("finding/f1")
    page.wait_for_selector("text=browsers refuse to sign")
    assert "sdfstream silence finding:f1 --for 2h" in page.locator("main").inner_text()
    assert page.get_by_label("Key file").count() == 0
    page.goto(f"{fabric.url}/#/loop")
    page.wait_for_selector("code:has-text('sdfstream policy mode observe')")


def test_a_browser_without_ed25519_says_so(fabric: Served, tab: Make, key: Path) -> None:
    one = tab(fabric)
    one.page.add_init_script(
        "crypto.subtle.importKey = () => Promise.reject(new DOMException('no', 'NotSupportedError'))"
    )
    page = one.open("finding/f1")
    page.get_by_label("Your name").fill("anna")
    page.get_by_label("Key file").set_input_files(str(key))
    page.get_by_role("button", name="Use key").click()
    page.wait_for_selector("text=this browser does not sign with Ed25519 (NotSupportedError)")


def test_the_controls_shut_nobody_out(fabric: Served, tab: Make, key: Path) -> None:
    found = []
    for scheme, width in (("light", 1280), ("dark", 390)):
        one = tab(fabric, color_scheme=scheme, viewport={"width": width, "height": 844}, bypass_csp=True)
        for view in ("finding/f1", "loop"):
            page = one.open(view)
            page.wait_for_selector("text=Key file")
            page.evaluate(AXE.read_text())
            for signs in (False, True):
                if signs and page.get_by_label("Key file").count():
                    use_key(page, key)
                rules = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}"
                violations = page.evaluate(f"axe.run(document, {rules}).then(r => r.violations)")
                bad = [v for v in violations if v["impact"] in ("serious", "critical")]
                found += [(scheme, view, v["id"], [n["html"][:120] for n in v["nodes"][:2]]) for v in bad]
                if page.evaluate("document.documentElement.scrollWidth") > width:
                    found.append((scheme, view, "wider than the window", []))
            page.get_by_role("button", name="Forget key").click()
    assert found == []


@contextmanager
def pipeline(data: Path) -> Iterator[SimpleNamespace]:
    """A pipeline as `up` runs it, in a thread, with findings on its bus; ``url`` of its page."""
    begun, stop, found = threading.Event(), threading.Event(), SimpleNamespace(url="")

    async def run() -> None:
        async with service(Settings(data=data, api="127.0.0.1:0")) as running:
            story = bm.small_fabric(time.time_ns())
            await running.bus.publish([Output(m.topic, m.key, m.body) for m in story])
            found.url = running.api_url
            begun.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    try:
        assert begun.wait(60)
        yield found
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def test_a_running_pipeline_obeys_what_the_page_signs(
    tab: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the key file of its data folder to every other reader: the page, the verb, and whoever asks SQL or REST."""
    with pipeline(tmp_path) as running:
        page = tab(running).open("finding/f1")
        page.get_by_label("Your name").fill("anna")
        page.get_by_label("Key file").set_input_files(str(operator_keys_io.key_path(tmp_path)))
        page.get_by_role("button", name="Use key").click()
        page.get_by_role("combobox", name="Silence").select_option("subject")
        page.get_by_label("Reason").fill("firmware")
        page.get_by_role("button", name="Silence").click()
        page.wait_for_selector("text=applied: taken: findings about nic h03/r1")
        page.wait_for_selector("dd:has-text('silenced until'):has-text('by anna: firmware')")
        assert main(["findings", "--open", "--data", str(tmp_path)]) == 0
        line = next(one for one in capsys.readouterr().out.splitlines() if one.startswith("f1 "))
        assert "; silenced until " in line
        assert line.endswith(" by anna: firmware")
        page.goto(f"{running.url}/#/loop")
        page.get_by_role("button", name="Stop the loop").click()
        page.wait_for_selector(".figure:has-text('Mode'):has-text('observe')")
