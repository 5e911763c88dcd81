"""Finished runs to ask about."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.asking import SIZE, made_folder, save_images, train


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on one folder, one on another folder of other classes, and new images."""
    root = tmp_path_factory.mktemp("candidates")
    data = made_folder(root / "data")
    train(root / "a", data)
    train(root / "b", data, seed=1)
    train(root / "other", made_folder(root / "other_data", ("dog", "cat", "bird")))
    save_images(root / "new" / "deeper", 30, SIZE)
    return root
