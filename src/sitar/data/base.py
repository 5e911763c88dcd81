"""Every registered data set fulfils this contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from sitar.config import NamedConfig
from sitar.data.published_counts import Counts
from sitar.data.sample_table import SampleTable
from sitar.data.types import Data
from sitar.images.cache import Cached
from sitar.images.download import Download
from sitar.progress import Watch, unwatched

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, as fractions of an image."""


class DataConfig(NamedConfig):
    """Adds what every data set of this package lets a user set."""

    unlabelled: str | None = Field(
        default=None,
        description="inputs without labels, from where the model will be used, for methods that learn from them: a "
        "folder, a table, an .npz file, a pattern, or a split that is not for testing",
    )


class Prepared(NamedTuple):
    """Holds decoded images and the samples that they belong to, in the same order. Features have no images."""

    samples: SampleTable
    images: Cached | None = None

    @property
    def usable(self) -> SampleTable:
        """Return the samples whose images can be read: all of them where there are no images."""
        return self.samples if self.images is None else self.samples.take(self.images.good)


class Metadata(NamedTuple):
    """Holds all that is written down of samples beside their label: words by column, in the order of `files`.

    `files` names samples as a sample table does.
    """

    files: Sequence[Any]
    columns: Mapping[str, Sequence[str]]


class Dataset:
    """A data set describes itself, says what is known of every sample, and loads itself into memory.

    A subclass registers itself in `sitar.registry.DATASETS` and is never instantiated: every method is a class method
    that takes the settings of the run's `data` section, an object of `Config`, whose field `name` has the
    registered name as its default. A data set that has no such thing as a method asks for keeps the method as it is.
    """

    Config: ClassVar[type[NamedConfig]]
    title: ClassVar[str]
    layout: ClassVar[str]
    """What lies in the place that `setting` names, in words."""
    setting: ClassVar[str | None] = "root"
    """The setting that says where the files lie; None: there never are any, as the samples are drawn."""
    needs_files: ClassVar[bool] = True
    """False: with its default settings the data set needs no file of the user."""

    licence: ClassVar[str] = ""
    """That of the data, in words; empty: not known."""
    citation: ClassVar[str] = ""
    homepage: ClassVar[str] = ""
    by_hand: ClassVar[str] = ""
    """Where a person gets the files."""
    downloads: ClassVar[tuple[Download, ...]] = ()
    """What `prepare` fetches; empty where no host gives the files to a script."""

    @classmethod
    def samples(cls, config: Any) -> SampleTable:
        """Read the label, the split and the attribute of every sample. No image is opened."""
        raise NotImplementedError

    @classmethod
    def metadata(cls, config: Any) -> Metadata | None:
        """Read what else is written down of the samples, for `sitar audit`; None: nothing is."""
        return None

    @classmethod
    def load(cls, config: Any, watch: Watch = unwatched) -> Data:
        """Load the data, into memory or mapped from the cache. `watch` is told how far slow work is."""
        raise NotImplementedError

    @classmethod
    def prepare(cls, config: Any, watch: Watch = unwatched) -> Prepared | None:
        """Download what is missing and read every image, or all features, into the cache; None: there is no cache."""
        return None

    @classmethod
    def layout_of(cls, config: Any) -> str | None:
        """Name the layout that the files have; None: there are no files, or only one layout is known."""
        return None

    @classmethod
    def published(cls, config: Any) -> Counts | None:
        """Return the published number of samples; None: nothing is published for these settings.

        Counts are by split, or by several splits as one (`train + val`), and by group or in total.
        """
        return None

    @classmethod
    def val_share(cls, config: Any) -> float | None:
        """Return the share that becomes `val` where the files name no such split; None: the user cannot choose it."""
        return None

    @classmethod
    def box_of_interest(cls, config: Any) -> Box | None:
        """Return the region of an image, as a model sees it, to measure saliency in, such as the face; None: none."""
        return None
