"""What surrounds a process: environment variables, entry points of installed packages, and requests to a local page."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
import threading
import time
from pathlib import Path
from random import Random
from unittest.mock import patch

import numpy as np

from fuzz.mutate import NUMBERS, WORDS, wrong_json
from fuzz.parsers.parser import Parser
from helpers.asking import guesses, pool_of, save_images
from sitar.analysis.answers import AnswersFile, read_answers
from sitar.analysis.ask.server import make_server, open_socket
from sitar.analysis.ask.session import Session
from sitar.errors import ConfigError, DataError
from sitar.images.cache import cache_root
from sitar.interpreter import module_environment, read_answer
from sitar.models.hub import _patience
from sitar.plugins import find_plugins
from sitar.registry import Registry
from sitar.sweeps.engines.local import default_threads, visible_gpus
from sitar.threads import users_number
from sitar.training.processes import launch

VARIABLES = {
    "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "HF_HUB_ETAG_TIMEOUT": "10", "SITAR_CACHE": "/tmp/x",
    "CUDA_VISIBLE_DEVICES": "0,1", "OMP_NUM_THREADS": "2", "PYTHONPATH": "src:",
}  # fmt: skip


def variables(folder: Path) -> Parser:
    """Environment variables that are read."""

    def read(content: bytes) -> None:
        try:
            given = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ConfigError("no variables") from error
        clean = {
            name: str(value).replace("\0", "").encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
            for name, value in (given if isinstance(given, dict) else {}).items()
            if name in VARIABLES
        }
        with patch.dict(os.environ, clean):
            cache_root(), module_environment(), default_threads(2), users_number(), visible_gpus("auto")
            seconds = _patience()
            assert 0 <= seconds <= threading.TIMEOUT_MAX, "no time that one can wait"
            launched = launch()
            assert launched is None or launched.rank < launched.count, "a number beyond the last process"

    def wrong(random: Random, content: bytes) -> bytes:
        given = json.loads(content)
        for _ in range(random.choice((1, 1, 2, 3))):
            words = (*WORDS, *NUMBERS, "nan", "inf", "-1", "1e400", "9" * 5000, "2", "\u0663", "0,0", ",", "a,b")
            given[random.choice(sorted(VARIABLES))] = str(random.choice(words)).encode("utf-8", "replace").decode()
        return json.dumps(given).encode()

    return Parser("variables", [json.dumps(VARIABLES).encode(), b"{}"], read, wrong)


def entry_points(folder: Path) -> Parser:
    """The list of entry points of an installed package."""
    place = folder / "fuzzed-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: fuzzed\nVersion: 1.0\n")
    (folder / "fuzzed.py").write_text("class M:\n    Config = dict\nnumber = 3\n")
    sys.path.insert(0, str(folder))
    logging.getLogger("sitar").addHandler(logging.NullHandler())

    def read(content: bytes) -> None:
        (place / "entry_points.txt").write_bytes(content)
        os.utime(folder, ns=(time.time_ns(), time.time_ns()))  # a package that is listed anew
        registry = Registry("method", "sitar.methods", "sitar.fuzzed", "sitar.methods.base:Method")
        for name in registry.names():
            with contextlib.suppress(ConfigError):
                registry.get(name)
        registry.available()
        _ = [str(plugin) for plugin in find_plugins("sitar.fuzzed")]

    values = ("fuzzed:M", "fuzzed:number", "fuzzed:none", "fuzzed", ":", "fuzzed.x:y", "fuzzed:M.Config.x", "nosuch:A")

    def wrong(random: Random, content: bytes) -> bytes:
        lines = content.decode().splitlines()
        for _ in range(random.randrange(1, 5)):
            word = random.choice(WORDS).encode("utf-8", "replace").decode()
            name = random.choice(("mine", "erm", "a b", word))
            new = random.choice(
                (f"{name} = {random.choice(values)}", f"{name}={word}", word, f"[{word}]", "[sitar.fuzzed]")
            )
            lines.insert(random.randrange(len(lines) + 1), new)
        return "\n".join(lines).encode()

    return Parser("entry points", [b"[sitar.fuzzed]\nmine = fuzzed:M\n"], read, wrong)


def answer_lines(folder: Path) -> Parser:
    """A line of a process that decodes or trains for this one, and of whatever else prints there."""

    def read(content: bytes) -> None:
        read_answer(content.decode("utf-8", "backslashreplace"))

    return Parser("answer lines", [b'sitar answers {"done": [1, 2]}\n', b"a stray line\n"], read, _wrong_line)


def _wrong_line(random: Random, content: bytes) -> bytes:
    head, _, body = content.partition(b"answers ")
    if not body:
        return random.choice(WORDS).encode("utf-8", "replace")
    return head + b"answers " + wrong_json(random, body)


class _Errors(logging.Handler):
    """Keeps what a server says when a request has ended badly."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


TOKEN = "t" * 32


def requests(folder: Path) -> Parser:
    """A request to the page of `sitar ask`, as bytes on its socket. PORT stands for the port."""
    pool = pool_of(guesses(np.random.default_rng(1), np.arange(30) % 2, 0.9, 0.5), files=save_images(folder / "i", 30))
    session = Session.opened(pool, AnswersFile(folder / "answers.csv")).__enter__()
    listening = open_socket(0)
    port = listening.getsockname()[1]
    server = make_server(session, TOKEN, port)
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    errors = _Errors()
    logging.getLogger("uvicorn.error").addHandler(errors)

    def read(content: bytes) -> None:
        errors.said.clear()
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection, contextlib.suppress(OSError):
            connection.sendall(content.replace(b"PORT", str(port).encode()))
            connection.shutdown(socket.SHUT_WR)
            reply = b"".join(iter(lambda: connection.recv(65536), b""))
        status = reply.split(b" ", 2)[1:2]
        if errors.said or (status and status[0].startswith(b"5") and status[0] != b"507"):
            raise AssertionError(f"a server error: {(errors.said or [reply[:80]])[0]!r}")
        if status and b"content-security-policy" not in reply.lower() and status[0] not in (b"400", b"431"):
            raise AssertionError(f"a reply without its policy: {reply[:200]!r}")
        read_answers(session.file.path)
        if status != [b"200"]:
            raise DataError("refused")

    head = b"HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nConnection: close\r\n"
    secret = b"X-Sitar-Token: " + TOKEN.encode() + b"\r\nContent-Type: application/json\r\n"
    base = b"/" + TOKEN.encode() + b"/"
    body = b'{"image": 3, "label": 0}'
    post = secret + b"Content-Length: %d\r\n\r\n" % len(body) + body
    seeds = [
        *(b"GET " + base + path + b" " + head + b"\r\n" for path in (b"", b"next", b"image/3", b"ask.js")),
        b"POST " + base + b"answer " + head + post,
        b"POST " + base + b"undo " + head + secret + b"Content-Length: 0\r\n\r\n",
    ]

    def wrong(random: Random, content: bytes) -> bytes:
        kind = random.randrange(4)
        if kind == 0:
            sent = wrong_json(random, body)
            length = len(sent) if random.random() < 0.8 else random.choice((0, 1, 10**6))
            return b"POST " + base + b"answer " + head + secret + b"Content-Length: %d\r\n\r\n" % length + sent
        word = random.choice((*WORDS, "..", "%2e%2e%2f", "image/99999999999", "image/-1", "image/0x1", "//", "?a=b"))
        piece = word.encode("utf-8", "replace")[:3000]
        if kind == 1:
            return b"GET " + base + piece + b" " + head + b"\r\n"
        if kind == 2:
            names = (
                b"Host",
                b"Origin",
                b"Sec-Fetch-Site",
                b"X-Sitar-Token",
                b"Content-Type",
                b"Transfer-Encoding",
                b"Cookie",
            )
            extra = random.choice(names) + b": " + piece + b"\r\n"
            return content.replace(b"Connection: close\r\n", b"Connection: close\r\n" + extra, 1)
        method = random.choice((b"HEAD", b"PUT", b"OPTIONS", b"DELETE", b"TRACE", b"CONNECT", b"get", piece))
        return method + content[content.find(b" ") :]

    return Parser("requests", seeds, read, wrong)
