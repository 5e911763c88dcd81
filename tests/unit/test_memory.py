"""What needs more memory than there is, is refused before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.runs import run, settings
from sitar import memory
from sitar.errors import ConfigError
from sitar.memory import check_memory, free_memory


def test_free_memory_is_that_of_the_system_and_of_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MEMINFO", "LIMIT", "USED"):
        monkeypatch.setattr(memory, name, tmp_path / name)
    assert free_memory() is None
    (tmp_path / "MEMINFO").write_text("MemTotal:  900 kB\nMemAvailable:     700 kB\n")
    assert free_memory() == 700 * 1024
    (tmp_path / "LIMIT").write_text("max\n")
    (tmp_path / "USED").write_text("1000\n")
    assert free_memory() == 700 * 1024
    (tmp_path / "LIMIT").write_text("5000\n")
    assert free_memory() == 4000


def test_the_message_says_how_much_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 10**9)
    check_memory(10**9, "All is read", "Read less.")
    with pytest.raises(
        ConfigError, match=r"All is read, which takes about 2\.5 GB of memory, and 1\.0 GB .* Read less\."
    ):
        check_memory(25 * 10**8, "All is read", "Read less.")
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    check_memory(10**18, "All is read", "Read less.")


@pytest.mark.parametrize(
    ("method", "setting"),
    [
        ("afr", "method.held_out"),
        ("dfr", "method.held_out"),
        ("vae", "method.max_samples"),
        ("chroma_vae", "method.head=mlp"),
    ],
)
def test_methods_that_keep_all_samples_say_so_before_they_train(
    method: str, setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 1000)
    with pytest.raises(ConfigError, match=setting):
        run(settings(method), tmp_path / "run")
    logged = tmp_path / "run" / "metrics.jsonl"
    assert not logged.exists() or not logged.read_text()  # no epoch was trained
    monkeypatch.setattr(memory, "free_memory", lambda: 10**10)
    run(settings(method), tmp_path / "run2")
