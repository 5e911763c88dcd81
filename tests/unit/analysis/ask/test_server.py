"""The local page serves whoever has its address and nobody else, and never waits long."""

from __future__ import annotations

import gc
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.asking import guesses, pool_of, save_images
from sitar.analysis.answers import AnswersFile, read_answers
from sitar.analysis.ask.session import Session
from sitar.errors import ConfigError

pytest.importorskip("starlette", reason='needs Starlette: pip install "sitar[ask]"')

from starlette.testclient import TestClient

from sitar.analysis.ask.server import keep_what_is_loaded, make_app, open_socket

TOKEN, PORT = "a-token", 8123
SECRET = {"X-Sitar-Token": TOKEN}
TRUTH = np.random.default_rng(0).integers(0, 2, 30)


def client_of(session: Session, host: str = f"127.0.0.1:{PORT}") -> TestClient:
    return TestClient(make_app(session, TOKEN, PORT), base_url=f"http://{host}")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    files = save_images(tmp_path / "images", 30)
    pool = pool_of(guesses(np.random.default_rng(1), TRUTH, 0.9, 0.5), ("<b>cat</b>", "dog"), files)
    with Session.opened(pool, AnswersFile(tmp_path / "answers.csv")) as opened:
        yield opened


@pytest.fixture
def client(session: Session) -> TestClient:
    return client_of(session)


def post(client: TestClient, path: str, body: Any, headers: dict[str, str] = SECRET) -> Any:
    return client.post(f"/{TOKEN}/{path}", json=body, headers=headers)


def kept(session: Session) -> list[str]:
    return [line.answer for line in read_answers(session.file.path).lines]


def test_answers_skips_and_undo(client: TestClient, session: Session) -> None:
    state = client.get(f"/{TOKEN}/next").json()
    assert state["name"] == session.pool.names[state["image"]]
    for label in (0, 1, None):
        upcoming = state["upcoming"]
        state = post(client, "answer", {"image": state["image"], "label": label}).json()
        assert state["image"] == upcoming
    assert kept(session) == ["<b>cat</b>", "dog", ""]
    assert (state["answers"], state["skipped"]) == (2, 1)
    assert state["words"].startswith("2 answers of at least 5")
    assert post(client, "undo", {}).json()["image"] != state["image"]
    assert kept(session) == ["<b>cat</b>", "dog"]


def test_the_page_shows_names_as_text_and_loads_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get(f"/{TOKEN}/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "&lt;b&gt;cat&lt;/b&gt;" in page.text
    assert "<b>" not in page.text
    for name in ("ask.js", "ask.css"):
        assert name in page.text
        assert client.get(f"/{TOKEN}/{name}").status_code == 200
    everything = page.text + client.get(f"/{TOKEN}/ask.js").text + client.get(f"/{TOKEN}/ask.css").text
    assert "http" not in everything
    assert "//" not in everything.replace("// ", "")


def test_every_response_has_strict_headers(client: TestClient) -> None:
    for path in (f"/{TOKEN}/", f"/{TOKEN}/next", f"/{TOKEN}/image/0", f"/{TOKEN}/nothing", "/wrong/"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "path", ["/", "/wrong/", "/wrong/next", "/wrong/image/0", "//next", "/next", f"/x/{TOKEN}/next", f"/{TOKEN}x/next"]
)
def test_a_wrong_token_is_forbidden(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 403


@pytest.mark.parametrize("path", ["answer", "undo"])
@pytest.mark.parametrize("headers", [{}, {"X-Sitar-Token": "wrong"}, {**SECRET, "Origin": "http://evil.example"}])
def test_an_answer_needs_the_token_twice_and_no_other_site(
    client: TestClient, session: Session, path: str, headers: dict[str, str]
) -> None:
    image = session.question.image if session.question else None
    assert post(client, path, {"image": image, "label": 0}, headers).status_code == 403
    assert kept(session) == []
    assert client.options(f"/{TOKEN}/{path}", headers={"Origin": "http://evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil.example:{PORT}"]
)
def test_another_host_is_forbidden(session: Session, host: str) -> None:
    """A name of somebody else's that leads to this machine must not read the page."""
    client = client_of(session)
    assert client.get(f"/{TOKEN}/next", headers={"Host": host}).status_code == 403
    assert client.get(f"/{TOKEN}/next", headers={"Host": f"localhost:{PORT}"}).status_code == 200


@pytest.mark.parametrize("path", ["answer", "undo"])
def test_an_address_that_is_only_opened_changes_nothing(client: TestClient, session: Session, path: str) -> None:
    assert client.get(f"/{TOKEN}/{path}").status_code == 405
    assert kept(session) == []


@pytest.mark.parametrize(
    "image", ["30", "-1", "0/../../answers.csv", "..%2f..%2fanswers.csv", "%2e%2e/answers.csv", "00000.png", "1e3", ""]
)
def test_only_known_images_are_served(client: TestClient, image: str) -> None:
    assert client.get(f"/{TOKEN}/image/{image}").status_code == 404
    assert client.get(f"/{TOKEN}/image/29").headers["content-type"] == "image/png"


@pytest.mark.parametrize(
    "body", [{}, [], {"image": 0}, {"label": 0}, "cat", {"image": None, "label": 2}, {"image": None, "label": "dog"},
             {"image": None, "label": -1}, {"image": None, "label": True}, {"image": "0", "label": 0}]
)  # fmt: skip
def test_what_is_no_answer_is_refused_and_loses_nothing(client: TestClient, session: Session, body: Any) -> None:
    assert session.question is not None
    image = session.question.image
    if isinstance(body, dict) and "image" in body and body["image"] is None:
        body = {**body, "image": image}
    reply = post(client, "answer", body)
    if body == {"image": 0}:  # skips image 0, which does not wait
        assert reply.status_code == 409
    else:
        assert reply.status_code == 400
        assert "The classes are <b>cat</b>, dog." in reply.json()["refused"]
    assert kept(session) == []
    assert reply.json()["image"] == image


def test_what_is_no_json_or_too_long_is_refused(client: TestClient, session: Session) -> None:
    for content in (b"", b"{", b'{"image": ' + b"1" * 20_000):
        assert client.post(f"/{TOKEN}/answer", content=content, headers=SECRET).status_code == 400
    assert kept(session) == []


def test_a_question_is_answered_once(client: TestClient, session: Session) -> None:
    assert session.question is not None
    body = {"image": session.question.image, "label": 0}
    assert post(client, "answer", body).status_code == 200
    again = post(client, "answer", body)
    assert again.status_code == 409
    assert "answered already" in again.json()["refused"]
    assert len(kept(session)) == 1


def test_a_disk_that_is_full_is_said(client: TestClient, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    assert session.question is not None
    image = session.question.image
    monkeypatch.setattr(session.file, "append", full)
    reply = post(client, "answer", {"image": image, "label": 0})
    assert reply.status_code == 507
    assert "No space left" in reply.json()["refused"]
    assert reply.json()["image"] == image, "the question waits"


def test_an_image_that_is_gone_is_said(client: TestClient, session: Session) -> None:
    assert session.pool.files is not None
    session.pool.files[3].unlink()
    session.pool.files[4].write_bytes(b"no image")
    for image in (3, 4):
        reply = client.get(f"/{TOKEN}/image/{image}")
        assert reply.status_code == 422
        assert "cannot be read" in reply.text


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
def test_an_image_that_became_something_else_is_said_at_once(client: TestClient, session: Session) -> None:
    """A pipe, which nobody writes into, a device without an end, and a file that is larger than an image."""
    assert session.pool.files is not None
    pipe, device, large = session.pool.files[3:6]
    for path in (pipe, device, large):
        path.unlink()
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    with large.open("wb") as file:
        file.truncate(600 * 10**6)
    start = time.perf_counter()
    for image, reason in ((3, "not a regular file"), (4, "not a regular file"), (5, "at most 536,870,912 are read")):
        reply = client.get(f"/{TOKEN}/image/{image}")
        assert reply.status_code == 422
        assert reason in reply.text
    assert time.perf_counter() - start < 2


def test_ten_thousand_images_are_asked_about_without_a_wait(tmp_path: Path) -> None:
    """The next question and its image come within 200 ms. A busy machine may delay a few of them."""
    random = np.random.default_rng(0)
    truth = random.integers(0, 2, 10_000)
    (file,) = save_images(tmp_path / "images", 1, size=218)
    pool = pool_of(guesses(random, truth, 0.72, 0.7, 0.68), files=[file] * 10_000)
    waits, work = [], []
    keep_what_is_loaded()
    with Session.opened(pool, AnswersFile(tmp_path / "answers.csv")) as session:
        client = client_of(session)
        state = client.get(f"/{TOKEN}/next").json()
        for _ in range(60):
            label = int(truth[state["image"]])
            began, computed = time.perf_counter(), time.process_time()
            state = post(client, "answer", {"image": state["image"], "label": label}).json()
            assert client.get(f"/{TOKEN}/image/{state['image']}").status_code == 200
            waits.append(time.perf_counter() - began)
            work.append(time.process_time() - computed)
    gc.unfreeze()
    assert len(read_answers(session.file.path).given) == 60
    assert max(work) < 0.2
    assert np.median(waits) < 0.2


def test_only_this_machine_is_listened_to_and_at_once() -> None:
    listening = open_socket(0)
    try:
        host, port = listening.getsockname()
        assert host == "127.0.0.1"
        socket.create_connection((host, port), timeout=5).close()  # the address may be opened before the server runs
        with pytest.raises(ConfigError, match=f"Port {port} cannot be used"):
            open_socket(port)
    finally:
        listening.close()
