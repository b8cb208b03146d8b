"""The running pipeline's socket, and the verbs that ask it, as a user calls them."""

import asyncio
import fcntl
import json
import os
import select
import signal
import socket
import stat
import struct
import sys
import tempfile
import termios
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sdfstream.board.board import Board
from sdfstream.cli import main
from sdfstream.errors import UnavailableError
from sdfstream.serve.queries import PipelineQueries, detect_reached_ns
from sdfstream.serve.query_io import QueryServer, fetch, fetch_board
from tests.fixtures import board_messages as bm


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[QueryServer]:
    board = Board()
    board.take(bm.small_fabric())
    answers = PipelineQueries(board, lambda: (bm.NOW_NS, {"sync.refused.x": 1}, {"sync": 0}, {"mode": "test"}))
    server = QueryServer(answers, folder)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder others may enter; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = await asyncio.to_thread(main, list(words))
    out, err = capsys.readouterr()
    return code, out, err


async def test_a_client_gets_the_board_and_the_socket_is_its_owners_alone(tmp_path: Path) -> None:
    async with served(tmp_path):
        assert stat.S_IMODE((tmp_path / "run.sock").stat().st_mode) == 0o600
        board = await asyncio.to_thread(fetch_board, tmp_path, hosts=3)
        assert board["nics"]["healthy"] == 12
        assert len(board["grid"]["hosts"]) == 3
        assert board["run"] == {"mode": "test"}
    assert left_in(tmp_path) == []


async def test_verbs_as_a_user_calls_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ("--data", str(tmp_path))
    async with served(tmp_path):
        code, out, _ = await call(capsys, "status", *data, "--json")
        assert (code, json.loads(out)["nics"]["unhealthy"]) == (0, 1)
        code, out, _ = await call(capsys, "status", *data)
        assert "✖ h03/r1" in out
        code, out, _ = await call(capsys, "top", *data, "--once", "--width", "100")
        assert (code, "Worst paths now" in out) == (0, True)
        code, out, _ = await call(capsys, "top", *data, "--json")
        assert len(json.loads(out)["nic_list"]) == 16
        code, out, _ = await call(capsys, "findings", *data, "--open", "--json")
        assert [f["id"] for f in json.loads(out)["findings"]] == ["f1", "f2"]
        code, out, _ = await call(capsys, "findings", *data, "f1")
        assert "remedy" in out
        code, _, err = await call(capsys, "findings", *data, "zz")
        assert (code, "no finding has an id" in err) == (2, True)
        code, _, err = await call(capsys, "findings", *data, "--since", "soon")
        assert (code, "--since" in err) == (2, True)


@pytest.mark.parametrize("verb", ["status", "top", "findings"])
def test_nothing_running_is_exit_2_with_a_hint(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--data", str(tmp_path), "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "sdfstream up" in err
    assert "no archive" in err


async def test_an_answer_that_cannot_be_made_is_an_error_that_says_so_and_the_next_is_answered(tmp_path: Path) -> None:
    def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        return {"at_ns": 1} if request["want"] == "board" else {"at_ns": {1: 2, "x": 3}, "n": object()}

    server = QueryServer(answer, tmp_path)
    await server.start()
    try:
        with pytest.raises(UnavailableError, match="raised TypeError"):
            await asyncio.to_thread(fetch, tmp_path, {"want": "findings"})
        assert server.counters.get("answer-raised", "TypeError") == 1
        assert await asyncio.to_thread(fetch_board, tmp_path) == {"at_ns": 1}
    finally:
        await server.close()


async def test_a_folder_too_deep_for_a_socket_gets_a_pointer(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    async with served(deep):
        pointer = Path((deep / "run.sock.path").read_text())
        assert stat.S_IMODE(pointer.parent.stat().st_mode) == 0o700
        assert (await asyncio.to_thread(fetch_board, deep))["nics"]["known"] == 16
        with pytest.raises(UnavailableError, match="another pipeline"):
            async with served(deep):
                pass
        assert (await asyncio.to_thread(fetch_board, deep))["nics"]["known"] == 16
    assert not pointer.parent.exists()
    assert left_in(deep) == []


async def test_two_pipelines_on_one_folder_and_the_remains_of_a_killed_one(tmp_path: Path) -> None:
    async with served(tmp_path):
        with pytest.raises(UnavailableError, match="another pipeline"):
            async with served(tmp_path):
                pass
        assert (await asyncio.to_thread(fetch_board, tmp_path))["nics"]["known"] == 16
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "run.sock"))
    with pytest.raises(UnavailableError, match="no pipeline runs"):
        fetch_board(tmp_path)
    async with served(tmp_path):
        assert (await asyncio.to_thread(fetch_board, tmp_path))["nics"]["known"] == 16


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"want": "moon"}, "unknown wish"),
        ({}, "unknown wish"),
        ({"want": "board", "hosts": -1}, "whole number"),
        ({"want": "board", "worst": "x"}, "whole number"),
        ({"want": "board", "hosts": True}, "whole number"),
    ],
)
async def test_odd_requests_get_a_sentence(tmp_path: Path, request_: dict[str, Any], sentence: str) -> None:
    async with served(tmp_path):
        with pytest.raises(UnavailableError, match=sentence):
            await asyncio.to_thread(fetch, tmp_path, request_)
        assert (await asyncio.to_thread(fetch_board, tmp_path))["nics"]["known"] == 16


@pytest.mark.parametrize("data", [b"\xff\xfe\n", b"[]\n", b"{\n", b"x" * 10_000, b'{"want":' + b"[" * 3000 + b"\n"])
async def test_bytes_that_are_no_request_harm_nobody(tmp_path: Path, data: bytes) -> None:
    async with served(tmp_path):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "run.sock"))
        writer.write(data)
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 5)
        writer.close()
        await writer.wait_closed()
        assert (await asyncio.to_thread(fetch_board, tmp_path))["nics"]["known"] == 16


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to pose as somebody else")
async def test_another_user_gets_nothing(open_folder: Path) -> None:
    script = (
        "import os,socket,sys;os.setuid(65534);s=socket.socket(socket.AF_UNIX)\n"
        'try: s.connect(sys.argv[1]); s.sendall(b\'{"want":"board"}\\n\'); print(len(s.recv(99)))\n'
        "except OSError as e: print('refused', e.errno)"
    )
    async with served(open_folder):
        process = await asyncio.create_subprocess_exec(
            "python3", "-c", script, str(open_folder / "run.sock"), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), 10)
        assert out.strip() in (b"0", b"refused 13")


async def test_top_draws_in_a_terminal_until_interrupted(tmp_path: Path) -> None:
    parent, child = os.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("4H", 50, 100, 0, 0))
    # a worker of a parallel run has sizes of its own in the environment, which go before the terminal's
    environment = {k: v for k, v in os.environ.items() if k not in ("LINES", "COLUMNS")} | {"TERM": "xterm-256color"}
    async with served(tmp_path) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sdfstream", "top", "--data", str(tmp_path), "--interval", "0.1", "--width", "100",
            stdin=child, stdout=child, stderr=child, env=environment,
        )  # fmt: skip
        os.close(child)
        drawn = await asyncio.to_thread(read_until, parent, "refused")
        assert "\x1b[?1049h" in drawn, "the alternate screen, so that the shell's own lines come back"
        assert "✖" in drawn
        await server.close()
        await asyncio.to_thread(read_until, parent, "waiting for it to come back")
        process.send_signal(signal.SIGINT)
        ended = await asyncio.to_thread(read_until, parent, "\x1b[?1049l")
        assert await asyncio.wait_for(process.wait(), 10) == 0
        assert "Traceback" not in ended
    os.close(parent)


def read_until(terminal: int, words: str) -> str:
    """What the terminal shows until it has shown `words`, at most ten seconds long."""
    seen = b""
    ends_at = time.monotonic() + 10.0
    ready = select.poll()  # not select(): a chDB of an earlier test may have left more than 1024 descriptors
    ready.register(terminal, select.POLLIN)
    while words.encode() not in seen and time.monotonic() < ends_at:
        if ready.poll(100):
            seen += os.read(terminal, 65536)
    shown = seen.decode(errors="replace")
    assert words in shown, shown[-2000:]
    return shown


def test_detect_is_as_far_as_its_slowest_unit_whatever_else_its_processes_commit() -> None:
    units = {"detect/0of2": 9_000, "detect/1of2": 8_000, "sync/0of1": 1_000}
    assert detect_reached_ns(units) == 8_000
    assert detect_reached_ns({"detect": 7_000}) == 7_000, "in one process"
    assert detect_reached_ns(units | {"detect/troubles/gpu-17/detect/0of1": 2_000}) == 8_000, "it had one trouble, once"
    assert detect_reached_ns({"sync/0of1": 1_000, "detect/0of1": 0}) is None
