"""An address of data may come from a stranger's run folder: few schemes are read, and no chain of them."""

from __future__ import annotations

import fsspec
import pytest

from sitar.errors import ConfigError, DataError
from sitar.images.remote import find_remote

REFUSED = [
    "reference::local:///tmp/evil.json", "reference://?fo=http://127.0.0.1:9/", "jupyter://x", "tar://x::file:///tmp/a",
    "http://127.0.0.1:9/x.csv", "https://127.0.0.1:9/x.csv", "file:///etc/passwd", "local:///etc/passwd", "ssh://h/x",
    "simplecache::s3://bucket/x.csv", "s3://bucket/x::file:///etc", "memory://x::memory://y", "github://a:b@/x", "://x",
]  # fmt: skip


@pytest.mark.parametrize("url", REFUSED)
def test_other_schemes_and_chains_never_reach_fsspec(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object, **__: object) -> None:
        pytest.fail("fsspec was asked")

    monkeypatch.setattr(fsspec.core, "url_to_fs", asked)
    with pytest.raises(ConfigError, match=r"nothing here knows .*only one of hf://, s3://, gs://"):
        find_remote(url, (".csv",))


def test_what_a_file_system_raises_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    for error, expected, words in (
        (ImportError("Install s3fs"), ConfigError, "pip install s3fs"),
        (KeyError("endpoint"), DataError, "cannot be reached: KeyError"),
    ):

        def fails(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(fsspec.core, "url_to_fs", fails)
        with pytest.raises(expected, match=words):
            find_remote("s3://bucket/x.csv", (".csv",))
