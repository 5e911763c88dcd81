"""What a file that is sent on does not tell."""

from __future__ import annotations

import time

import pytest

from sitar.privacy import shareable, without_folders


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("runs/a stays", "runs/a stays"),
        ("sitar train /home/me/mine.yaml --seed 1", "sitar train mine.yaml --seed 1"),
        ("data in '/home/me/My Scans/set/' is read", "data in 'set' is read"),
        (r"C:\Users\me\x.csv", "x.csv"),
        ('"~/secret/x.npz"', '"x.npz"'),
    ],
)
def test_an_absolute_path_is_only_its_last_name(text: str, left: str) -> None:
    assert without_folders(text) == left


def test_settings_keep_their_form() -> None:
    settings = {"nuisances": ["/home/me/concepts/hair", "brightness"], "alpha": 1.0, "root": "/home/me/My Scans"}
    assert shareable(settings) == {"nuisances": ["hair", "brightness"], "alpha": 1.0, "root": "My Scans"}


def test_a_long_text_takes_no_time() -> None:
    began = time.process_time()
    without_folders("'/" + "a" * 300_000)
    assert time.process_time() - began < 1
