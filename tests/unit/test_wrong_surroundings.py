"""Caches, archives, names, variables and lists from elsewhere: what the fuzzer found in them, each a traceback once."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sqlite3
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from helpers.asking import guesses, pool_of, save_images
from sitar.analysis.ask.pool import _Kept
from sitar.data.concepts import is_concept
from sitar.errors import ConfigError, DataError, RunError
from sitar.files import read_npy
from sitar.images.bit_depth import BadImageError
from sitar.images.cache import cached_images
from sitar.images.files import Files, read_text
from sitar.images.parquet import find_shards
from sitar.interpreter import read_answer
from sitar.locks import owner_of
from sitar.models.hub import PATIENCE, _patience
from sitar.plugins import find_plugins
from sitar.training.processes import launch


@pytest.mark.parametrize("shape", ["(1000000000000,)", "(6,", "(-1,)", "('a',)"])
def test_an_array_whose_head_is_wrong_is_a_reason(tmp_path: Path, shape: str) -> None:
    head = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + b"123456")
    with pytest.raises(ValueError, match=r"x\.npy cannot be read"):
        read_npy(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("name", "content"),
    [("bad.json", b"[]"), ("bad.json", b"[" * 20_000), ("index.json", b"[" * 20_000), ("sums.npy", None)],
)  # fmt: skip
def test_a_cache_with_a_wrong_file_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes | None
) -> None:
    monkeypatch.setenv("SITAR_CACHE", str(tmp_path / "cache"))
    save_images(tmp_path / "i", 3, 8)
    files = Files([tmp_path / "i"])
    cached_images("made", files.names(), files, (8, 8), workers=1)
    (file,) = (tmp_path / "cache").glob(f"*/{name}")
    if content is None:
        buffer = io.BytesIO()
        np.save(buffer, np.zeros(2, "<u4"))
        content = buffer.getvalue()
        index = file.with_name("index.json")
        from sitar.images.cache import _checksum

        state = np.load(file.with_name("state.npy"))
        index.write_text(json.dumps({"checksum": _checksum(np.zeros(2, "<u4"), state)}))  # as a stranger would
    file.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        cached_images("made", files.names(), files, (8, 8), workers=1)


def _zip(names: list[str]) -> bytearray:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, "text")
    return bytearray(buffer.getvalue())


@pytest.mark.parametrize(("at", "value"), [(8, 1), (10, 99)], ids=["encrypted", "packed in a strange way"])
def test_a_zip_file_of_a_strange_kind_is_a_reason(tmp_path: Path, at: int, value: int) -> None:
    for name in ("list.txt", "a.png"):
        content = _zip([name])
        content[content.find(b"PK\x01\x02") + at] = value
        content[content.find(b"PK\x03\x04") + at - 2] = value
        (tmp_path / "list.zip").write_bytes(content)
        if name == "list.txt":
            with pytest.raises(DataError, match="damaged"):
                read_text(tmp_path, name)
        else:
            with pytest.raises(BadImageError, match="zip archive is damaged"):
                Files([], [tmp_path / "list.zip"]).read(name)


def test_a_member_of_a_zip_file_without_a_name_is_left_out(tmp_path: Path) -> None:
    content = _zip(["x", "a.png"])
    at = content.find(b"PK\x01\x02")
    content[at + 46] = 0  # the list calls it by a zero, before which a name ends
    (tmp_path / "x.zip").write_bytes(content)
    assert Files([], [tmp_path / "x.zip"]).names() == ["a.png"]


@pytest.mark.parametrize("total", ["99999999999", "999999999", "9" * 200])
def test_a_name_that_promises_many_shards_takes_no_memory(tmp_path: Path, total: str) -> None:
    (tmp_path / f"x-00000-of-{total}.parquet").touch()
    if len(total) > 9:  # no number of a shard
        assert len(find_shards(tmp_path)) == 1
    else:
        with pytest.raises(DataError, match="999,999,998 of the 999,999,999"):
            find_shards(tmp_path)


@pytest.mark.parametrize("column", [["a", "b"], [[1], [2]], [1, 2]])
def test_a_shard_without_bytes_or_rows_is_a_reason(tmp_path: Path, column: list[Any]) -> None:
    file = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"image": column}), file)
    files = Files([], shards={"x.parquet": file})
    with pytest.raises(BadImageError, match="not the bytes of image files"):
        files.read("x.parquet/0000000")
    with pytest.raises(BadImageError, match="Parquet file is damaged"):
        files.read("x.parquet/0000009")


@pytest.mark.parametrize(
    "content",
    ['{"process": 1e400, "host": "a"}', '{"process": 99999999999999999999, "host": ""}', "[" * 20_000,
     '{"process": 7, "host": "\\u001b[31m"}', '{"process": -1, "host": "a"}'],
)  # fmt: skip
def test_a_lock_file_that_makes_no_sense_names_nobody(tmp_path: Path, content: str) -> None:
    import socket

    (tmp_path / "lock").write_text(content.replace('"host": ""', f'"host": "{socket.gethostname()}"'))
    assert owner_of(tmp_path / "lock", patience=0) == "Another process"


@pytest.mark.parametrize("said", ["-1", "inf", "nan", "1e300"])
def test_a_time_that_nobody_can_wait_counts_as_not_said(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", said)
    assert _patience() == PATIENCE


@pytest.mark.parametrize(("rank", "said"), [("2", "number 2 of 2"), ("9" * 5000, "is no number")])
def test_a_process_beyond_the_last_is_refused(monkeypatch: pytest.MonkeyPatch, rank: str, said: str) -> None:
    given = {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=said):
        launch()


@pytest.mark.parametrize("content", [b"[sitar.made]\nno equals sign\n", b"[sitar.made]\nx = \xff\n"])
def test_a_damaged_list_of_entry_points_hides_no_other_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    for name, entries in (("bad", content), ("good", b"[sitar.made]\nmine = os:PathLike\n")):
        place = tmp_path / f"{name}-1.0.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (place / "entry_points.txt").write_bytes(entries)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert [plugin.name for plugin in find_plugins("sitar.made")] == ["mine"]
    assert "list of entry points is damaged" in caplog.text


def test_trials_that_were_edited_are_named(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason='needs Optuna: pip install "sitar[optuna]"')
    from sitar.sweeps.axes import parse_over
    from sitar.sweeps.choosing import Rule
    from sitar.sweeps.plan import Plan
    from sitar.sweeps.search import Search

    plan = Plan("color_mnist/sitar", (), tuple(parse_over(["method.alpha=0.01..10:log"])), (0,), tmp_path).typed()
    search = Search(plan, Rule("average"), tmp_path / "optuna.db", True)
    next(search.rounds(1, 1))
    with sqlite3.connect(tmp_path / "optuna.db") as base:
        base.execute("delete from trial_params")
    with pytest.raises(RunError, match=r"trials in .*optuna\.db.*Move the file"):
        Search(plan, Rule("average"), tmp_path / "optuna.db", True).trials()


@pytest.mark.parametrize(
    "change", [{"runs": "ab"}, {"names": []}, {"files": ["/etc/passwd"] * 10}, {"classes": ["cat"]}, None]
)
def test_a_pool_that_does_not_fit_or_leads_elsewhere_counts_as_missing(tmp_path: Path, change: Any) -> None:
    images = save_images(tmp_path / "i", 10)
    kept = _Kept(tmp_path / "answers.csv", tmp_path / "i")
    kept.write("key", pool_of(guesses(np.random.default_rng(0), np.arange(10) % 2, 0.9, 0.5), files=images))
    assert kept.read("key") is not None
    with np.load(kept.file) as file:
        arrays = dict(file)
    about = json.loads(arrays["about"].item())
    if change is not None and "files" in change:
        from sitar.analysis.ask.pool import _stamps

        change = {**change, "stamps": _stamps([Path("/etc/passwd")] * 10)}
    text = "[]" if change is None else json.dumps({**about, **change})
    np.savez(kept.file, **{**arrays, "about": np.array(text)})
    assert kept.read("key") is None


@pytest.mark.parametrize("change", ["none", "table"])
def test_a_pool_of_a_table_may_lie_elsewhere(tmp_path: Path, change: str) -> None:
    images, table = save_images(tmp_path / "elsewhere", 10), tmp_path / "here" / "new.csv"
    table.parent.mkdir()
    table.write_text(
        "\n".join(["path", *map(str, images[:5]), *(f"../elsewhere/{one.name}" for one in images[5:])]) + "\n"
    )
    kept = _Kept(tmp_path / "here" / "answers.csv", table)
    kept.write("key", pool_of(guesses(np.random.default_rng(0), np.arange(10) % 2, 0.9, 0.5), files=images))
    if change == "table":
        table.write_text(table.read_text().replace(images[0].name, "other.png"))
    assert (kept.read("key") is None) == (change == "table")


@pytest.mark.parametrize("name", ["é" * 300, "~nosuchuser/x"])
def test_what_no_file_can_be_called_is_no_concept(name: str) -> None:
    assert not is_concept(name)


def test_a_column_with_fewer_values_than_rows_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sitar.data.tables import ParquetTable

    file = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"a": ["x", "y", "z"]}), file)
    table = ParquetTable(file, "The table")
    monkeypatch.setattr(ParquetTable, "__len__", lambda self: 4)  # as a damaged head says
    for read in (table.words, table.numbers):
        with pytest.raises(DataError, match="'a'"):
            read("a")


def test_a_list_of_gpus_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from sitar.sweeps.engines.local import visible_gpus

    def count() -> int:
        return len([int(one) for one in os.environ["CUDA_VISIBLE_DEVICES"].split(",")])

    monkeypatch.setattr(torch.cuda, "device_count", count)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-")
    with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES is '-', which is no list of GPUs"):
        visible_gpus("auto")


def test_half_a_request_is_no_answer() -> None:
    from starlette.requests import Request

    from sitar.analysis.ask.server import _Handlers

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    assert asyncio.run(_Handlers._body(Request(scope, receive))) is None


def test_a_line_of_another_program_is_no_answer() -> None:
    assert read_answer("sitar answers " + "[" * 20_000 + "\n") is None
