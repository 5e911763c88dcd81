"""Weights of the hub: against real sockets of this machine that refuse, hang or are overloaded."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import save_file

from helpers.made_data import image
from sitar.errors import ConfigError
from sitar.models import PretrainedEncoder, hub
from sitar.models.pretrained import check_weights

SHAPE = (3, 32, 32)
NAME = "resnet18.tv_in1k"


@contextmanager
def host(status: int) -> Iterator[str]:
    """A server that answers every request with a status."""

    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contextmanager
def silent() -> Iterator[str]:
    """A server that takes connections and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def refusing() -> str:
    """The address of a port where nobody listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_host_that_refuses_is_named_at_once() -> None:
    url = refusing()
    began = time.perf_counter()
    assert hub._problem(f"{url}/timm/a/resolve/main/b").startswith(f"{url} cannot be reached (")  # type: ignore[union-attr]
    assert time.perf_counter() - began < 1.5


def test_a_host_that_says_nothing_is_not_waited_for() -> None:
    with silent() as url:
        began = time.perf_counter()
        assert hub._problem(f"{url}/a") is not None
        assert time.perf_counter() - began < hub.PATIENCE + 1


def test_who_has_a_slow_network_can_wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "0.2")
    with silent() as url:
        began = time.perf_counter()
        assert hub._problem(f"{url}/a") is not None
        assert time.perf_counter() - began < 1
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "soon")
    assert hub._patience() == hub.PATIENCE


@pytest.mark.parametrize(("status", "is_fine"), [(200, True), (404, True), (401, True), (429, False), (503, False)])
def test_only_an_overloaded_host_is_a_problem(status: int, is_fine: bool) -> None:
    """What is missing or not allowed, timm says better and at once."""
    with host(status) as url:
        problem = hub._problem(f"{url}/a")
    assert (problem is None) == is_fine
    assert is_fine or f"status {status}" in str(problem)


def test_weights_that_were_downloaded_before_need_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = PretrainedEncoder("resnet18", SHAPE, "random").network
    tensors = {key: value.contiguous() for key, value in source.state_dict().items()}
    tensors |= {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    kept = tmp_path / "models--timm--resnet18.tv_in1k"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("0" * 40)
    (kept / "snapshots" / ("0" * 40)).mkdir(parents=True)
    save_file(tensors, kept / "snapshots" / ("0" * 40) / "model.safetensors")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "_problem", lambda url: "asked")
    check_weights(NAME, "hub")
    found = PretrainedEncoder(NAME, SHAPE, "hub").network
    assert torch.equal(found.state_dict()["conv1.weight"], tensors["conv1.weight"])
    with pytest.raises(ConfigError, match=r"cannot be had: asked.*timm/resnet34\.tv_in1k.*encoder_weights=FILE"):
        check_weights("resnet34.tv_in1k", "hub")


def test_a_file_that_is_not_there_is_refused_before_images_are_decoded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.safetensors' is not a file"):
        check_weights(NAME, str(tmp_path / "none.safetensors"))
    with pytest.raises(ConfigError, match="is no network of timm"):
        check_weights("resnet5", "random")
    check_weights(NAME, "random")


@pytest.mark.ci
@pytest.mark.parametrize("place", ["refusing", "silent"])
def test_the_command_says_so_in_one_message_before_it_reads_the_data(tmp_path: Path, place: str) -> None:
    """The images are damaged. This would be said if the data were read first. The hub's client logs every attempt."""
    for label in "ab":
        (tmp_path / "data" / label).mkdir(parents=True)
        for i in range(6):
            (tmp_path / "data" / label / f"{i}.png").write_bytes(image(i)[:50])
    with silent() as url:
        endpoint = url if place == "silent" else refusing()
        done = subprocess.run(
            [sys.executable, "-m", "sitar", "train", "folder_pretrained/erm", "--set", "data.root=data"],
            cwd=tmp_path,
            env={**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hub")},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "model.encoder_weights=FILE" in done.stderr
