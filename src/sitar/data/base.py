"""What datasets from files have in common, whatever the files hold."""

from __future__ import annotations

from typing import Any, ClassVar

from sitar.data.sample_table import Index
from sitar.data.types import Data


class Dataset:
    """A dataset from files that a user brings: a subclass says what they are and what is known of every sample."""

    title: ClassVar[str]
    setting: ClassVar[str] = "root"  # of the data section: where the files are
    layout: ClassVar[str]  # what lies there

    @classmethod
    def index(cls, config: Any) -> Index:
        """Labels, attributes and splits, without opening an image."""
        raise NotImplementedError

    @classmethod
    def published(cls, config: Any) -> dict[str, dict[str, int]] | None:
        """Published counts for these settings: by split or `train + val`, of each group or in total; None: there are
        none, as of a subset."""
        return None

    @classmethod
    def found(cls, config: Any) -> str | None:
        """The name of the layout that its folder has; None where there is nothing, or only one layout to have."""
        return None

    @classmethod
    def load(cls, config: Any) -> Data:
        raise NotImplementedError
