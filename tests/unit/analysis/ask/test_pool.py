"""A pool is kept beside the answers: a restart loads no model, and what has changed is predicted anew."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

import sitar
from helpers.asking import SIZE, save_images, train
from helpers.made_data import image, npz_of_images
from sitar.analysis.ask import candidates
from sitar.analysis.ask.pool import names_of, read_pool, refuse_what_cannot_be_shown
from sitar.errors import ConfigError, RunError


def test_a_restart_loads_no_model(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, answers = [place / "a", place / "b"], tmp_path / "answers.csv"
    first = read_pool(runs, place / "new", answers, "cpu")
    loads = counted(monkeypatch)
    again = read_pool(runs, place / "new", answers, "cpu")
    assert loads == []
    np.testing.assert_array_equal(first.predictions, again.predictions)
    assert (again.names, again.files, again.labels, again.notes) == (
        first.names, first.files, first.labels, first.notes,
    )  # fmt: skip
    read_pool(runs[::-1], place / "new", answers, "cpu")
    assert len(loads) == 2, "other candidates predict anew"


@pytest.mark.parametrize(
    ("candidates", "names"),
    [
        (["runs/erm", "runs/told_col"], ["erm", "told_col"]),
        (["runs/folder/erm/seed0", "runs/folder/sitar/seed0"], ["erm/seed0", "sitar/seed0"]),
        (["runs/erm", "runs/erm/refit", "other"], ["runs/erm", "runs/erm/refit", "other"]),
        (["runs/erm", "/elsewhere/erm"], None),
        (["runs/erm"], ["runs/erm"]),
        (["runs/two", "runs/two"], ["runs/two, head 0", "runs/two, head 1"]),
        (["runs/two/", "runs/erm", "runs/two/"], ["two, head 0", "erm", "two, head 1"]),
    ],
)
def test_candidates_are_called_by_the_folders_that_were_typed(candidates: list[str], names: list[str] | None) -> None:
    named = names_of(candidates)
    assert len(set(named)) == len(candidates)
    assert names is None or named == names


def counted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The models that are loaded from now on."""
    loads: list[object] = []
    real: Callable[..., object] = candidates.load
    monkeypatch.setattr(candidates, "load", lambda *args: (loads.append(args), real(*args))[1])
    return loads


@pytest.mark.parametrize("change", ["another image", "a changed image", "a damaged cache"])
def test_what_has_changed_is_predicted_anew(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    images, answers = tmp_path / "images", tmp_path / "answers.csv"
    files = save_images(images, 6, SIZE)
    read_pool([place / "a"], images, answers, "cpu")
    loads = counted(monkeypatch)
    if change == "another image":
        Image.new("RGB", (SIZE, SIZE), "red").save(images / "more.png")
    elif change == "a changed image":
        Image.new("RGB", (SIZE, SIZE), "red").save(files[0])
    else:
        (tmp_path / ".answers.csv.predictions.npz").write_bytes(b"nothing")
    pool = read_pool([place / "a"], images, answers, "cpu")
    assert len(loads) == 1
    assert len(pool) == (7 if change == "another image" else 6)


def test_images_in_an_array_can_be_shown_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    config = npz_of_images(tmp_path / "data").model_dump()
    folder = train(tmp_path / "run", config)
    shape = sitar.load(folder, device="cpu").data.task.shape
    x = np.random.default_rng(5).integers(0, 256, (9, *shape), dtype=np.uint8)
    np.savez(tmp_path / "new.npz", x=x)
    for _ in range(2):
        pool = read_pool([folder.path], tmp_path / "new.npz", tmp_path / "answers.csv", "cpu")
        assert pool.names == [str(i) for i in range(9)]
        assert pool.files is None
        np.testing.assert_array_equal(pool.pictures, x)
    refuse_what_cannot_be_shown(pool)


def test_images_within_a_parquet_file_can_be_shown_and_are_predicted_anew_when_it_changes(tmp_path: Path) -> None:
    def shard(path: Path, numbers: range, **columns: list[str]) -> None:
        path.parent.mkdir(exist_ok=True)
        table = {"image": [{"bytes": image(i), "path": None} for i in numbers], **columns}
        pyarrow.parquet.write_table(pyarrow.table(table), path)

    shard(tmp_path / "data" / "a.parquet", range(60), label=["cat", "dog"] * 30)
    folder = train(tmp_path / "run", {"name": "table", "root": str(tmp_path / "data"), "image_size": 12})
    before = None
    for first in (100, 200):
        shard(tmp_path / "new" / "a.parquet", range(first, first + 9))
        for _ in range(2):
            pool = read_pool([folder.path], tmp_path / "new", tmp_path / "answers.csv", "cpu")
            assert pool.names == [f"a.parquet/{i:07}" for i in range(9)]
            assert pool.files is None
            assert pool.pictures is not None
        assert before is None or not np.array_equal(before, pool.pictures)
        before = np.array(pool.pictures)
    refuse_what_cannot_be_shown(pool)


def test_features_cannot_be_shown(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=random.normal(size=(60, 4)).astype(np.float32), y=np.arange(60) % 2)
    folder = train(tmp_path / "run", {"name": "npz", "file": str(tmp_path / "data.npz")})
    np.savez(tmp_path / "new.npz", x=random.normal(size=(9, 4)).astype(np.float32))
    pool = read_pool([folder.path], tmp_path / "new.npz", None, "cpu")
    assert pool.predictions.shape == (1, 9)
    with pytest.raises(RunError, match="cannot look at them"):
        refuse_what_cannot_be_shown(pool)


def test_a_candidate_that_is_given_twice_is_refused(place: Path) -> None:
    with pytest.raises(ConfigError, match="given twice"):
        read_pool([place / "a", place / "b", place / "b" / ".." / "a"], place / "new", None, "cpu")


def test_a_folder_that_is_no_finished_run_is_refused(place: Path) -> None:
    with pytest.raises(RunError, match=r"config\.yaml"):
        read_pool([place / "a", place / "new"], place / "new", None, "cpu")


def test_a_restart_needs_no_torch(place: Path, tmp_path: Path) -> None:
    """Importing it takes seconds, and a person waits."""
    read_pool([place / "a"], place / "new", tmp_path / "answers.csv", "cpu")
    code = "import sys\nfrom pathlib import Path\nimport sitar.analysis.ask.server\n"
    code += "from sitar.analysis.ask.pool import read_pool\n"
    code += f"read_pool([Path({str(place / 'a')!r})], Path({str(place / 'new')!r}), Path('answers.csv'))\n"
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
