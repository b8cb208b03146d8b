"""The SQL front as another local user sees it: nothing read, nothing written, nobody locked out.

The long form: ``python -m tests.attacks.sql_front --count 10000``.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from sdfstream.archive.engine_io import Engine
from sdfstream.archive.http.endpoint_io import remove_endpoint, write_endpoint
from sdfstream.archive.http.front_io import FrontLimits
from sdfstream.archive.http.server_io import SqlFront
from tests.attacks import sql_front

pytestmark = pytest.mark.real
ROOT = Path(__file__).resolve().parents[2]


def test_no_setting_and_no_format_reaches_a_file() -> None:
    """300 requests, every known bad one among them, half without a token, half with one that was given away."""
    outcome = sql_front.run(300, seed=12)
    assert outcome["harm"] == [], outcome
    assert set(outcome["statuses"]) & {"none 200", "none 500"} == set(), "nothing is answered without a token"
    assert 2 * outcome["known_bad"] <= 300


@pytest.fixture
def front(tmp_path: Path) -> Iterator[SqlFront]:
    with Engine.open(str(tmp_path / "archive"), create=True):
        started = SqlFront.start(
            str(tmp_path / "archive"), data=tmp_path, connections=8, limits=FrontLimits(queries=2, wait_s=30.0)
        )
        write_endpoint(tmp_path, started.port)
        yield started
        remove_endpoint(tmp_path)
        started.close()


def ask(front: SqlFront, sql: str, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)
    given = {"X-ClickHouse-Key": front.read_token} | {k.replace("_", "-"): v for k, v in headers.items()}
    try:
        connection.request("POST", "/", sql, given)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def verb(data: Path) -> str:
    """What the owner's ``sdfstream sql`` prints."""
    command = [sys.executable, "-m", "sdfstream", "sql", "--data", str(data), "SELECT 42"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout.strip() or done.stderr


def test_idle_connections_do_not_lock_anybody_out(front: SqlFront, tmp_path: Path) -> None:
    held = [socket.create_connection(("127.0.0.1", front.port), timeout=5) for _ in range(64)]
    for connection in held[::2]:
        with contextlib.suppress(OSError):
            connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    try:
        assert verb(tmp_path) == "42"
        assert ask(front, "SELECT 1") == (200, b"1\n"), "a newcomer takes the slot of the longest idle"
    finally:
        for connection in held:
            connection.close()


def test_long_queries_of_clients_leave_the_owner_a_slot(front: SqlFront, tmp_path: Path) -> None:
    threads = [threading.Thread(target=ask, args=(front, "SELECT sleep(3), sleep(3)")) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    try:
        assert verb(tmp_path) == "42"
    finally:
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"}, {"Host": "evil.example"}, {"Host": ""},
    ],
)  # fmt: skip
def test_web_pages_are_refused_even_with_the_token(front: SqlFront, headers: dict[str, str]) -> None:
    status, answer = ask(front, "SELECT 1", **headers)
    assert (status, b"1\n" in answer.splitlines(keepends=True)) == (403, False)
    assert front.counters.get("refused", "web-page") == 1


def test_without_the_token_a_sentence_names_its_file(front: SqlFront, tmp_path: Path) -> None:
    for wrong in ("", "x", "ü"):
        status, answer = ask(front, "SELECT 1", X_ClickHouse_Key=wrong.encode().decode("latin-1"))
        assert (status, str(tmp_path / "sql.token").encode() in answer) == (403, True)
    assert front.counters.get("refused", "password") == 3


def test_a_reader_sends_statements_and_no_gigabytes(front: SqlFront) -> None:
    assert ask(front, "SELECT 1 -- " + "x" * (1 << 20))[0] == 413
    status, answer = ask(front, "SELECT ((")
    assert (status, b"Syntax error" in answer, b"formatQuery" in answer) == (400, True, False)


def test_files_of_the_archive_are_their_owners(front: SqlFront, tmp_path: Path) -> None:
    for name, mode in (("sql.token", 0o600), ("sql.sock", 0o600), ("archive", 0o700)):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode, name


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to pose as somebody else")
def test_another_user_cannot_use_the_owners_socket(front: SqlFront, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "sql.sock").chmod(0o777)  # the mode alone does not have to hold
    script = (
        "import os, socket, sys; os.chdir(sys.argv[1]); os.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "try:\n    s.connect('sql.sock'); s.sendall(b'GET /ping HTTP/1.0\\nHost: x\\n\\n'); print(s.recv(99))\n"
        "except OSError as error: print('refused', error.errno)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "Ok" not in done.stdout


def test_a_planted_configuration_is_not_the_engines(tmp_path: Path) -> None:
    """chDB reads a config.xml in the working directory by itself: a pipeline may be started anywhere."""
    (tmp_path / "config.xml").write_text(
        "<clickhouse><max_dictionary_num_to_warn>77</max_dictionary_num_to_warn></clickhouse>"
    )
    code = (
        "import sys; from sdfstream.archive.engine_io import Engine\n"
        "with Engine.open(sys.argv[1], create=True) as engine:\n"
        "    print(engine.rows(\"SELECT value FROM system.server_settings WHERE name = 'max_dictionary_num_to_warn'\"))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "archive")],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "77" not in done.stdout


def test_the_engine_refuses_by_itself(front: SqlFront, tmp_path: Path) -> None:
    """The second layer alone: statements straight to a handle in the reader's role, past every check of the front."""
    import chdb

    from sdfstream.archive.engine_options import READER, connection_string

    canary = tmp_path / "canary.csv"
    canary.write_text("1\n")
    handle = chdb.connect(connection_string(str(tmp_path / "archive")))
    try:
        handle.query(f"SET ROLE {READER}")
        for source in sql_front.SOURCES:
            if "Python" in source or "SELECT file" in source or "stack_trace" in source or source.startswith("input"):
                continue  # the scalar function `file` and Python's objects know no grants: the front's guard alone
            with pytest.raises(
                RuntimeError, match=r"privileges|Unknown|not found|STORAGE|ARGUMENT|refused|Host|disabled"
            ):
                handle.query(f"SELECT * FROM {source.format(p=canary, d=tmp_path)}")
        for name in ("format_template_resultset", "format_schema", "output_format_schema", "additional_result_filter"):
            with pytest.raises(RuntimeError, match="should not be changed"):
                handle.query(f"SET {name} = '{canary}'")
    finally:
        handle.close()


def test_a_servers_password_is_not_in_the_process_list(tmp_path: Path) -> None:
    """`sql --url` as it can be called now: the server gets the password, /proc/PID/cmdline has none."""
    secret = "n0t-in-the-list"
    file = tmp_path / "password"
    file.write_text(secret + "\n")
    for option, environment in ((["--password-file", str(file)], {}), ([], {"SDFSTREAM_SQL_PASSWORD": secret})):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(120)
            url = f"http://ops@127.0.0.1:{server.getsockname()[1]}/sdf"
            command = [sys.executable, "-m", "sdfstream", "sql", "--url", url, *option, "SELECT 1"]
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                link, _ = server.accept()
                with link:
                    head = link.recv(1 << 16)
                    shown = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            finally:
                process.kill()
                process.wait()
        sent = b64encode(f"ops:{secret}".encode())
        assert (sent in head, secret.encode() in shown) == (True, False), head
