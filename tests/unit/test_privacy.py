"""What a file that is sent on does not tell."""

from __future__ import annotations

import time

import pytest

from sitar.privacy import shareable, without_folders


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("runs/a stays", "runs/a stays"),
        ("in </home/alice/x> it is", "in <x> it is"),
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


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("file:///home/alice/feat.parquet", "feat.parquet"),
        ("read file:/home/alice/x.csv now", "read x.csv now"),
        ("simplecache::file:///home/alice/x.csv", "simplecache::x.csv"),
        ("sqlite:////home/alice/x.db", "x.db"),
        ("root:/home/alice/x", "root:x"),
        ("-/home/alice/x", "-x"),
        ("no /home/o'brien/runs/a here", "no a here"),
        ('"/home/o\'brien/runs/a" is damaged', '"a" is damaged'),
        ("'/home/\"x\"/runs/a' is damaged", "'a' is damaged"),
        ("s3://alice:SECRET@bucket/x", "s3://bucket/x"),
        ("s3://alice:SEC/RET@bucket/x", "s3://bucket/x"),
        ("at https://alice@host/x it is", "at https://host/x it is"),
    ],
)
def test_addresses_and_odd_paths_tell_no_folder_and_no_password(text: str, left: str) -> None:
    assert without_folders(text) == left
    assert shareable(text) == left


@pytest.mark.parametrize(
    "text", ["s3://bucket/a/x", "hf://datasets/me/x@main", "a-/b", "https://x.org:80/a", "and/or", "<b>x</b>"]
)
def test_other_addresses_stay(text: str) -> None:
    assert shareable(text) == text


def test_names_of_settings_are_treated_too() -> None:
    assert shareable({"/home/alice/site": 1, "/home/bob/site": 2, 3: 4}) == {"site": 1, "site 1": 2, 3: 4}


@pytest.mark.parametrize("part", ["a://b:", "'/\"/`/", "file:", "a.", "-/", ":/", "://"])
def test_a_long_odd_text_takes_no_time(part: str) -> None:
    began = time.process_time()
    without_folders(part * 20_000)
    assert time.process_time() - began < 2
