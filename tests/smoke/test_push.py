"""`sitar push` against a hub that is a local HTTP server: what is sent is what was shown, and nothing before --yes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from helpers.cli import sitar, sitar_error
from helpers.runs import TINY_MODEL, run, settings

LARGE = (".safetensors", ".onnx")


@dataclass
class Hub:
    """What the server was asked, and the files that a commit has brought."""

    address: str = ""
    requests: list[str] = field(default_factory=list)
    bodies: dict[str, Any] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)  # large files, by their SHA-256
    files: dict[str, bytes] = field(default_factory=dict)
    tokens: set[str | None] = field(default_factory=set)


@pytest.fixture
def hub() -> Iterator[Hub]:
    """The parts of the hub's interface that an upload uses: plain files in the commit, large ones by Git LFS."""
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self._body()
            state.requests.append(self.path)
            if "/storage/" not in self.path:
                state.tokens.add(self.headers.get("Authorization"))
            if self.path == "/api/repos/create":
                state.bodies["create"] = json.loads(body)
                self._answer({"url": f"{state.address}/me/digits"})
            elif self.path == "/api/validate-yaml":
                state.bodies["yaml"] = json.loads(body)
                self._answer({"errors": [], "warnings": []})
            elif "/preupload/" in self.path:
                named = [file["path"] for file in json.loads(body)["files"]]
                self._answer({"files": [self._mode(name) for name in named]})
            elif self.path.endswith("/info/lfs/objects/batch"):
                self._answer({"transfer": "basic", "objects": [self._place(o) for o in json.loads(body)["objects"]]})
            elif "/commit/" in self.path:
                for line in body.splitlines():
                    self._commit(json.loads(line))
                url = f"{state.address}/me/digits/commit/abc"
                self._answer({"commitUrl": url, "commitOid": "abc", "pullRequestUrl": None, "success": True})
            else:
                self._answer({"error": "not known"}, 404)

        def do_PUT(self) -> None:
            state.requests.append("PUT")
            content = self._body()
            state.stored[hashlib.sha256(content).hexdigest()] = content
            self._answer({})

        def _mode(self, name: str) -> dict[str, Any]:
            return {"path": name, "uploadMode": "lfs" if name.endswith(LARGE) else "regular", "shouldIgnore": False}

        def _place(self, one: dict[str, Any]) -> dict[str, Any]:
            return {**one, "actions": {"upload": {"href": f"{state.address}/storage/{one['oid']}", "header": {}}}}

        def _commit(self, line: dict[str, Any]) -> None:
            value = line["value"]
            if line["key"] == "file":
                state.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                state.files[value["path"]] = state.stored[value["oid"]]

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _answer(self, value: Any, status: int = 200) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield state
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("push")
    train = {"epochs": 1, "batch_size": 64}
    made = run(settings("erm", model=TINY_MODEL, train=train), home / "run")
    made.write_export("onnx", b"an exported model")
    return made.path


def push(hub: Hub, *words: object, token: str | None = "hf_secret", expect: int = 0) -> str:
    """`sitar push` in a process of its own, because the client reads the address of the hub when it is imported."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.address, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    environment |= {"NO_PROXY": "127.0.0.1"} | ({} if token is None else {"HF_TOKEN": token})
    command = [sys.executable, "-m", "sitar", "push", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == expect, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def is_private(created: dict[str, Any]) -> bool:
    """Clients before 1.0 say it by a flag, and later ones by a word."""
    return created["private"] if "private" in created else created["visibility"] == "private"


def test_what_is_uploaded_is_what_was_shown(hub: Hub, folder: Path) -> None:
    shown = push(hub, folder, "me/digits")
    assert hub.requests == [], "a dry run sends nothing"
    assert "# digits" in shown
    assert "Nothing was sent" in shown
    said = push(hub, folder, "me/digits", "--yes")
    assert f"Uploaded: {hub.address}/me/digits" in said
    names = ["README.md", "config.yaml", "result.json", "environment.json", "checkpoint/model.safetensors"]
    assert sorted(hub.files) == sorted([*names, "done", "export/model.onnx", "SHA256SUMS"])
    for name, content in hub.files.items():
        assert name in shown
        assert f"{len(content):,}" in shown
        assert str(folder.parent).encode() not in content
    assert hub.files["checkpoint/model.safetensors"] == (folder / "checkpoint/model.safetensors").read_bytes()
    assert hub.files["export/model.onnx"] == b"an exported model"
    assert hub.files["README.md"].decode() in shown
    assert hub.tokens == {"Bearer hf_secret"}
    assert hub.bodies["create"]["name"] == "digits"
    assert is_private(hub.bodies["create"])
    assert hub.bodies["yaml"]["content"] == hub.files["README.md"].decode()


def test_a_card_of_your_own_is_sent_and_the_repository_may_be_public(hub: Hub, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "card.md").write_text("---\nlicense: mit\n---\n\n# Mine\n")
    push(hub, folder, "me/digits", "--yes", "--public", "--only-exported", "--card", tmp_path / "card.md")
    assert sorted(hub.files) == ["README.md", "SHA256SUMS", "export/model.onnx"]
    assert hub.files["README.md"] == (tmp_path / "card.md").read_bytes()
    assert not is_private(hub.bodies["create"])


def test_a_hub_that_does_not_answer_is_one_message(hub: Hub, folder: Path) -> None:
    nowhere = Hub(address="http://127.0.0.1:9")
    said = push(nowhere, folder, "me/digits", "--yes", expect=2)
    assert "Error: The upload to 'me/digits' failed" in said
    assert "hf auth login" in said


def test_bad_input_is_one_message(folder: Path, tmp_path: Path) -> None:
    assert "give OWNER/NAME" in sitar_error("push", folder, "digits")
    assert "There is no run folder" in sitar_error("push", tmp_path / "nowhere", "me/digits")
    assert "cannot be read" in sitar_error("push", folder, "me/digits", "--card", tmp_path / "no.md")
    (tmp_path / "bytes.md").write_bytes(b"\xff\xfe\xff")
    assert "cannot be read" in sitar_error("push", folder, "me/digits", "--card", tmp_path / "bytes.md")


def test_a_missing_package_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    sitar("push", folder, "me/digits")  # showing needs no package
    assert 'pip install "sitar[hub]"' in sitar_error("push", folder, "me/digits", "--yes")
