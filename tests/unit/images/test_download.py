"""Downloads against a real host on this machine that behaves badly in every way we know."""

from __future__ import annotations

import hashlib
import io
import os
import re
import socket
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers.made_data import N, birds_in_folder
from sitar.cli.data import app
from sitar.data.benchmarks.bar import BAR
from sitar.data.benchmarks.celeba import CelebA
from sitar.data.benchmarks.waterbirds import Waterbirds, WaterbirdsConfig
from sitar.errors import DataError
from sitar.images.download import Download, fetch, unpack
from sitar.locks import locked

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Host:
    """Serves `files`; `cut` ends the first answers after so many bytes, `stall` stops sending instead."""

    files: dict[str, bytes]
    ranges: bool = True
    length: bool = True
    cut: list[int] = field(default_factory=list)
    stall: bool = False
    asked: list[str] = field(default_factory=list)
    url: str = ""
    done: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range")
        self.asked.append(f"{request.path} {wanted or ''}".strip())
        content = self.files.get(request.path)
        if content is None:
            request.send_error(404)
            return
        start = int(wanted[6:-1]) if wanted and self.ranges else 0
        if start >= len(content):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(content)}")
            request.end_headers()
            return
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if self.length:
            request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        rest = content[start:]
        if self.cut:
            request.wfile.write(rest[: self.cut.pop(0)])
            request.wfile.flush()
            if self.stall:
                self.done.wait(20)
            return
        request.wfile.write(rest)


@pytest.fixture
def host() -> Iterator[Host]:
    state = Host({"/a.tar.gz": CONTENT})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_port}"
        yield state
        state.done.set()
        server.shutdown()
        thread.join()


def dead() -> str:
    """An address at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def wanted(*urls: str, sha256: str | None = SHA) -> Download:
    return Download("a.tar.gz", urls, sha256)


def test_a_file_is_downloaded_once_and_watched(host: Host, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    path = fetch(wanted(f"{host.url}/a.tar.gz"), tmp_path, lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar.gz"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    fetch(wanted(f"{host.url}/a.tar.gz"), tmp_path)
    assert len(host.asked) == 1


def test_half_a_download_is_continued(host: Host, tmp_path: Path) -> None:
    download = wanted(f"{host.url}/a.tar.gz")
    host.cut = [100_000, 50_000]
    for done in (100_000, 150_000):
        with pytest.raises(DataError, match=f"ended after {done:,} of 300,000 bytes.*{done:,} bytes are kept"):
            fetch(download, tmp_path)
        assert (tmp_path / "a.tar.gz.part").stat().st_size == done
        assert not (tmp_path / "a.tar.gz").exists()
    assert fetch(download, tmp_path).read_bytes() == CONTENT
    assert host.asked == ["/a.tar.gz", "/a.tar.gz bytes=100000-", "/a.tar.gz bytes=150000-"]


def test_a_host_that_cannot_continue_starts_anew(host: Host, tmp_path: Path) -> None:
    host.ranges = False
    (tmp_path / "a.tar.gz.part").write_bytes(CONTENT[:70_000])
    assert fetch(wanted(f"{host.url}/a.tar.gz"), tmp_path).read_bytes() == CONTENT


def test_a_finished_part_is_only_verified(host: Host, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz.part").write_bytes(CONTENT)
    assert fetch(wanted(f"{host.url}/a.tar.gz"), tmp_path).read_bytes() == CONTENT
    (tmp_path / "a.tar.gz").unlink()
    (tmp_path / "a.tar.gz.part").write_bytes(CONTENT + b"of another file")
    assert fetch(wanted(f"{host.url}/a.tar.gz"), tmp_path).read_bytes() == CONTENT


def test_a_host_that_does_not_say_the_length(host: Host, tmp_path: Path) -> None:
    host.length = False
    assert fetch(wanted(f"{host.url}/a.tar.gz"), tmp_path).read_bytes() == CONTENT
    (tmp_path / "a.tar.gz").unlink()
    host.cut = [1000]
    with pytest.raises(DataError, match=r"its sha256 is .*, expected .*, and it was removed"):
        fetch(wanted(f"{host.url}/a.tar.gz"), tmp_path)


def test_mirrors_are_tried_in_order(host: Host, tmp_path: Path) -> None:
    nobody = dead()
    urls = (f"{nobody}/a.tar.gz", f"{host.url}/gone.tar.gz", f"{host.url}/a.tar.gz", f"{host.url}/never.tar.gz")
    assert fetch(wanted(*urls), tmp_path).read_bytes() == CONTENT
    assert host.asked == ["/gone.tar.gz", "/a.tar.gz"]


def test_dead_hosts_are_named_at_once(host: Host, tmp_path: Path) -> None:
    nobody = dead()
    started = time.monotonic()
    with pytest.raises(DataError) as caught:
        fetch(wanted(f"{nobody}/a.tar.gz", f"{host.url}/gone.tar.gz", "http://no-such-host.invalid/a"), tmp_path)
    assert time.monotonic() - started < 10
    message = str(caught.value)
    assert re.search(rf"{nobody}/a.tar.gz: .*refused", message)
    assert f"{host.url}/gone.tar.gz: the host answers 404 Not Found" in message
    assert "no-such-host.invalid" in message
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_stalls_is_left(host: Host, tmp_path: Path) -> None:
    host.cut, host.stall = [100_000], True
    started = time.monotonic()
    with pytest.raises(DataError, match=r"timed out.*100,000 bytes are kept"):
        fetch(wanted(f"{host.url}/a.tar.gz"), tmp_path, timeout=0.3)
    assert time.monotonic() - started < 5
    assert fetch(wanted(f"{host.url}/a.tar.gz"), tmp_path, timeout=5).read_bytes() == CONTENT


def test_a_wrong_checksum_is_removed_and_the_next_mirror_tried(host: Host, tmp_path: Path) -> None:
    host.files["/bad.tar.gz"] = CONTENT[:-1] + b"?"
    with pytest.raises(DataError, match=f"its sha256 is .*, expected {SHA[:12]}…, and it was removed"):
        fetch(wanted(f"{host.url}/bad.tar.gz"), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert fetch(wanted(f"{host.url}/bad.tar.gz", f"{host.url}/a.tar.gz"), tmp_path).read_bytes() == CONTENT


def test_two_downloads_of_one_file_do_not_mix(host: Host, tmp_path: Path) -> None:
    lock = locked(tmp_path / "a.tar.gz.lock", wait=False)
    with lock, pytest.raises(DataError, match=rf"Process {os.getpid()} is downloading"):
        fetch(wanted(f"{host.url}/a.tar.gz"), tmp_path)
    assert host.asked == []


def packed(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, 0o4777
    return info


def test_archives_are_unpacked_whole(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar.gz", (member("birds/x/1.txt"), b"one"), (member("birds/2.txt"), b"two"))
    unpack(archive, tmp_path)
    assert (tmp_path / "birds" / "x" / "1.txt").read_bytes() == b"one"
    assert (tmp_path / "birds" / "2.txt").read_bytes() == b"two"
    assert (tmp_path / "birds" / "2.txt").stat().st_mode & 0o7000 == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "birds"]
    with pytest.raises(DataError, match="birds' is in the way"):
        unpack(archive, tmp_path)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (member("../escaped.txt"), "leads out of the folder"),
        (member("a/../../escaped.txt"), "leads out of the folder"),
        (member("ABSOLUTE/escaped.txt"), "leads out of the folder"),
        (member("inside/link", tarfile.SYMTYPE, "/etc"), "link or a device"),
        (member("inside/hard", tarfile.LNKTYPE, "../../escaped.txt"), "link or a device"),
        (member("inside/pipe", tarfile.FIFOTYPE), "link or a device"),
    ],
)
def test_archives_that_reach_outside_are_refused(bad: tarfile.TarInfo, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    bad.name = bad.name.replace("ABSOLUTE", str(tmp_path))
    archive = packed(tmp_path / "a.tar.gz", (member("good.txt"), b"fine"), (bad, b""))
    with pytest.raises(DataError, match=f"not safe to unpack.*{message}"):
        unpack(archive, folder)
    assert list(folder.iterdir()) == []
    assert [path.name for path in tmp_path.iterdir() if "escaped" in path.name] == []


@pytest.mark.parametrize("damage", ["cut", "flipped", "not gzip"])
def test_a_damaged_archive_is_removed_and_named(damage: str, tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar.gz", (member("birds/1.bin"), CONTENT), (member("birds/2.bin"), CONTENT))
    content = bytearray(archive.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        content[150_000] ^= 255
    else:
        content = bytearray(b"<html>Please log in</html>")
    archive.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"a\.tar\.gz' is damaged .* and was removed"):
        unpack(archive, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def birds(host: Host, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host with a small archive laid out as Waterbirds' own."""
    birds_in_folder(tmp_path / "source")
    with tarfile.open(tmp_path / "birds.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "source", "waterbird_complete95_forest2water2")
    content = (tmp_path / "birds.tar.gz").read_bytes()
    host.files["/birds.tar.gz"] = content
    declared = Download("birds.tar.gz", (f"{host.url}/birds.tar.gz",), hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(Waterbirds, "downloads", (declared,))
    return host


def test_prepare_downloads_where_files_are_missing(birds: Host, tmp_path: Path) -> None:
    root = tmp_path / "new" / "waterbirds"
    call = ["prepare", "waterbirds", "--root", str(root), "--set", "image_size=8"]
    birds.cut = [1000]
    done = CliRunner().invoke(app, call)
    assert isinstance(done.exception, DataError)
    assert "1,000 bytes are kept" in str(done.exception)
    assert "by hand: waterbird_complete95_forest2water2.tar.gz from https://github.com" in str(done.exception)
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 0, done.exception
    assert f"{N} images ready" in done.stdout
    assert [path.name for path in root.iterdir()] == ["waterbird_complete95_forest2water2"]
    assert birds.asked == ["/birds.tar.gz", "/birds.tar.gz bytes=1000-"]
    assert CliRunner().invoke(app, call).exit_code == 0
    assert len(birds.asked) == 2


def test_metadata_without_an_image_is_not_enough(birds: Host, tmp_path: Path) -> None:
    root = tmp_path / "waterbirds"
    root.mkdir()
    (root / "metadata.csv").write_bytes((tmp_path / "source" / "metadata.csv").read_bytes())
    done = CliRunner().invoke(app, ["prepare", "waterbirds", "--root", str(root), "--set", "image_size=8"])
    assert done.exit_code == 0, done.exception
    assert len(birds.asked) == 1


def test_only_prepare_downloads(birds: Host, tmp_path: Path) -> None:
    root = tmp_path / "waterbirds"
    root.mkdir()
    done = CliRunner().invoke(app, ["check", "waterbirds", "--root", str(root)])
    assert "sitar data prepare waterbirds" in str(done.exception)
    with pytest.raises(DataError, match="sitar data prepare waterbirds"):
        Waterbirds.load(WaterbirdsConfig(root=str(root)))
    done = CliRunner().invoke(app, ["prepare", "waterbirds"])
    assert "needs data.root" in str(done.exception)
    assert birds.asked == []


def test_what_no_host_gives_is_brought_by_hand(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["prepare", "celeba", "--root", str(tmp_path)])
    assert isinstance(done.exception, DataError)
    assert "by hand: img_align_celeba.zip" in str(done.exception)


def test_what_is_declared_can_be_fetched() -> None:
    """Every archive has an https address and a name that unpacks; only BAR's, made on demand, has no checksum."""
    for dataset in (Waterbirds, BAR):
        for download in dataset.downloads:
            assert download.file.endswith(".tar.gz")
            assert all(url.startswith("https://") and url.endswith(".tar.gz") for url in download.urls)
            assert (download.sha256 is None) == (dataset is BAR)
    assert CelebA.downloads == ()
