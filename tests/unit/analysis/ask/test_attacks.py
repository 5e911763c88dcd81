"""Another site, another program and broken requests get nothing from the real server, and it goes on."""

from __future__ import annotations

import http.client
import logging
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from helpers.asking import guesses, pool_of, save_images
from sitar.analysis.answers import AnswersFile, read_answers
from sitar.analysis.ask.session import Session

pytest.importorskip("starlette", reason='needs Starlette: pip install "sitar[ask]"')

from sitar.analysis.ask.server import HEADERS, make_server, open_socket

JSON = {"Content-Type": "application/json"}


class Served(NamedTuple):
    """A server that listens, and what only its user knows."""

    port: int
    token: str
    session: Session

    @property
    def secret(self) -> dict[str, str]:
        return {"X-Sitar-Token": self.token, **JSON}

    def ask(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: str | bytes | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request to a path below the token."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request(method, f"/{self.token}/{path}", body, headers or {})
            reply = connection.getresponse()
            return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
        finally:
            connection.close()

    def raw(self, content: bytes) -> bytes:
        """Send bytes, and return the first line of the reply. It is empty if there is none."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            parts = b""
            while part := connection.recv(65536):
                parts += part
        return parts.partition(b"\r\n")[0]

    def kept(self) -> list[str]:
        return [line.answer for line in read_answers(self.session.file.path).lines]

    def body(self) -> str:
        assert self.session.question is not None
        return f'{{"image": {self.session.question.image}, "label": 0}}'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("served")
    truth = np.arange(30) % 2
    pool = pool_of(guesses(np.random.default_rng(1), truth, 0.9, 0.5), ("cat", "dog"), save_images(place / "i", 30))
    with Session.opened(pool, AnswersFile(place / "answers.csv")) as session:
        listening = open_socket(0)
        port, token = listening.getsockname()[1], secrets.token_urlsafe(24)
        server = make_server(session, token, port)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield Served(port, token, session)
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture(autouse=True)
def no_server_error(served: Served, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No request changes an answer or raises in the server, and the page is there afterwards."""
    before = served.kept()
    with caplog.at_level(logging.ERROR, "uvicorn.error"):
        yield
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], caplog.text
    assert served.kept() == before
    assert served.ask("GET", "next")[0] == 200


def test_the_user_is_served_with_every_strict_header(served: Served) -> None:
    for path in ("", "next", "ask.js", "ask.css", "image/0", "image/99", "nothing", "answer"):
        _, headers, _ = served.ask("GET", path)
        assert {name.lower(): value for name, value in HEADERS.items()}.items() <= headers.items()
        assert "server" not in headers
        assert not [name for name in headers if name.startswith("access-control")]
    policy = HEADERS["Content-Security-Policy"]
    for rule in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'"):
        assert rule in policy
    assert "unsafe" not in policy
    assert served.ask("GET", "next", {"Sec-Fetch-Site": "same-origin"})[0] == 200
    assert served.ask("GET", "", {"Sec-Fetch-Site": "none"})[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[", "",
"[::1]:{port}",
                                  "127.0.0.1:{port}@evil.example", "127.0.0.1:{port}.evil.example"])  # fmt: skip
def test_a_name_that_leads_here_is_refused(served: Served, host: str) -> None:
    """DNS rebinding: the browser believes that this server is evil.example."""
    for path in ("", "next", "image/0"):
        assert served.ask("GET", path, {"Host": host.format(port=served.port)})[0] in (400, 403)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "?"])
def test_what_another_site_causes_is_refused(served: Served, site: str) -> None:
    """Another port of this machine is the same site, and no friend."""
    for path in ("", "next", "image/0"):
        assert served.ask("GET", path, {"Sec-Fetch-Site": site})[0] == 403
    assert served.ask("POST", "answer", {**served.secret, "Sec-Fetch-Site": site}, served.body())[0] == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1", "file://"]
)
def test_another_origin_cannot_answer(served: Served, origin: str) -> None:
    for path in ("answer", "undo"):
        assert served.ask("POST", path, {**served.secret, "Origin": origin}, served.body())[0] == 403
    preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    status, headers, _ = served.ask("OPTIONS", "answer", preflight)
    assert status == 403
    assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data", ""])
def test_a_form_cannot_answer(served: Served, kind: str) -> None:
    """A form of another page sends these kinds without asking first. Nor does it help it to know the token."""
    assert served.ask("POST", "answer", {"Content-Type": kind}, served.body())[0] == 403
    assert served.ask("POST", "answer", {**served.secret, "Content-Type": kind}, served.body())[0] == 400


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PROPFIND", "HEAD"])
def test_other_methods_do_nothing(served: Served, method: str) -> None:
    for headers in ({}, served.secret):
        assert served.ask(method, "answer", headers, served.body() if method != "HEAD" else None)[0] in (400, 403, 405)


@pytest.mark.parametrize("path", [
    "../answers.csv", "..%2fanswers.csv", "%2e%2e/%2e%2e/etc/passwd", "....//etc/passwd",
    "image/../../answers.csv", "image/..%2f0",
    "image/-1", "image/1e3", "image/%00", "image/0%00.png", "image/" + "9" * 5000, "image/٣", "image/0/",
    "ask.js/../../server.py",
    "ask.js%00", "..\\answers.csv", "%c0%ae%c0%ae/x", "//etc/passwd", "page/ask.html", "server.py", "image/",
])  # fmt: skip
def test_no_path_leads_to_another_file(served: Served, path: str) -> None:
    target = f"GET /{served.token}/{path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nConnection: close\r\n\r\n"
    assert served.raw(target.encode()).split(b" ")[1] in (b"400", b"403", b"404", b"307")


@pytest.mark.parametrize("content", [b"[" * 9000, b'{"image": ' + b"9" * 5000 + b"}",
b'{"image": 1e999, "label": 0}', b"\xff\xfe",
                                     b'{"image": NaN}', b'"' + b"\\ud800" * 9 + b'"', b"{" * 20_000, b""])  # fmt: skip
def test_a_body_that_is_no_answer_is_refused(served: Served, content: bytes) -> None:
    assert served.ask("POST", "answer", served.secret, content)[0] == 400


@pytest.mark.parametrize("content", [
    b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n", b"GET next HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
    b"GET http://evil.example/{token}/next HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/9.9\r\n\r\n",
    b"GET /{token}/next HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n\r\n",
    b"GET /{token}/next HTTP/1.0\r\n\r\n", b"\0" * 100,
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /{token}/next HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    b"GET /%ff%fe/next HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n", b"\r\n\r\n",
    b"POST /{token}/answer HTTP/1.1\r\nHost: \r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /",
])  # fmt: skip
def test_broken_requests_get_nothing(served: Served, content: bytes) -> None:
    sent = content.replace(b"{port}", str(served.port).encode()).replace(b"{token}", served.token.encode())
    reply = served.raw(sent)
    assert reply == b"" or reply.split(b" ")[1] in (b"400", b"403", b"405", b"431")


def test_a_web_socket_is_not_opened(served: Served) -> None:
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "x", "Sec-WebSocket-Version": "13"}
    assert served.ask("GET", "answer", upgrade)[0] == 405


def test_a_proxy_is_not_believed(served: Served) -> None:
    headers = {"Host": "evil.example", "X-Forwarded-Host": f"127.0.0.1:{served.port}", "X-Forwarded-For": "127.0.0.1"}
    assert served.ask("GET", "next", headers)[0] == 403


def test_only_loopback_is_listened_to(served: Served) -> None:
    """Every other address of this machine refuses the connection."""
    others = {one[4][0] for one in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}
    for address in others:
        with pytest.raises(ConnectionError):
            socket.create_connection((str(address), served.port), timeout=2)


def test_guessed_tokens_are_refused(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=5)
    for guess in (served.token[:-1], served.token + "=", served.token.swapcase(), "", "..", served.token[::-1]):
        connection.request("GET", f"/{guess}/next")
        reply = connection.getresponse()
        assert reply.status == 403
        assert served.token.encode() not in reply.read()
    connection.close()


def test_the_page_answers_after_all_this(served: Served, tmp_path: Path) -> None:
    status, _, content = served.ask("POST", "answer", served.secret, served.body())
    assert status == 200
    assert b'"answers":1' in content
    assert served.ask("POST", "undo", served.secret, "{}")[0] == 200
