"""Fixtures for every kind of test."""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy and torch read it, and for the processes that tests start

import torch

from sitar import plugins
from sitar.data import Data, EvalSplit, TrainSplit
from sitar.data.benchmarks import color_mnist, dominoes, mnist_files, sites
from sitar.training import environment

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session", autouse=True)
def listen_to_ctrl_c() -> None:
    """A shell starts jobs in the background with Ctrl-C ignored, and the processes that tests interrupt inherit it."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests leave nothing in the user's cache, and take nothing from it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SITAR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for one test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("SITAR_CACHE", str(folder))
    return folder


@pytest.fixture(autouse=True)
def no_file_of_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep hands the files that were imported to its runs, so a file of one test must not reach another one."""
    monkeypatch.setattr(plugins, "_files", {})


@pytest.fixture(scope="session", autouse=True)
def asked_once() -> Iterator[None]:
    """MNIST is unpacked, and git and the installed packages are asked for versions, once and not in every run."""
    embedded = functools.cache(mnist_files.load_mnist)

    def load_mnist(root: str | None = None) -> mnist_files.MNIST:
        return embedded() if root is None else mnist_files.load_mnist(root)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(color_mnist, "load_mnist", load_mnist)
        patch.setattr(sites, "load_mnist", load_mnist)
        patch.setattr(dominoes, "load_mnist", load_mnist)
        patch.setattr(environment, "commit", functools.cache(environment.commit))
        patch.setattr(environment, "versions", functools.cache(environment.versions))
        yield


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder with real data; tests that ask for it carry the `data` marker."""
    folder = Path(os.environ.get("SITAR_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data in {str(folder)!r}: point SITAR_TEST_DATA at it")
    return folder


@pytest.fixture
def tiny_data() -> Data:
    """Sixteen 3x8x8 images of two classes; val has all four groups."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (16, 3, 8, 8), dtype=torch.uint8, generator=generator)
    y = torch.arange(16) % 2
    names = ("label=0,color=0", "label=0,color=1", "label=1,color=0", "label=1,color=1")
    val = EvalSplit(x[:8], y[:8], 2 * y[:8] + (torch.arange(8) // 2) % 2, names, (0.45, 0.05, 0.05, 0.45))
    return Data(TrainSplit(x, y), {"val": val}, ("even", "odd"), "0" * 64)
