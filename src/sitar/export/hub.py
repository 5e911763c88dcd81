"""Upload a bundle to a hub of models, in one commit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sitar.errors import ConfigError, ExportError, first_line
from sitar.export.bundle import Published

MISSING = 'Uploads need huggingface_hub, which cannot be imported ({}). Run `pip install "sitar[hub]"`.'
NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
REPOSITORY = re.compile(f"{NAME}/{NAME}")


def check_repository(name: str) -> str:
    """Return the name of a repository; refuse one that no hub has."""
    if not REPOSITORY.fullmatch(name) or "--" in name or ".." in name:
        raise ConfigError(
            f"{name!r} is no repository: give OWNER/NAME, of letters, digits, dots, dashes and underscores."
        )
    return name


def upload(files: Sequence[Published], repository: str, *, public: bool = False) -> str:
    """Upload files as one commit, and return the address of the repository. It is made, private, if it is not there."""
    try:
        from huggingface_hub import CommitOperationAdd, HfApi
    except ImportError as error:
        raise ExportError(MISSING.format(error)) from error
    additions = [
        CommitOperationAdd(file.name, str(file.content) if isinstance(file.content, Path) else file.content)
        for file in files
    ]
    try:
        api = HfApi(library_name="sitar")
        address = api.create_repo(check_repository(repository), private=not public, exist_ok=True)
        api.create_commit(repository, additions, commit_message="Upload a model of sitar")
    except Exception as error:  # what the client raises is not specified: no network, no token, no permission
        raise ExportError(
            f"The upload to {repository!r} failed: {first_line(error)}. Check the network, and log in with "
            "`hf auth login` or HF_TOKEN, as somebody who may write there. A commit is whole or not there at all."
        ) from error
    return str(address)
