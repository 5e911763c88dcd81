"""Turn what a caller hands to a model in Python into a tensor, as the run's data stores its inputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from sitar.config import NamedConfig
from sitar.data.image_dataset import ImageConfig
from sitar.errors import DataError
from sitar.files import user_path
from sitar.images.bit_depth import BadImageError
from sitar.images.decode import decode, decode_image
from sitar.images.files import Files

Picture = str | os.PathLike[str] | Image
PICTURES = (str, os.PathLike, Image)
Given = Tensor | np.ndarray | Picture | Sequence[Picture]


def as_stored(given: Given, config: NamedConfig) -> Tensor:
    """Return inputs as a tensor. Image files and images of Pillow are decoded and resized as the data's own."""
    pictures = [given] if isinstance(given, PICTURES) else given
    if isinstance(pictures, list | tuple) and pictures and all(isinstance(one, PICTURES) for one in pictures):
        return torch.from_numpy(np.stack([_decoded(one, config) for one in pictures]))
    if isinstance(given, Tensor):
        return given
    try:
        return torch.from_numpy(np.require(given, requirements="W"))  # torch warns of arrays that are read-only
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"Inputs are an array of numbers, or paths of image files, or images of Pillow. These are none ({error})."
        ) from error


def _decoded(picture: Picture, config: NamedConfig) -> np.ndarray:
    if not isinstance(config, ImageConfig):
        raise DataError(
            f"This model was trained on arrays ({config.name}), and nothing says how an image becomes one. "
            "Give an array."
        )
    form = ((config.image_size, config.image_size), config.crop_pct, config.channels)
    try:
        if isinstance(picture, Image):
            return decode_image(picture, *form)
        return decode(Files([Path()]).read(os.fspath(user_path(picture))), *form)
    except FileNotFoundError as error:
        raise DataError(f"There is no file {str(picture)!r}.") from error
    except (BadImageError, OSError) as error:
        raise DataError(f"{str(picture)!r} cannot be read: {error}.") from error
